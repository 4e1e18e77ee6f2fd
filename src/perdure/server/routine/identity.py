"""Ids that follow from what they name, so that no crash doubles a start.

The claim of a due time has the id that follows from the routine's incarnation and the due time: a
store takes it once, whatever a clock or another node says later. The message of a run has a key
that follows from the same two, so that its session takes it once, too.
"""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.server.keeping.identity import fraction_of
from perdure.server.session.idempotency import derive


def run_id_of(due: datetime) -> str:
    """The id of the run of this due time, which is also how the due time is written."""
    return due.astimezone(UTC).isoformat().replace("+00:00", "Z")


def asked_id_of(incarnation: str, key: str) -> str:
    """The id of the run that was asked for with this key."""
    return f"asked-{derive(incarnation, 'asked', key)}"


def fired_id_of(incarnation: str, run_id: str) -> str:
    """The id of the one `routine_fired` of this run."""
    return derive(incarnation, "routine_fired", run_id)


def started_id_of(incarnation: str, run_id: str, attempt: int) -> str:
    """The id of the `routine_run_started` of this attempt."""
    return derive(incarnation, "routine_run_started", run_id, str(attempt))


def ended_id_of(incarnation: str, run_id: str) -> str:
    """The id of the one `routine_run_ended` of this run."""
    return derive(incarnation, "routine_run_ended", run_id)


def message_key_of(incarnation: str, run_id: str) -> str:
    """The idempotency key of the message of this run."""
    return f"routine:{incarnation}:{run_id}"


def new_session_id_of(routine_id: str, incarnation: str, run_id: str, due: datetime) -> str:
    """The id of the session of this run, where each has its own; nobody's by chance."""
    stamp = due.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{routine_id}-{stamp}-{derive(incarnation, 'session', run_id)[:8]}"


def jitter_of(incarnation: str, due: datetime) -> float:
    """A number from 0 to 1 that is this due time's own, after a restart too."""
    return fraction_of(f"{incarnation}{run_id_of(due)}")
