"""What the loops over command-line agents share: one run is one turn in the agent's own session.

Each run starts the agent's command, takes up the agent's own session (or tells a new one what it
has to know: briefing.py) and is one turn of it. The transcript of record is ours. How what it tells
becomes a journal, and what that costs, is in order.py: above all, an agent runs its tools by itself
and tells of it; a call is stored before it is *allowed* where the agent asks for permission, and as
soon as it is told of where it does not ask. When the run ends, is stopped, or its owner dies,
nothing of the agent is left running, and what it did to files stays done.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from perdure.entry import File, Text, ToolCall
from perdure.errors import ConfigurationError, LoopError
from perdure.loop import (
    LoopContext,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Remembered,
)
from perdure.loops.agent_told import Answered, Asked, CallTold, Said, TurnOver
from perdure.loops.briefing import Memory, brief, fresh
from perdure.loops.command import find_program
from perdure.loops.consent import consent
from perdure.loops.inbox import Inbox, settle
from perdure.loops.order import Order
from perdure.loops.shell import SECRETS

KEY = "agent_session"
"""Under which a run remembers the agent's own session."""


class AgentSession(Protocol):
    """An agent's process and the session in it; what it tells goes to the inbox it was given."""

    session_id: str
    can_change: bool
    """Whether an approved call can be given other arguments than its own."""

    @property
    def last_words(self) -> str:
        """The end of what its command wrote to its standard error."""

    async def start(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Makes ready; LoopError where that fails."""

    async def load(self, session_id: str) -> bool:
        """Takes up a session that it has; False where it has it no more."""
        ...

    async def create(self) -> None:
        """Starts a new session; LoopError where it refuses."""

    def prompt(self, parts: Sequence[Text | File]) -> None:
        """Begins a turn."""

    async def close(self) -> None:
        """Stops what runs, and leaves nothing of it."""


class AgentOptions(Struct, frozen=True):
    """How an agent is run."""

    command: tuple[str, ...]
    workspace: Path
    env: Mapping[str, str]
    asks_people: bool
    start_within_s: float
    limit_chars: int | None
    install: str | None


def words_of(command: Sequence[str]) -> tuple[str, ...]:
    """A command as a list of words.

    Raises:
        ConfigurationError: it is one text, or empty.

    """
    if isinstance(command, str) or not command:
        raise ConfigurationError("the command of an agent is a list: its name, its arguments")
    return tuple(command)


def check_command(options: AgentOptions) -> None:
    """Whether the agent's command is there.

    Raises:
        LoopError: it is not; the text says how to install it, where that is known.

    """
    environment = _environment(options)
    if find_program(options.command[0], environment) is None:
        how = f"; install it: {options.install}" if options.install else ""
        raise LoopError(f"the command {options.command[0]!r} was not found{how}")


def _environment(options: AgentOptions, context: LoopContext | None = None) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name not in SECRETS}
    if context is not None:
        ours["PERDURE_SESSION_ID"] = context.session_id
        ours["PERDURE_TURN_ID"] = context.turn_id
    return {**ours, **options.env}


def _can_be_asked(asked: Asked, order: Order) -> bool:
    """Whether a question has its place now, and no answer yet."""
    if asked.call is not None:
        return not asked.answer.done()
    return order.is_stored(asked) or order.is_held(asked)


class AgentLoop:
    """The loop of one run; `prepare` imports what its sessions need, and may take its time."""

    def __init__(
        self,
        options: AgentOptions,
        make_session: Callable[[Inbox], AgentSession],
        prepare: Callable[[], object],
    ) -> None:
        self._options = options
        self._make_session = make_session
        self._prepare = prepare

    async def __call__(self, context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        """One turn of the agent.

        Raises:
            LoopError: the agent cannot start, ends in mid-turn, or does not end its turn well.

        """
        await asyncio.to_thread(self._prepare)
        if context.purpose == "summary":
            for event in await self._summarise(context):
                yield event
            return
        messages = await context.messages()
        briefing = brief(messages, Memory.read(context.remembered(KEY)))
        inbox = Inbox()
        session = self._make_session(inbox)
        try:
            async with self._starting(session):
                environment = _environment(self._options, context)
                workspace = self._options.workspace
                await session.start(self._options.command, cwd=workspace, env=environment)
                if briefing.session is None or not await session.load(briefing.session):
                    briefing = fresh(messages)
                    await session.create()
            yield Remembered(KEY, briefing.remembered(session.session_id))
            session.prompt(briefing.parts)
            order = Order(limit_chars=self._options.limit_chars)
            async with aclosing(self._turn(context, session, inbox, order)) as events:
                async for event in events:
                    yield event
            yield Remembered(KEY, briefing.remembered(session.session_id, order.outputs))
        finally:
            await session.close()

    async def _turn(
        self, context: LoopContext, session: AgentSession, inbox: Inbox, order: Order
    ) -> AsyncGenerator[LoopEvent, None]:
        asking: dict[Asked, asyncio.Task[None] | None] = {}
        times: Counter[str] = Counter()
        told = None
        try:
            while not isinstance(told, TurnOver):
                told = await inbox.get(order.wait_s())
                if isinstance(told, TurnOver) and told.problem is not None:
                    for event in order.cut_off():
                        yield event
                    raise told.problem
                if isinstance(told, Asked):
                    asking[told] = None
                for event in order.take(told):
                    yield event
                if isinstance(told, Answered) and not told.asked.answer.done():
                    told.asked.answer.set_result(told.answer)
                for asked, task in list(asking.items()):
                    can_ask = _can_be_asked(asked, order)
                    if task is None and can_ask:
                        times[asked.call_id] += 1
                        call = asked.call or order.call_of(asked)
                        if (n := times[asked.call_id]) > 1:  # each question has an id of its own
                            call = replace(call, call_id=f"{call.call_id}#{n}")
                        asking[asked] = self._ask(context, session, inbox, asked, call)
                    elif task is not None and not can_ask:
                        task.cancel()  # it is answered, or the agent did not wait for it
                        settle(asked)
                        del asking[asked]
        finally:
            tasks = [task for task in asking.values() if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(
        self,
        context: LoopContext,
        session: AgentSession,
        inbox: Inbox,
        asked: Asked,
        call: ToolCall,
    ) -> asyncio.Task[None]:
        async def ask() -> None:
            try:
                answer = await consent(
                    context,
                    call,
                    asked.reason,
                    asks_people=self._options.asks_people,
                    can_change=session.can_change,
                )
            except Exception as error:  # it is the run's, and comes out of it
                inbox.put(TurnOver(error))
            else:
                inbox.put(Answered(asked, answer))

        return asyncio.create_task(ask())

    @asynccontextmanager
    async def _starting(self, session: AgentSession) -> AsyncIterator[None]:
        limit_s = self._options.start_within_s
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError as error:
            words = f"; its last words: {session.last_words}" if session.last_words else ""
            raise LoopError(f"the agent did not start within {limit_s:g} seconds{words}") from error

    async def _summarise(self, context: LoopContext) -> list[LoopEvent]:
        """The answer of a throw-away session in an empty folder, where every call is refused."""
        briefing = fresh(await context.messages())
        inbox = Inbox()
        session = self._make_session(inbox)
        answer: list[str] = []
        with tempfile.TemporaryDirectory(prefix="perdure-summary-") as folder:
            try:
                async with self._starting(session):
                    environment = _environment(self._options, context)
                    await session.start(self._options.command, cwd=Path(folder), env=environment)
                    await session.create()
                session.prompt(briefing.parts)
                while True:
                    match await inbox.get(None):
                        case Said(kind="text", text=text):
                            answer.append(text)
                        case Asked() as asked:
                            settle(asked)
                        case CallTold(name=name):
                            raise LoopError(
                                f"the agent called a tool ({name}) while it was asked for a "
                                "summary; give one with summary=…"
                            )
                        case TurnOver(problem=problem):
                            if problem is not None:
                                raise problem
                            break
            finally:
                await session.close()
        text = "".join(answer)
        return [MessageStarted(), MessageDelta(text), MessageEnded((Text(text),))]
