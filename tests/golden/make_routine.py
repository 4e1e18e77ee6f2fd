"""Makes the golden state of a routine: `python -m tests.golden.make_routine FOLDER`.

It is run once for each schema, `FOLDER/schema-N.json`, and its output is kept for ever.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure.codec import StoredEntry, seal
from perdure.entry import File, Text
from perdure.fact import (
    Fact,
    RoutineDefined,
    RoutineFired,
    RoutineMissed,
    RoutineRunEnded,
    RoutineRunResent,
    RoutineRunStarted,
    RoutineSkipped,
    RoutineSwitched,
)
from perdure.server.routine.state import SCHEMA, State, encode_state, fold

AT = datetime(2026, 1, 2, 3, 0, 0, 0, UTC)


def hour(n: int) -> datetime:
    return AT + timedelta(hours=n)


def due(n: int) -> str:
    return hour(n).isoformat().replace("+00:00", "Z")


def started(n: int, attempt: int = 1) -> RoutineRunStarted:
    return RoutineRunStarted(
        run_id=due(n),
        session_id="s",
        incarnation="i",
        message_id=f"m{n}",
        turn_id=f"t{n}.{attempt}",
        attempt=attempt,
    )


def facts() -> list[Fact]:
    """A routine with a run that is sent again, and one that was only claimed."""
    return [
        RoutineDefined(
            after=AT,
            parts=(Text("héllo"), File("text/plain", data=b"x")),
            cron="0 * * * *",
            zone="Europe/Berlin",
            session_id="s",
            incarnation="i",
            overlap="queue",
            deadline_s=60.0,
            jitter_s=5.0,
            resends=2,
            owner="ann",
        ),
        RoutineFired(routine_id="r", due_at=due(1)),
        started(1),
        RoutineRunEnded(run_id=due(1), reason="completed", turn_id="t1.1"),
        RoutineMissed(first_at=hour(2), last_at=hour(4), count=3),
        RoutineSkipped(due_at=hour(5), why="late"),
        RoutineFired(routine_id="r", due_at=due(6), cause="catch_up"),
        started(6),
        RoutineRunResent(run_id=due(6), turn_id="t6.1", attempt=2),
        RoutineFired(routine_id="r", due_at=due(7), run_id="asked-1", cause="asked"),
        RoutineSwitched(status="paused", why="a rest"),
    ]


def golden_state() -> State:
    """What these come to."""
    entries = [seal(fact, None) for fact in facts()]
    return fold(State(), [StoredEntry(n, entry) for n, entry in enumerate(entries, 1)])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"schema-{SCHEMA}.json").write_bytes(encode_state(golden_state()))
