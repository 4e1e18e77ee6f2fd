"""Ids that follow from what they name, so that no crash doubles an attempt or its message."""

from __future__ import annotations

from perdure.server.keeping import identity
from perdure.server.session.idempotency import derive


def started_id_of(incarnation: str, step: str, attempt: int) -> str:
    """The id of the one `step_started` of this attempt."""
    return derive(incarnation, "step_started", step, str(attempt))


def ended_id_of(incarnation: str, step: str, attempt: int) -> str:
    """The id of the one `step_ended` of this attempt."""
    return derive(incarnation, "step_ended", step, str(attempt))


def message_key_of(incarnation: str, step: str, attempt: int) -> str:
    """The idempotency key of the message of this attempt."""
    return f"workflow:{incarnation}:{step}:{attempt}"


def check_key_of(incarnation: str, step: str, attempt: int) -> str:
    """The idempotency key of the check of this attempt."""
    return derive(incarnation, "check", step, str(attempt))


def session_id_of(workflow_id: str, incarnation: str, step: str, shared: str | None) -> str:
    """The id of a step's session, or of one that steps share; nobody's by chance."""
    name = step if shared is None else shared
    kind = "session" if shared is None else "shared"
    return f"{workflow_id}-{name}-{derive(incarnation, kind, name)[:8]}"


def fraction_of(incarnation: str, step: str, attempt: int) -> float:
    """A number from 0 to 1 that is this attempt's own, after a restart too."""
    return identity.fraction_of(f"{incarnation}/{step}/{attempt}")
