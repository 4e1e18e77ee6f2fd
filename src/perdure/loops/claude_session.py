"""Claude Code's own stream of JSON as an agent's session: a second protocol beside ACP's.

It is Claude Code with `--input-format stream-json --output-format stream-json`: a line each for a
prompt, for what it says, and for control requests both ways, by which it asks for permission (an
answer may change the arguments) and is interrupted.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from perdure.clock import new_id
from perdure.encoding import kept
from perdure.entry import File, Json, Text, ToolCall
from perdure.errors import LoopError
from perdure.loop import Allowed, Refused
from perdure.loops.agent_told import Answered, Asked, CallTold, Said, TurnOver
from perdure.loops.command import Command, ended, read_message, write_message
from perdure.loops.inbox import Inbox, settle

log = logging.getLogger(__name__)

ARGUMENTS = (
    "--print",
    "--verbose",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--include-partial-messages",
    "--permission-prompt-tool=stdio",
)

REST_S = 5.0
"""How long it may take to begin to go on, when the agents that it started have ended."""

_AGENTS = frozenset({"local_agent", "local_workflow", "remote_agent"})


class ClaudeSession:
    """A Claude Code that was started; see `AgentSession` for what each verb promises."""

    can_change = True

    def __init__(self, inbox: Inbox, *, grace_s: float) -> None:
        self.session_id = ""
        self._inbox = inbox
        self._grace_s = grace_s
        self._command = Command(grace_s=grace_s)
        self._argv: Sequence[str] = ()
        self._cwd = Path()
        self._env: Mapping[str, str] = {}
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._message_id: str | None = None
        self._is_prompted = False
        self._asked: dict[str, Asked] = {}
        self._agents: set[str] = set()
        """Agents that it started, and that work in the background."""
        self._resting: asyncio.TimerHandle | None = None
        self._is_resting = False
        """Whether it has ended its turn, but for these."""

    @property
    def last_words(self) -> str:
        """The end of what the command wrote to its standard error."""
        return self._command.last_words

    async def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Keeps how it is started: its session is an argument of it."""
        self._argv, self._cwd, self._env = argv, cwd, env

    async def load(self, session_id: str) -> bool:
        """Starts it on a session that it has; False where it has it no more."""
        try:
            await self._launch("--resume", session_id)
        except LoopError as error:
            log.info("the agent's session %s cannot be loaded: %s", session_id, error)
            await self._end()
            self._command = Command(grace_s=self._grace_s)
            return False
        return True

    async def create(self) -> None:
        """Starts it on a new session.

        Raises:
            LoopError: it does not start.

        """
        await self._launch("--session-id", str(UUID(new_id())))

    async def _launch(self, option: str, session_id: str) -> None:
        argv = [*self._argv, *ARGUMENTS, option, session_id]
        await self._command.start(argv, cwd=self._cwd, env=self._env)
        self._over.clear()
        self._reading = asyncio.create_task(self._read())
        self.session_id = session_id
        await self._control({"subtype": "initialize", "hooks": None})

    def prompt(self, parts: Sequence[Text | File]) -> None:
        """Begins a turn; what comes of it is in the inbox, `TurnOver` last."""
        self._is_prompted = True
        if self._reading is None or self._reading.done():
            self._inbox.put(TurnOver(LoopError(ended(self._command))))
            return
        content = [block for part in parts if (block := _block(part)) is not None]
        message = {"role": "user", "content": content}
        said = {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}
        self._later(self._say(said))

    async def close(self) -> None:
        """Interrupts what runs, gives it the grace to stop, and ends it with all it started."""
        self._inbox.close()
        if self._resting is not None:
            self._resting.cancel()
        try:
            if self._is_prompted and not self._over.is_set():
                with suppress(TimeoutError, LoopError):
                    async with asyncio.timeout(self._grace_s):
                        await self._control({"subtype": "interrupt"})
                        await self._over.wait()
        finally:
            if not self._over.is_set():
                self._command.let_go()
            await self._end()

    async def _end(self) -> None:
        try:
            await self._command.end()
        finally:
            tasks = [*self._answering, *([self._reading] if self._reading is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _later(self, step: Any) -> None:
        task = asyncio.create_task(step)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _say(self, message: Mapping[str, Any]) -> None:
        with suppress(ConnectionError):  # the end of its output tells of its end
            await self._command.send(write_message(message))

    async def _control(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Asks it; LoopError where it refuses or ends."""
        request_id = new_id()
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[request_id] = reply
        await self._say({"type": "control_request", "request_id": request_id, "request": request})
        assert self._reading is not None
        either: list[asyncio.Future[Any]] = [reply, self._reading]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            await self._command.wait(1.0)
            raise LoopError(ended(self._command))
        told = reply.result()
        if told.get("subtype") != "success":
            raise LoopError(f"the agent refused {request['subtype']}: {told.get('error')}")
        return _fields(told.get("response"))

    async def _read(self) -> None:
        problem: LoopError | None = None
        try:
            while (line := await self._next()) is not None:
                if (message := read_message(line)) is None:
                    self._command.hear(line)
                else:
                    self._take(message, len(line))
        except LoopError as error:
            problem = error
        if self._is_prompted and not self._over.is_set():
            await self._command.wait(1.0)
            self._end_turn(problem or LoopError(ended(self._command)))

    async def _next(self) -> bytes | None:
        await self._inbox.room()
        return await self._command.receive()

    def _take(self, message: dict[str, Any], size: int) -> None:
        is_own = message.get("parent_tool_use_id") is None  # not of an agent that it started
        match message.get("type"):
            case "control_response":
                told = _fields(message.get("response"))
                reply = self._replies.pop(str(told.get("request_id")), None)
                if reply is not None and not reply.done():
                    reply.set_result(told)
            case "control_request":
                self._later(self._answer(message))
            case "control_cancel_request":
                asked = self._asked.pop(str(message.get("request_id")), None)
                if asked is not None:  # the call goes on as it is told of, or does not
                    settle(asked)
                    self._inbox.put(Answered(asked, Allowed(None)))
            case "stream_event" if is_own:
                self._stream(_fields(message.get("event")), size)
            case "assistant" if is_own:
                for block in _blocks(message):
                    if block.get("type") == "tool_use":
                        call = _call(block.get("id"), block)
                        call.is_first = True
                        self._inbox.put(call, size)
            case "user" if is_own:
                for block in _blocks(message):
                    if block.get("type") == "tool_result":
                        self._inbox.put(_result(block, message.get("tool_use_result")), size)
            case "system" if message.get("subtype") == "background_tasks_changed":
                self._agents = _agents(message.get("tasks"))
                self._check_rest()
            case "result":
                self._end_answer(_problem(message))

    def _end_answer(self, problem: LoopError | None) -> None:
        if problem is None and self._agents:
            self._is_resting = True
        else:
            self._end_turn(problem)

    def _check_rest(self) -> None:
        """It goes on by itself when its agents have ended; where it does not, the turn is over."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._is_resting and not self._agents:
            loop = asyncio.get_running_loop()
            self._resting = loop.call_later(REST_S, self._end_turn, None)

    def _end_turn(self, problem: LoopError | None) -> None:
        if not self._over.is_set():
            self._over.set()
            self._inbox.put(TurnOver(problem))

    def _stream(self, event: dict[str, Any], size: int) -> None:
        match event.get("type"):
            case "message_start":
                self._is_resting = False
                self._check_rest()
                self._message_id = _fields(event.get("message")).get("id")
            case "content_block_delta":
                delta = _fields(event.get("delta"))
                if text := delta.get("text"):
                    self._inbox.put(Said(str(text), "text", self._message_id), size)
                elif text := delta.get("thinking"):
                    self._inbox.put(Said(str(text), "reasoning", self._message_id), size)

    async def _answer(self, message: dict[str, Any]) -> None:
        """What it asks of us: permission, and nothing else."""
        request, request_id = _fields(message.get("request")), message.get("request_id")
        reply: dict[str, Any] = {"request_id": request_id}
        if request.get("subtype") != "can_use_tool":
            reply |= {"subtype": "error", "error": "not served here"}
        else:
            call = {"name": request.get("tool_name"), "input": request.get("input")}
            call_id = request.get("tool_use_id") or request_id
            title = request.get("title") or request.get("description")
            reason = title if isinstance(title, str) else None
            if request.get("agent_id") is not None:  # of an agent that it started
                asked = _asked_by_another(str(call_id), reason, call)
            else:
                asked = Asked(str(call_id), reason)
                self._inbox.put(_call(call_id, call))
            self._inbox.put(asked)
            self._asked[str(request_id)] = asked
            answer = await asked.answer
            if self._asked.pop(str(request_id), None) is None:
                return  # it does not wait any more
            reply |= {"subtype": "success", "response": _decision(answer, call)}
        await self._say({"type": "control_response", "response": reply})


def _decision(answer: Allowed | Refused | None, call: dict[str, Any]) -> dict[str, Any]:
    match answer:
        case Allowed(arguments=arguments):
            changed = arguments if isinstance(arguments, dict) else call["input"]
            return {"behavior": "allow", "updatedInput": changed}
        case Refused(reason=reason):
            return {"behavior": "deny", "message": reason, "interrupt": False}
        case None:
            return {"behavior": "deny", "message": "the turn is being stopped", "interrupt": True}


def _call(call_id: Any, call: Mapping[str, Any]) -> CallTold:
    name = call.get("name")
    return CallTold(
        str(call_id),
        name=name if isinstance(name, str) else None,
        arguments=call.get("input"),
        is_whole=True,
    )


def _asked_by_another(call_id: str, reason: str | None, call: Mapping[str, Any]) -> Asked:
    told = "an agent that it started asks" + (f": {reason}" if reason else "")
    return Asked(call_id, told, ToolCall(call_id, str(call["name"]), kept(call["input"])))


def _agents(tasks: Any) -> set[str]:
    """The agents among what it runs in the background; a command there may never end."""
    listed = [_fields(each) for each in tasks] if isinstance(tasks, list) else []
    return {str(each.get("task_id")) for each in listed if each.get("task_type") in _AGENTS}


def _result(block: Mapping[str, Any], raw: Json) -> CallTold:
    content = block.get("content")
    found = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    parts = [part for each in found if (part := _part(_fields(each))) is not None]
    return CallTold(
        str(block.get("tool_use_id")),
        state="failed" if block.get("is_error") else "done",
        output=parts,
        provider=None if raw is None else {"output": raw},
    )


def _part(block: Mapping[str, Any]) -> Text | File | None:
    match block.get("type"):
        case "text" if isinstance(text := block.get("text"), str):
            return Text(text) if text else None
        case "image":
            source = _fields(block.get("source"))
            with suppress(ValueError):
                data = base64.b64decode(str(source.get("data")), validate=True)
                return File(str(source.get("media_type")), data)
    return Text(f"[{block.get('type')}]")


def _block(part: Text | File) -> dict[str, Any] | None:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if part.data is not None and part.media_type.startswith("image/"):
        data = base64.b64encode(part.data).decode()
        source = {"type": "base64", "media_type": part.media_type, "data": data}
        return {"type": "image", "source": source}
    name = part.url or part.name or part.media_type
    return {"type": "text", "text": f"[the file {name} cannot be shown to you]"}


def _problem(result: Mapping[str, Any]) -> LoopError | None:
    if result.get("subtype") == "success" and not result.get("is_error"):
        return None
    why = result.get("result") or result.get("errors") or result.get("subtype")
    return LoopError(f"the agent did not end its turn: {why}")


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = _fields(message.get("message")).get("content")
    return [_fields(each) for each in content] if isinstance(content, list) else []


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
