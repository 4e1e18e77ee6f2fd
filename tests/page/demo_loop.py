"""A loop for pictures: it answers what people would ask, and plays any script as others do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from perdure.loop import Loop, LoopContext, LoopEvent
from perdure.testing import Call, Fail, Say, scripted
from perdure.testing.scripted_loop import Step, read_script

FOUND = """Here is what I found. The retry never gave up its lock, so the **second writer** waited.

## What changed

1. The lock is taken with a bound
2. A writer that is refused *replays* and tries again
3. `append_entries` says which of the three errors it was

```python
async def append(self, entries: Sequence[Draft], *, expected_seq: int) -> Receipt:
    \"\"\"Stores all of them or none.\"\"\"
    async with self._lock:
        if expected_seq != self.last_seq:
            raise AppendConflictError(self.session_id, expected_seq, self.last_seq)
        return await self._store(entries)  # 42 lines
```

| store | an append | after a crash |
|---|---|---|
| memory | 4 µs | nothing |
| SQLite | 1.2 ms | the whole batch, or none of it |

> A retry is not a rollback.

See [the format](https://example.org/format) for the rest."""

ANSWERS: dict[str, Sequence[Step]] = {
    "writers": (
        Say(
            "I will read the store first.",
            reasoning="The lock is probably held across the await: the writer, then the lease.",
            calls=[
                Call("read_file", {"path": "src/store/writer.py"}, output=["class Writer:\n"]),
                Call("grep", {"pattern": "acquire", "path": "src"}, output=["no file"], fails=True),
            ],
        ),
        Say(FOUND),
    ),
    "power loss": (Say("After a power loss the batch is there, or it is **not**."),),
    "publish": (
        Say(
            "I run the tests first.",
            calls=[Call("pytest", {"args": "-x -q"}, output=["......\n"] * 3, hangs=True)],
        ),
    ),
    "nightly": (Fail("the model's provider answered 529: overloaded, try again later"),),
}


def demo() -> Loop:
    """Answers by the first key that the message holds."""

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        given = context.input or await context.messages()
        asked = [message for message in given if message.role == "user" and not message.meta]
        text = asked[-1].text if asked else ""
        steps = next((ANSWERS[key] for key in ANSWERS if key in text), None)
        play = scripted(*(read_script(text) if steps is None else steps))()
        async with aclosing(play(context)) as events:
            async for event in events:
                yield event

    return loop
