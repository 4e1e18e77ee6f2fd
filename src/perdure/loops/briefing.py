"""What a command-line agent is told at the beginning of a turn, and which session of its own fits.

The agent keeps a session of its own; the transcript of record is ours. With each turn a `Memory` is
remembered: the agent's session, the newest message of ours that it has seen, and how many
messages it then gave. Where our transcript still begins like that, its session is reloaded and told
only what is new. Otherwise (an edit, a branch, a fork, a compaction, a resend) its session does not
fit any more: a new one is started, and told our transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from perdure.encoding import encode
from perdure.entry import (
    File,
    Json,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.view import beginning, ending

MOST_CHARS = 200_000
"""How much of our transcript a new session is told, from its newest end."""

_CALL_CHARS = 4_000
_BEFORE = (
    "This conversation began elsewhere. What follows, up to the line END OF TRANSCRIPT, is its "
    "record so far; the work in it has been done. Go on from there.\n\n"
)
_AFTER = "\n\nEND OF TRANSCRIPT"
_CUT_OFF = (
    "Your turn before this was cut off. What follows, up to the line END OF RECORD, is what is "
    "recorded of it; of anything else that you remember, nobody has seen the result.\n\n"
)
_AFTER_CUT_OFF = "\n\nEND OF RECORD"
_GO_ON = "Go on."


class Memory(Struct, frozen=True, omit_defaults=True):
    """What is remembered of an agent's session.

    `begins` is the first message of the view that it was told, `seen` the newest; `outputs` is how
    many it gave after it, None while its turn has no end.
    """

    session: str
    begins: str
    seen: str
    outputs: int | None = None

    @classmethod
    def read(cls, value: Json) -> Memory | None:
        """It, from what was remembered; None where that is none."""
        match value:
            case {"session": str(session), "begins": str(begins), "seen": str(seen)}:
                outputs = value.get("outputs")
                return cls(session, begins, seen, outputs if isinstance(outputs, int) else None)
        return None

    def written(self) -> Json:
        """It, to be remembered."""
        known: dict[str, Json] = {
            "session": self.session,
            "begins": self.begins,
            "seen": self.seen,
        }
        return known if self.outputs is None else {**known, "outputs": self.outputs}


class Briefing(Struct, frozen=True):
    """What to tell: in the agent's session `session`, or, where none fits, in a new one."""

    session: str | None
    parts: Sequence[Text | File]
    begins: str
    seen: str

    def remembered(self, session: str, outputs: int | None = None) -> Json:
        """What is to be remembered once this was told in `session`."""
        return Memory(session, self.begins, self.seen, outputs).written()


def brief(messages: Sequence[Message], memory: Memory | None) -> Briefing:
    """What the agent is told of the model view, whose newest message is the last that it sees."""
    begins, seen = _ends(messages)
    if memory is not None and (known := _known(messages, memory)) is not None:
        told = list(messages[known:])
        if memory.outputs is None:
            cut = next((n for n, each in enumerate(told) if each.role == "user"), len(told))
            record = _rendered(told[:cut])
            begin = [Text(_CUT_OFF + record + _AFTER_CUT_OFF)] if record else []
            return Briefing(memory.session, (*begin, *_news(told[cut:])), begins, seen)
        return Briefing(memory.session, tuple(_news(told)), begins, seen)
    return fresh(messages)


def fresh(messages: Sequence[Message]) -> Briefing:
    """What a new session is told: the record, and what nobody has answered yet."""
    first = len(messages)
    while first and messages[first - 1].role == "user":
        first -= 1
    record = _rendered(messages[:first])
    begin = [Text(_BEFORE + record + _AFTER)] if record else []
    return Briefing(None, (*begin, *_news(messages[first:])), *_ends(messages))


def _ends(messages: Sequence[Message]) -> tuple[str, str]:
    return (messages[0].id, messages[-1].id) if messages else ("", "")


def _known(messages: Sequence[Message], memory: Memory) -> int | None:
    """How many messages the agent's session has; None where it is another conversation by now."""
    place = next((n for n, each in enumerate(messages) if each.id == memory.seen), None)
    if place is None or messages[0].id != memory.begins:
        return None
    if memory.outputs is None:
        # without what it did, its turn is not on this path: it is sent again, or was never begun
        has_outputs = place + 1 < len(messages) and messages[place + 1].role != "user"
        return place + 1 if has_outputs else None
    outputs = messages[place + 1 : place + 1 + memory.outputs]
    if len(outputs) < memory.outputs or any(each.role == "user" for each in outputs):
        return None
    return place + 1 + memory.outputs


def _news(messages: Sequence[Message]) -> Iterable[Text | File]:
    """Messages that the agent has not seen, as the parts of a prompt."""
    told: list[Text | File] = []
    for message in messages:
        if message.role == "user":
            told += [part for part in message.parts if isinstance(part, Text | File)]
        elif rendered := _rendered([message]):
            told.append(Text(rendered))
    return told or [Text(_GO_ON)]


def _rendered(messages: Sequence[Message]) -> str:
    """Messages as a person would read them; the newest `MOST_CHARS` characters."""
    blocks: list[str] = []
    size = 0
    for message in reversed(messages):
        block = _block(message)
        if size + len(block) > MOST_CHARS:
            blocks.append("[what came before is left out]" + ending(block, MOST_CHARS - size))
            break
        size += len(block)
        blocks.append(block)
    return "\n\n".join(block for block in reversed(blocks) if block)


def _block(message: Message) -> str:
    lines = [line for part in message.parts if (line := _line(part))]
    if not lines:
        return ""
    return "\n".join([f"[{message.role}]", *lines, *(["[cut off]"] if message.end else [])])


def _line(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Reasoning() | OpaquePart():
            return ""
        case ToolCall(name=name, arguments=arguments):
            return f"called {name} with {_cut(encode(arguments).decode())}"
        case ToolResult():
            how = "interrupted" if part.interrupted else "failed" if part.is_error else "gave"
            return f"{part.name or 'the call'} {how}: {_cut(part.text)}"
        case File():
            return f"[a file: {part.name or part.media_type}]"
    raise AssertionError(part)


def _cut(text: str) -> str:
    half = _CALL_CHARS // 2
    if len(text) <= _CALL_CHARS:
        return text
    return f"{beginning(text, half)} […] {ending(text, half)}"
