"""Makes the golden snapshot of this version: `python -m tests.golden.make_snapshot FOLDER`.

It is run once for each schema of a state, `FOLDER/schema-N.json`, and its output is kept for ever.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from perdure.codec import Draft, seal
from perdure.entry import Message, Text
from perdure.fact import Claimed, LoopChosen, MessageQueued, TurnEnded, TurnStarted
from perdure.server.session.approval import WaitingCall
from perdure.server.session.state import SCHEMA, State, fold, place, take_snapshot

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def drafts() -> list[Draft]:
    """A session with a turn that crashed and is sent again, and messages that wait."""
    at = [AT + timedelta(seconds=n) for n in range(9)]
    return [
        LoopChosen(name="shell", id="1", created_at=at[0]),
        Claimed(epoch=1, node="a", id="2", created_at=at[1]),
        TurnStarted(turn_id="t1", message_id="m1", id="t1", created_at=at[2]),
        Message("user", (Text("héllo"),), id="m1", created_at=at[3]),
        Claimed(epoch=2, node="b", id="5", created_at=at[4]),
        TurnEnded(
            turn_id="t1",
            reason="interrupted",
            cause="cut off",
            crashed=True,
            id="6",
            created_at=at[5],
        ),
        TurnStarted(turn_id="t2", message_id="m1", resends="t1", id="t2", created_at=at[6]),
        MessageQueued(message_id="q1", parts=(Text("x" * 3000),), id="8", created_at=at[7]),
        MessageQueued(
            message_id="q2", parts=(Text("now"),), policy="interrupt", id="9", created_at=at[8]
        ),
    ]


def golden_state() -> State:
    """What these come to."""
    state = fold(State(), place(State(), [seal(draft, None) for draft in drafts()]))
    assert state.turn is not None
    waiting = (
        WaitingCall("c1", 7, "pay", {"sum": 5}, reason="it costs", expires_at=AT, approved=True),
        WaitingCall("c2", 8, "pay", None, is_elided=True),
    )
    return replace(  # beside the journal, which is that of the first schema
        state,
        owner="anna",
        runtime="local",
        remembered=(("agent", {"session": "s-1"}),),
        has_started=True,
        turn=replace(state.turn, waiting=waiting),
    )


if __name__ == "__main__":
    data = take_snapshot(golden_state(), "0" * 32).data
    (Path(sys.argv[1]) / f"schema-{SCHEMA}.json").write_bytes(data)
