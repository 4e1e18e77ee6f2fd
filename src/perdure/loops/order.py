"""Puts what a command-line agent tells into the order that a journal needs.

Such an agent tells of its calls while they already run, in any order, some of them with arguments
that are still being written. A journal has each message before the calls in it start, and has their
results before the next message. So:

- A call is stored, with the text before it, as soon as its arguments are known: at once when the
  agent asks for permission, says that the call runs and shows it, or that it has ended; else after
  `GATHER_S`, so that parallel calls become one message; where the agent never says that the
  arguments are complete, once they have not changed for `QUIET_S`.
- While stored calls are open, what belongs to the next message is held back. Parallel calls that
  the agent tells of later are so stored later than they started.
- What the agent asks permission for while stored calls are open is asked before it is stored: the
  open one may be that of an agent which it started, and which asks.
- What is changed in the arguments of a call after it was stored is in its result's `provider`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from perdure.clock import monotonic
from perdure.encoding import kept
from perdure.entry import File, Json, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.errors import LoopError
from perdure.loop import (
    Allowed,
    LoopEvent,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    Refused,
    ToolDelta,
    ToolEnded,
    ToolStarted,
)
from perdure.loops.agent_told import Answered, Asked, CallTold, Said, Told, TurnOver

GATHER_S = 0.1
QUIET_S = 2.0
MOST_HELD_CHARS = 64 << 20

_NEVER = float("inf")
_UNNAMED = "tool"
_NO_RESULT = "the agent ended its turn without a result of this call; it may have had effects"


class Call:
    """A call of the turn, from when the agent first told of it until its result is yielded."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.chars = 0
        """How much output of it is kept."""
        self.stored: ToolCall | None = None
        self.asked: Asked | None = None
        self._told = CallTold(call_id)
        self._changed_at = monotonic()
        self._is_started = False
        self._more: list[str] = []
        self._shown = 0
        """How much of `output` was shown."""
        self._fresh: list[str] = []
        """What is still to be shown: of `output`, or of what was added to it."""
        self._refusal: str | None = None

    def update(self, told: CallTold) -> None:
        """Takes in what is new of it."""
        mine = self._told
        if told.arguments is not None and told.arguments != mine.arguments:
            self._take_arguments(told)
        mine.name = told.name or mine.name
        if told.output is not None:
            self._take_output(told.output)
        if told.more:
            self._more.append(told.more)
            self._fresh.append(told.more)
            self.chars += len(told.more)
        mine.provider = {**(mine.provider or {}), **(told.provider or {})} or None
        mine.is_whole = mine.is_whole or told.is_whole
        if told.state is not None and told.state != "pending" and not self.has_ended:
            mine.state = told.state
        if self.has_ended:
            self.asked = None  # the agent did not wait for the answer

    def _take_arguments(self, told: CallTold) -> None:
        mine = self._told
        if told.is_asked and mine.arguments is not None and not _extends(told, mine):
            mine.provider = {**(mine.provider or {}), "asked": told.arguments}
        else:
            self._changed_at = monotonic()
            mine.arguments = told.arguments

    def _take_output(self, output: Sequence[Text | File]) -> None:
        text = "".join(part.text for part in output if isinstance(part, Text))
        if fresh := text[self._shown :]:
            self._fresh.append(fresh)
        self._shown = max(self._shown, len(text))
        self.chars += _size(output) - _size(self._told.output or ())
        self._told.output = output

    def ask(self, asked: Asked) -> None:
        """The agent waits for permission."""
        self.asked = asked

    def answer(self, answered: Answered) -> None:
        """It has its answer."""
        match answered.answer:
            case Refused(reason=reason):
                self._refusal = reason
            case Allowed():
                self._refusal = None
        if self.asked is answered.asked:
            self.asked = None

    def lose(self) -> None:
        """The turn is over without its result."""
        self.asked = None
        if not self.has_ended:
            shown = self._told.output or () if self._told.state == "running" else ()
            self._told.output = (*shown, Text(_NO_RESULT))
            self._told.state = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether the agent has told its result."""
        return self._told.state in ("done", "failed")

    @property
    def is_pressing(self) -> bool:
        """Whether it has to be stored now."""
        return self.asked is not None or self.has_ended

    @property
    def storable_at(self) -> float:
        """When its arguments count as known; infinity while there are none."""
        told = self._told
        if self.is_pressing:
            return 0.0
        if told.state == "running" or (told.is_whole and told.arguments is not None):
            return self._changed_at + GATHER_S
        return self._changed_at + QUIET_S if told.arguments else _NEVER

    def store(self) -> ToolCall:
        """The call as it is stored, now."""
        self.stored = self.as_told()
        return self.stored

    def as_told(self) -> ToolCall:
        """The call as it is stored, or would be now."""
        if self.stored is not None:
            return self.stored
        told = self._told
        known = told.provider or {}
        shown = {name: kept(known[name]) for name in ("title", "kind") if name in known}
        name = told.name or _UNNAMED
        return ToolCall(self.call_id, name, kept(told.arguments), provider=shown or None)

    def progress(self) -> Iterator[LoopEvent]:
        """What is new of a stored call."""
        if self.asked is not None:
            return
        if not self._is_started:
            self._is_started = True
            yield ToolStarted(self.call_id)
        if self._told.state == "running" and self._fresh:
            fresh, self._fresh = "".join(self._fresh), []
            yield ToolDelta(self.call_id, fresh)

    def result(self, limit_chars: int | None) -> ToolResult:
        """Its result."""
        told, stored = self._told, self.stored
        assert stored is not None
        provider: dict[str, Json] = dict(told.provider or {})
        provider = {name: kept(value) for name, value in provider.items()}
        if (arguments := kept(told.arguments)) != stored.arguments:
            provider["input"] = arguments
        parts: tuple[Text | File, ...] = tuple(told.output or ())
        if self._more:
            parts = (*parts, Text("".join(self._more)))
        if self._refusal is not None and told.state == "failed":
            parts = (Text(f"refused: {self._refusal}"),)
        return ToolResult(
            self.call_id,
            parts,
            name=stored.name,
            is_error=told.state == "failed",
            limit_chars=limit_chars,
            provider=provider or None,
        )


def _size(output: Sequence[Text | File]) -> int:
    return sum(len(part.text if isinstance(part, Text) else part.data or b"") for part in output)


def _extends(told: CallTold, known: CallTold) -> bool:
    """Whether the arguments are those that are known, and more: they were still being written."""
    return (
        isinstance(told.arguments, dict)
        and isinstance(known.arguments, dict)
        and known.arguments.items() <= told.arguments.items()
    )


class _Passage:
    """Text of one kind in the message in the making."""

    def __init__(self, said: Said) -> None:
        self.kind = said.kind
        self.message_id = said.message_id
        self.pieces = [said.text]

    def part(self) -> Part:
        """It as a part."""
        text = "".join(self.pieces)
        return Text(text) if self.kind == "text" else Reasoning(text)


class Order:
    """One turn of an agent as loop events; `take` what it tells, and nothing twice."""

    def __init__(self, *, limit_chars: int | None) -> None:
        self.outputs = 0
        """How many messages were yielded: those of the assistant, and results."""
        self._limit_chars = limit_chars
        self._calls: dict[str, Call] = {}
        self._open: dict[str, Call] = {}
        self._over: set[str] = set()
        self._making: list[_Passage | Call] = []
        self._is_shown = False
        self._held: deque[Said | Call] = deque()
        self._held_chars = 0

    def wait_s(self) -> float | None:
        """How long to wait for more at most, before `take(None)` may have something to yield."""
        if self._open:
            return None
        times = [each.storable_at for each in self._making if isinstance(each, Call)]
        first = min(times, default=_NEVER)
        return None if first == _NEVER else max(first - monotonic(), 0.0)

    def is_stored(self, asked: Asked) -> bool:
        """Whether the call that is asked about is stored, so that it may be answered."""
        call = self._open.get(asked.call_id)
        return call is not None and call.asked is asked

    def is_held(self, asked: Asked) -> bool:
        """Whether it cannot be stored before others end, which may wait for the answer."""
        call = self._calls.get(asked.call_id)
        return call is not None and call.asked is asked and bool(self._open) and not call.stored

    def call_of(self, asked: Asked) -> ToolCall:
        """The call that is asked about, as it is stored or would be now."""
        return self._calls[asked.call_id].as_told()

    def take(self, told: Told | None) -> Iterator[LoopEvent]:
        """The loop events that follow from what was told, or from time that went by."""
        match told:
            case Said():
                self._hold(told)
            case CallTold() if told.is_first or told.is_asked or told.call_id not in self._over:
                self._update(told)
            case Asked() if told.call is None:
                self._call(told.call_id).ask(told)
            case Answered() if told.asked.call_id in self._calls:
                self._calls[told.asked.call_id].answer(told)
            case TurnOver():
                for call in self._calls.values():
                    call.lose()
        yield from self._go_on()
        if isinstance(told, TurnOver):
            yield from self._end_message(lambda _: True)

    def cut_off(self) -> Iterator[LoopEvent]:
        """What can still be kept of a turn that failed: the calls that were told of."""
        if not self._open and any(isinstance(each, Call) for each in self._making):
            yield from self._end_message(lambda _: True)

    def _call(self, call_id: str) -> Call:
        if call_id not in self._calls:
            self._over.discard(call_id)
            self._calls[call_id] = call = Call(call_id)
            self._hold(call)
        return self._calls[call_id]

    def _update(self, told: CallTold) -> None:
        call = self._call(told.call_id)
        before = call.chars
        call.update(told)
        self._keep(call.chars - before)

    def _hold(self, what: Said | Call) -> None:
        self._held.append(what)
        if isinstance(what, Said):
            self._keep(len(what.text))

    def _keep(self, chars: int) -> None:
        self._held_chars += chars
        if self._held_chars > MOST_HELD_CHARS:
            raise LoopError(
                f"the agent told more than {MOST_HELD_CHARS} characters that cannot be stored yet: "
                "its message, or its calls, have no end"
            )

    def _go_on(self) -> Iterator[LoopEvent]:
        while True:
            yield from self._progress()
            if self._open:
                return
            if self._is_due():
                yield from self._end_message(lambda call: call.storable_at <= monotonic())
            elif self._is_behind():
                yield from self._end_message(lambda call: call.storable_at < _NEVER)
            elif self._held:
                yield from self._put(self._held.popleft())
            else:
                return

    def _progress(self) -> Iterator[LoopEvent]:
        for call in list(self._open.values()):
            yield from call.progress()
            if call.has_ended:
                del self._open[call.call_id], self._calls[call.call_id]
                self._over.add(call.call_id)
                self._held_chars -= call.chars
                self.outputs += 1
                yield ToolEnded(call.result(self._limit_chars))

    def _is_due(self) -> bool:
        """Whether a call in the making has to be stored now."""
        now = monotonic()
        return any(isinstance(each, Call) and each.storable_at <= now for each in self._making)

    def _is_behind(self) -> bool:
        """Whether the agent has begun another message than the one in the making."""
        following = self._held[0] if self._held else None
        last = next((each for each in reversed(self._making) if isinstance(each, _Passage)), None)
        return (
            isinstance(following, Said)
            and last is not None
            and None not in (following.message_id, last.message_id)
            and following.message_id != last.message_id
        )

    def _put(self, what: Said | Call) -> Iterator[LoopEvent]:
        """Adds it to the message in the making."""
        if isinstance(what, Call):
            self._making.append(what)
            return
        last = self._making[-1] if self._making else None
        if isinstance(last, _Passage) and last.kind == what.kind:
            last.pieces.append(what.text)
        else:
            self._making.append(_Passage(what))
        if not self._is_shown:
            self._is_shown = True
            yield MessageStarted()
        yield MessageDelta(what.text, len(self._making) - 1, what.kind)

    def _end_message(self, belongs: Callable[[Call], bool]) -> Iterator[LoopEvent]:
        """Ends the message in the making; calls that do not belong to it begin the next one."""
        parts: list[Part] = []
        later: list[Call] = []
        calls: list[Call] = []
        for each in self._making:
            if isinstance(each, _Passage):
                self._held_chars -= sum(map(len, each.pieces))
                parts.append(each.part())
            elif belongs(each):
                calls.append(each)
                parts.append(each.store())
            else:
                later.append(each)
        self._making = []
        self._held.extendleft(reversed(later))
        if not parts:
            return
        if not self._is_shown:
            yield MessageStarted()
        self._is_shown = False
        self._open = {call.call_id: call for call in calls}
        self.outputs += 1
        yield MessageEnded(parts)
        yield from self._progress()
