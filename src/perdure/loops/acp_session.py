"""One agent's process and the one session in it, over the Agent Client Protocol.

`acp` carries requests and their answers; updates are taken from the wire in the order in which
they come. No capability is offered: the agent reads, writes and runs by itself in the folder where
it was started. Source: agentclientprotocol.com/protocol, version 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError
from acp.connection import Connection
from acp.meta import AGENT_METHODS, CLIENT_METHODS

from perdure.entry import File, Text
from perdure.errors import LoopError
from perdure.loop import Allowed
from perdure.loops.acp_update import read_call, read_update
from perdure.loops.agent_told import Asked, TurnOver
from perdure.loops.command import Command, ended, read_message, write_message
from perdure.loops.inbox import Inbox

log = logging.getLogger(__name__)

_AUTH_REQUIRED = -32000
_STOPPED_BADLY = {
    "max_tokens": "it reached the most tokens of one answer",
    "max_turn_requests": "it reached the most requests of one turn",
    "refusal": "its model refused to go on",
    "cancelled": "it was cancelled, and not by this server",
}


class AcpSession:
    """An agent that was started; `open` it once, `prompt` it, `close` it whatever happened."""

    can_change = False

    def __init__(
        self, inbox: Inbox, *, grace_s: float, auth: str | None = None, mode: str | None = None
    ) -> None:
        self.session_id = ""
        self._auth = auth
        self._mode = mode
        self._inbox = inbox
        self._grace_s = grace_s
        self._command = Command(grace_s=grace_s)
        self._connection: Connection | None = None
        self._prompting: asyncio.Task[None] | None = None
        self._takes_images = False
        self._is_loading = False

    @property
    def last_words(self) -> str:
        """The end of what the command wrote to its standard error."""
        return self._command.last_words

    async def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Starts the agent and agrees on the protocol.

        Raises:
            LoopError: it cannot be started, ended, or speaks another version.

        """
        await self._command.start(argv, cwd=cwd, env=env)
        self._cwd = str(cwd)
        self._connection = Connection(self._answer, self)
        told = await self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                },
                "clientInfo": {"name": "perdure", "title": "Perdure", "version": "1"},
            },
        )
        if told.get("protocolVersion") != PROTOCOL_VERSION:
            raise LoopError(
                f"the agent speaks version {told.get('protocolVersion')!r} of the Agent Client "
                f"Protocol; this loop speaks {PROTOCOL_VERSION}"
            )
        can = _fields(told.get("agentCapabilities"))
        self._can_load = can.get("loadSession") is True
        self._can_resume = _fields(can.get("sessionCapabilities")).get("resume") is not None
        self._takes_images = _fields(can.get("promptCapabilities")).get("image") is True
        if self._auth is not None:
            await self._request("authenticate", {"methodId": self._auth})

    async def load(self, session_id: str) -> bool:
        """Takes up a session that it has; False where it has it no more, or cannot."""
        verb = "session_resume" if self._can_resume else "session_load" if self._can_load else None
        if verb is None:
            return False
        self._is_loading = True  # it tells the whole conversation again: we have it
        try:
            known = {"sessionId": session_id, "cwd": self._cwd, "mcpServers": []}
            await self._call(AGENT_METHODS[verb], known)
        except RequestError as error:
            log.info("session %s cannot be loaded: %s %s", session_id, error, error.data or "")
            return False
        finally:
            self._is_loading = False
        self.session_id = session_id
        await self._choose_mode()
        return True

    async def create(self) -> None:
        """Starts a new session.

        Raises:
            LoopError: it refuses to.

        """
        told = await self._request("session_new", {"cwd": self._cwd, "mcpServers": []})
        if not isinstance(session_id := told.get("sessionId"), str):
            raise LoopError("the agent gave its new session no id")
        self.session_id = session_id
        await self._choose_mode()

    async def _choose_mode(self) -> None:
        if self._mode is not None:
            chosen = {"sessionId": self.session_id, "modeId": self._mode}
            await self._request("session_set_mode", chosen)

    def prompt(self, parts: Sequence[Text | File]) -> None:
        """Begins a turn; what comes of it is in the inbox, `TurnOver` last."""
        blocks = [block for part in parts for block in self._blocks(part)]
        self._prompting = asyncio.create_task(self._prompt(blocks))

    async def _prompt(self, blocks: list[dict[str, Any]]) -> None:
        problem: LoopError | None = None
        try:
            told = await self._request(
                "session_prompt", {"sessionId": self.session_id, "prompt": blocks}
            )
            reason = told.get("stopReason")
            if reason != "end_turn":
                why = _STOPPED_BADLY.get(str(reason), f"it stopped for the reason {reason!r}")
                problem = LoopError(f"the agent did not end its turn: {why}")
        except LoopError as error:
            problem = error
        self._inbox.put(TurnOver(problem))

    def _blocks(self, part: Text | File) -> list[dict[str, Any]]:
        if isinstance(part, Text):
            return [{"type": "text", "text": part.text}] if part.text else []
        if self._takes_images and part.media_type.startswith("image/") and part.data is not None:
            import base64

            data = base64.b64encode(part.data).decode()
            return [{"type": "image", "mimeType": part.media_type, "data": data}]
        name = part.name or part.media_type
        if part.url is not None:
            return [{"type": "resource_link", "name": name, "uri": part.url}]
        return [{"type": "text", "text": f"[the file {name} cannot be shown to you]"}]

    async def close(self) -> None:
        """Cancels what runs, gives it the grace to stop, and ends the agent with all it started."""
        self._inbox.close()
        try:
            if self._prompting is not None and not self._prompting.done():
                with suppress(TimeoutError, ConnectionError, LoopError):
                    async with asyncio.timeout(self._grace_s):
                        await self._notify("session_cancel", {"sessionId": self.session_id})
                        await asyncio.wait([self._prompting])
        finally:
            if self._prompting is not None and not self._prompting.done():
                self._command.let_go()  # it did not stop when it was asked to
                self._prompting.cancel()
            try:
                await self._command.end()
            finally:
                if self._connection is not None:
                    await self._connection.close()
                if self._prompting is not None:
                    await asyncio.wait([self._prompting])

    async def _request(self, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the agent.

        Raises:
            LoopError: it refused, or it ended: then with its exit status and last words.

        """
        try:
            return await self._call(AGENT_METHODS[verb], params)
        except RequestError as error:
            said = f"{error}" + (f" ({error.data})" if error.data else "")
            if error.code == _AUTH_REQUIRED:
                raise LoopError(
                    f"the agent wants to be logged in: {said}. Set its key in the server's "
                    "environment, or log in with its own command line as the server's user"
                ) from error
            raise LoopError(f"the agent refused {AGENT_METHODS[verb]}: {said}") from error

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._connection is not None
        try:
            return _fields(await self._connection.send_request(method, params))
        except ConnectionError as error:
            await self._command.wait(1.0)
            raise LoopError(ended(self._command)) from error

    async def _notify(self, verb: str, params: dict[str, Any]) -> None:
        if self._connection is not None:
            await self._connection.send_notification(AGENT_METHODS[verb], params)

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        """What the agent asks of us: permission, and nothing else."""
        if method != CLIENT_METHODS["session_request_permission"]:
            if is_notification:
                return None
            raise RequestError.method_not_found(method)
        params = _fields(params)
        call = _fields(params.get("toolCall"))
        told = read_call(call)
        if told is None:
            raise RequestError.invalid_params({"toolCall": "it has no toolCallId"})
        told.is_whole = told.is_asked = True
        told.output = None  # it is a preview
        title = call.get("title")
        asked = Asked(told.call_id, title if isinstance(title, str) else None)
        self._inbox.put(told)
        self._inbox.put(asked)
        answer = await asked.answer
        option = None
        if answer is not None:
            option = choose_option(params.get("options"), allow=isinstance(answer, Allowed))
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option}}

    # What follows is the transport that the connection sends and receives with.

    async def send(self, message: dict[str, Any]) -> None:
        """Writes one message."""
        await self._command.send(write_message(message))

    async def receive(self) -> dict[str, Any] | None:
        """The next message that is no update; None when the agent has ended."""
        while True:
            await self._inbox.room()
            try:
                line = await self._command.receive()
            except LoopError as error:
                self._command.hear(str(error).encode())
                self._command.let_go()
                return None
            if line is None:
                return None
            if (message := read_message(line)) is None:
                self._command.hear(line)
            elif message.get("method") != CLIENT_METHODS["session_update"]:
                return message
            elif not self._is_loading:
                params = _fields(message.get("params"))
                told = read_update(_fields(params.get("update")))
                if told is not None and params.get("sessionId") == self.session_id:
                    self._inbox.put(told, len(line))


def choose_option(options: Any, *, allow: bool) -> str | None:
    """The option to answer with: this once rather than always; None where there is none."""
    offered = (
        [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
    )
    word = "allow" if allow else "reject"
    for kind in (f"{word}_once", f"{word}_always"):
        for each in offered:
            if each.get("kind") == kind and isinstance(each.get("optionId"), str):
                return str(each["optionId"])
    return None


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
