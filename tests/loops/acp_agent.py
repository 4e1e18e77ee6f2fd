"""A small agent that speaks the Agent Client Protocol, made with the protocol's own library.

The last text of a prompt says what it does. Its sessions are files in the folder `AGENT_SESSIONS`:
one line for each text that it was prompted with, so that a test can see what it was told.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import acp
from acp.schema import (
    AgentCapabilities,
    AllowedOutcome,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)

SESSIONS = Path(os.environ.get("AGENT_SESSIONS", "."))


class Agent:
    """Does what it is told."""

    def __init__(self) -> None:
        self.client: Any = None
        self.cwd = Path()
        self.cancelled = asyncio.Event()

    def on_connect(self, client: Any) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        if os.environ.get("AGENT_SLEEPS"):
            await asyncio.sleep(60)
        version = int(os.environ.get("AGENT_VERSION", protocol_version))
        return InitializeResponse(
            protocol_version=version, agent_capabilities=AgentCapabilities(load_session=True)
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        if os.environ.get("AGENT_NEEDS_KEY"):
            raise acp.RequestError.auth_required({"missing": "a key"})
        session_id = str(uuid4())
        self.cwd = Path(cwd)
        (SESSIONS / session_id).touch()
        return NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        if not (SESSIONS / session_id).exists():
            raise acp.RequestError.resource_not_found(session_id)
        self.cwd = Path(cwd)
        for told in self.told(session_id):
            await self.say(session_id, f"(again: {told})")
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.set()

    def told(self, session_id: str) -> list[str]:
        return [json.loads(line) for line in (SESSIONS / session_id).read_text().splitlines()]

    async def say(self, session_id: str, text: str, message_id: str | None = None) -> None:
        update = acp.update_agent_message_text(text)
        update.message_id = message_id
        await self.client.session_update(session_id=session_id, update=update)

    async def tell(self, session_id: str, call_id: str, **fields: Any) -> None:
        update = acp.update_tool_call(call_id, **fields)
        await self.client.session_update(session_id=session_id, update=update)

    async def call(self, session_id: str, call_id: str, title: str, **fields: Any) -> None:
        update = acp.start_tool_call(call_id, title, **fields)
        await self.client.session_update(session_id=session_id, update=update)

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        texts = [block.text for block in prompt if block.type == "text"]
        with (SESSIONS / session_id).open("a") as file:
            file.writelines(json.dumps(text) + "\n" for text in texts)
        verb, _, rest = texts[-1].partition(" ")
        stop = await getattr(self, f"do_{verb}")(session_id, rest)
        return PromptResponse(stop_reason=stop or "end_turn")

    async def do_say(self, session_id: str, rest: str) -> None:
        for word in rest.split():
            await self.say(session_id, word + " ")

    async def do_think(self, session_id: str, rest: str) -> None:
        thought = acp.update_agent_thought_text("let me see")
        await self.client.session_update(session_id=session_id, update=thought)
        await self.say(session_id, rest, "m1")
        await self.say(session_id, "and more", "m2")

    async def do_told(self, session_id: str, rest: str) -> None:
        await self.say(session_id, json.dumps(self.told(session_id)))

    async def do_write(self, session_id: str, name: str) -> None:
        """A call as opencode and others tell of it: first without its arguments."""
        await self.say(session_id, "I write it. ")
        await self.call(session_id, "c1", "write", kind="edit", status="pending", raw_input={})
        await self.tell(
            session_id, "c1", status="in_progress", raw_input={"path": name, "content": "hi"}
        )
        (self.cwd / name).write_text("hi")
        await self.tell(
            session_id,
            "c1",
            status="completed",
            content=[acp.tool_content(acp.text_block("written"))],
            raw_output={"bytes": 2},
        )
        await self.say(session_id, "Done.")

    async def do_twice(self, session_id: str, name: str) -> str | None:
        """Asks two times about one call, as for more rights than it had at first."""
        await self.do_ask(session_id, name, is_over=False)
        return await self.do_ask(session_id, name)

    async def do_ask(self, session_id: str, name: str, *, is_over: bool = True) -> str | None:
        await self.call(
            session_id, "c1", "Write it", kind="edit", status="pending", raw_input={"path": name}
        )
        offered = [("yes", "allow_once"), ("ever", "allow_always"), ("no", "reject_once")]
        answer = await self.client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(
                tool_call_id="c1", title="Write it", raw_input={"path": name, "content": "hi"}
            ),
            options=[
                PermissionOption(option_id=key, name=key, kind=kind)  # type: ignore[arg-type]
                for key, kind in offered
            ],
        )
        if not isinstance(answer.outcome, AllowedOutcome):
            return "cancelled"
        if answer.outcome.option_id == "yes":
            (self.cwd / name).write_text("hi")
        if not is_over:
            return None
        state = "completed" if answer.outcome.option_id == "yes" else "failed"
        await self.tell(session_id, "c1", status=state)
        await self.say(session_id, f"You said {answer.outcome.option_id}.")
        return None

    async def do_parallel(self, session_id: str, rest: str) -> None:
        """Two calls that overlap, and text while one of them runs."""
        for call_id in ("a", "b"):
            await self.call(
                session_id, call_id, call_id, kind="read", status="in_progress", raw_input={"n": 1}
            )
        await asyncio.sleep(0.3)
        await self.tell(session_id, "b", status="completed")
        await self.call(
            session_id, "late", "late", kind="read", status="in_progress", raw_input={"n": 2}
        )
        await self.say(session_id, "Meanwhile. ")
        await self.tell(session_id, "late", status="failed")
        await self.tell(session_id, "a", status="completed")
        await self.say(session_id, "Done.")

    async def do_nested(self, session_id: str, name: str) -> str | None:
        """A call within another one, which asks while that one is open."""
        await self.call(session_id, "p", "task", status="in_progress", raw_input={"n": 1})
        await asyncio.sleep(0.3)
        reason = await self.do_ask(session_id, name)
        await self.tell(session_id, "p", status="completed")
        return reason

    async def do_partial(self, session_id: str, rest: str) -> None:
        """A call whose arguments are still being written, and that never says that it runs."""
        await self.call(session_id, "c", "Write", status="pending", raw_input={"path": "x"})
        await asyncio.sleep(0.3)
        await self.tell(session_id, "c", raw_input={"path": "x", "content": "y"})
        await self.tell(session_id, "c", status="completed")

    async def do_open(self, session_id: str, rest: str) -> None:
        await self.call(session_id, "c", "x", status="in_progress", raw_input={"n": 1})

    async def do_stream(self, session_id: str, rest: str) -> None:
        """A command's output, as Codex streams it."""
        await self.call(session_id, "c", "ls", kind="execute", status="in_progress", raw_input=[1])
        await asyncio.sleep(0.2)
        for piece in ("one\n", "two\n"):
            update = acp.update_tool_call("c")
            update.field_meta = {"terminal_output_delta": {"data": piece}}
            await self.client.session_update(session_id=session_id, update=update)
        await self.tell(session_id, "c", status="completed")

    async def do_crash(self, session_id: str, rest: str) -> None:
        await self.say(session_id, "I will fall. ")
        await self.call(session_id, "c", "x", status="in_progress", raw_input={"n": 1})
        await asyncio.sleep(0.3)
        sys.stderr.write("boom: no more\n")
        sys.stderr.flush()
        os._exit(3)

    async def do_wait(self, session_id: str, rest: str) -> str:
        await self.say(session_id, "Waiting. ")
        await self.cancelled.wait()
        (self.cwd / "cancelled").touch()
        return "cancelled"

    async def do_hang(self, session_id: str, rest: str) -> None:
        """It does not hear of a cancel, and has a child that left its process group."""
        child = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
        (self.cwd / "pids").write_text(f"{os.getpid()} {child.pid}")
        await self.say(session_id, "Hanging. ")
        await asyncio.sleep(1000)

    async def do_stop(self, session_id: str, reason: str) -> str:
        await self.say(session_id, "So far. ")
        return reason

    async def do_noise(self, session_id: str, rest: str) -> None:
        """Lines that are no messages, updates that are none, requests that nobody serves."""
        sys.stdout.write("this is no JSON\n[1]\n")
        line = {"jsonrpc": "2.0", "method": "session/update", "params": {"update": {"x": 1}}}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        try:
            await self.client.read_text_file(session_id=session_id, path="/etc/passwd")
        except acp.RequestError as error:
            await self.say(session_id, f"refused: {error}")

    async def do_flood(self, session_id: str, rest: str) -> None:
        await self.say(session_id, "x" * int(rest))


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))  # type: ignore[arg-type]  # what it does not do is absent
