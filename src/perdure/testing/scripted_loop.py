r"""A loop without a model: it plays a script, and keeps the Loop contract to the letter.

```python
loop = scripted(
    Say("Let me look.", calls=[Call("read", {"path": "a"}, output=["one\n", "two\n"])]),
    Say("Done.", reasoning="nothing left to do", delay_s=0.01),
)
```

`scripted_by_message` is a factory too: the script is the JSON in the user's message, so that a
server in another process (`--loop perdure.testing.scripted_loop:scripted_by_message`) can be told
what to do: `[{"do": "say", "text": "hello", "delay_s": 0.1}, {"do": "hang"}]`. All delays are of
`perdure.clock`, and so can be a manual one's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Literal, NamedTuple, assert_never

import msgspec
from msgspec import Struct, field

from perdure import clock
from perdure.entry import Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import LoopError
from perdure.loop import (
    Allowed,
    CallWaits,
    Loop,
    LoopContext,
    LoopEvent,
    LoopFactory,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
    Waits,
)
from perdure.loops.permission import refused_result, verdict_of


class Call(Struct, frozen=True, omit_defaults=True):
    """A tool call of a message; the calls of one message run in parallel.

    It puts out each piece of `output`, `delay_s` seconds before each, then ends after `duration_s`
    more with `result` (what it put out, if not given). `fails` makes that an error; `hangs` makes
    it never end. `runs` runs the tool of this name that stands around the run instead. `asks` waits
    for a person's answer, in mid-run, first. Without a `call_id` it gets one of its turn's.
    """

    name: str
    arguments: Json = None
    output: Sequence[str] = ()
    delay_s: float = 0.0
    duration_s: float = 0.0
    result: str | None = None
    fails: bool = False
    hangs: bool = False
    runs: bool = False
    asks: bool = False
    call_id: str | None = None
    limit_chars: int | None = None


class Say(Struct, tag="say", tag_field="do", frozen=True, omit_defaults=True):
    """One message: reasoning and text in deltas of `delta_chars`, `delay_s` before each; calls.

    `cut` ends the run in mid-message, after the deltas: it fails, or hangs until it is cancelled.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    delta_chars: int = 8
    delay_s: float = 0.0
    cut: Literal["fail", "hang"] | None = None
    provider: Json = None


class Wait(Struct, tag="wait", tag_field="do", frozen=True, omit_defaults=True):
    """Nothing happens for `delay_s` seconds."""

    delay_s: float


class Listen(Struct, tag="listen", tag_field="do", frozen=True, omit_defaults=True):
    """Waits until something joins the run, and says it back."""

    every_s: float = 0.01


class Fail(Struct, tag="fail", tag_field="do", frozen=True, omit_defaults=True):
    """The run fails with a LoopError of this text."""

    message: str = "the script says: fail"


class Hang(Struct, tag="hang", tag_field="do", frozen=True, omit_defaults=True):
    """Nothing happens until the run is cancelled."""


class Repeat(Struct, tag="repeat", tag_field="do", frozen=True, omit_defaults=True):
    """The steps, `times` times."""

    times: int
    steps: Sequence[Step] = field(default=())


_Single = Say | Wait | Listen | Fail | Hang
Step = Say | Wait | Listen | Fail | Hang | Repeat


class ScriptedLoop:
    """A loop factory: the first run plays the first script, and so on; the last one is repeated.

    `views` has what each run that began was given: its model view.
    """

    def __init__(self, *scripts: Sequence[Step]) -> None:
        self._scripts = scripts or ((Say("ok"),),)
        self._made = 0
        self.views: list[Sequence[Message]] = []

    def __call__(self) -> Loop:
        script = self._scripts[min(self._made, len(self._scripts) - 1)]
        self._made += 1

        async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
            self.views.append(await context.messages())
            async with aclosing(_Run(context).play(script)) as events:
                async for event in events:
                    yield event

        return loop


def scripted(*steps: Step) -> LoopFactory:
    """A loop factory whose every run plays these steps; a resumed one goes on where it waited."""
    return _steering(lambda: lambda context: _Run(context).play(steps))


def _steering(factory: Callable[[], Loop]) -> LoopFactory:
    vars(factory)["steers"] = True
    return factory


def scripted_by_message() -> Loop:
    """A loop that plays the script in the last user message: JSON, a list of steps or one step.

    Text that is not JSON is said back. A script that cannot be played fails the run with a
    LoopError that says where.
    """

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        given = context.input or await context.messages()
        asked = [message for message in given if message.role == "user" and not message.meta]
        steps = read_script(asked[-1].text) if asked else (Say("nothing was asked"),)
        async with aclosing(_Run(context).play(steps)) as events:
            async for event in events:
                yield event

    return loop


scripted_by_message = _steering(scripted_by_message)


def read_script(text: str) -> Sequence[Step]:
    """The steps of a script's JSON; other text makes one step that says it.

    Raises:
        LoopError: it is JSON, and no script.

    """
    if not text.lstrip().startswith(("[", "{")):
        return (Say(text),)
    try:
        found = msgspec.json.decode(text, type=list[Step] | Step)
    except msgspec.DecodeError as error:
        raise LoopError(f"this is no script: {error}") from error
    return found if isinstance(found, list) else (found,)


def write_script(*steps: Step) -> str:
    """The JSON of a script, for a message to `scripted_by_message`."""
    return msgspec.json.encode(steps).decode()


class _Run:
    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._calls = 0
        self._waits = False

    async def play(self, steps: Sequence[Step]) -> AsyncGenerator[LoopEvent, None]:
        if self._context.purpose == "summary":
            count = len(await self._context.messages())
            yield MessageEnded((Text(f"a summary of {count} messages"),))
            return
        for step in await self._left(_flat(steps)):
            if self._waits:
                return
            match step:
                case _Calls():
                    async with aclosing(self._run_calls(step.calls)) as events:
                        async for event in events:
                            yield event
                case Listen():
                    joined = await self._context.joined()
                    while not joined:
                        await clock.sleep(step.every_s)
                        joined = await self._context.joined()
                    yield MessageEnded([Text("\n".join(message.text for message in joined))])
                case Say():
                    async with aclosing(self._say(step)) as events:
                        async for event in events:
                            yield event
                case Wait():
                    await clock.sleep(step.delay_s)
                case Fail():
                    raise LoopError(step.message)
                case Hang():
                    await _hang()
                case _:
                    assert_never(step)

    async def _say(self, step: Say) -> AsyncGenerator[LoopEvent, None]:
        yield MessageStarted()
        parts: list[Part] = []
        if step.reasoning:
            for piece in _pieces(step.reasoning, step.delta_chars):
                await _pause(step.delay_s)
                yield MessageDelta(piece, part=0, kind="reasoning")
            parts.append(Reasoning(step.reasoning))
        if step.text:
            for piece in _pieces(step.text, step.delta_chars):
                await _pause(step.delay_s)
                yield MessageDelta(piece, part=len(parts))
            parts.append(Text(step.text))
        if step.cut == "fail":
            raise LoopError("the script says: fail in the middle of this message")
        if step.cut == "hang":
            await _hang()
        calls = {self._call_id(call): call for call in step.calls}
        if len(calls) < len(step.calls):
            raise LoopError("the script has two calls of one call_id in one message")
        parts.extend(ToolCall(call_id, c.name, c.arguments) for call_id, c in calls.items())
        yield MessageEnded(parts, provider=step.provider)
        async with aclosing(self._run_calls(calls)) as events:
            async for event in events:
                yield event

    async def _left(self, steps: Sequence[_Single]) -> Sequence[_Single | _Calls]:
        """What is left to play: all of it, or what follows the calls that waited, those first."""
        if not (answers := self._context.answers):
            return steps
        given = {message.id for message in self._context.input}
        messages = list(await self._context.messages())
        start = next((n for n, each in enumerate(messages) if each.id in given), -1) + 1
        said = sum(message.role == "assistant" for message in messages[start:])
        for n, step in enumerate(steps):
            said -= isinstance(step, Say | Listen)
            calls = {self._call_id(call): call for call in getattr(step, "calls", ())}
            if said <= 0:
                waited = {call_id: call for call_id, call in calls.items() if call_id in answers}
                return [_Calls(waited), *steps[n + 1 :]]
        return []

    async def _run_calls(self, calls: dict[str, Call]) -> AsyncGenerator[LoopEvent, None]:
        events: asyncio.Queue[LoopEvent | Exception] = asyncio.Queue()
        tools = [
            asyncio.create_task(self._run_call(ToolCall(call_id, c.name, c.arguments), c, events))
            for call_id, c in calls.items()
        ]
        try:
            left = len(tools)
            while left:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                left -= isinstance(event, ToolEnded | CallWaits)
                self._waits = self._waits or isinstance(event, CallWaits)
                yield event
        finally:
            for tool in tools:
                tool.cancel()
            await asyncio.gather(*tools, return_exceptions=True)

    async def _run_call(
        self, made: ToolCall, call: Call, events: asyncio.Queue[LoopEvent | Exception]
    ) -> None:
        try:
            await self._try_call(made, call, events)
        except Exception as error:  # the run's: it is raised there
            events.put_nowait(error)

    async def _try_call(
        self, made: ToolCall, call: Call, events: asyncio.Queue[LoopEvent | Exception]
    ) -> None:
        verdict = await verdict_of(self._context, made)
        if call.asks and isinstance(verdict, Allowed):
            verdict = await self._context.ask(made)
        match verdict:
            case Waits(reason=reason, arguments=changed):
                events.put_nowait(CallWaits(made.call_id, reason, changed))
            case Refused(reason=reason):
                events.put_nowait(ToolEnded(refused_result(made, reason)))
            case Allowed(arguments=arguments) if call.runs:
                events.put_nowait(ToolStarted(made.call_id))

                def show(text: str) -> None:
                    events.put_nowait(ToolDelta(made.call_id, text))

                result = await self._context.call_tool(made, arguments, show)
                events.put_nowait(ToolEnded(result))
            case Allowed():
                await _play_call(made.call_id, call, events)

    def _call_id(self, call: Call) -> str:
        self._calls += 1
        return call.call_id or f"{self._context.turn_id}-{self._calls}"


class _Calls(NamedTuple):
    """Calls that waited, with their answers now."""

    calls: dict[str, Call]


def _flat(steps: Sequence[Step]) -> list[_Single]:
    flat: list[_Single] = []
    for step in steps:
        if isinstance(step, Repeat):
            flat.extend(_flat(step.steps) * step.times)
        else:
            flat.append(step)
    return flat


async def _play_call(
    call_id: str, call: Call, events: asyncio.Queue[LoopEvent | Exception]
) -> None:
    events.put_nowait(ToolStarted(call_id))
    for piece in call.output:
        await _pause(call.delay_s)
        events.put_nowait(ToolDelta(call_id, piece))
    await _pause(call.duration_s)
    if call.hangs:
        await _hang()
    text = "".join(call.output) if call.result is None else call.result
    result = ToolResult(
        call_id,
        (Text(text),),
        name=call.name,
        is_error=call.fails,
        limit_chars=call.limit_chars,
    )
    events.put_nowait(ToolEnded(result))


def _pieces(text: str, size: int) -> list[str]:
    size = max(size, 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


async def _pause(delay_s: float) -> None:
    if delay_s > 0:
        await clock.sleep(delay_s)


async def _hang() -> None:
    await asyncio.get_running_loop().create_future()
