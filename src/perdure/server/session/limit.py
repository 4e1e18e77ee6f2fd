"""What bounds sessions that are awake, and turns: numbers that an operator can set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """`config.Settings` has them with the same names; None is no limit.

    A snapshot is taken every `snapshot_every` entries. A turn is ended after `turn_limit_s`. A turn
    in which the server died `quarantine_after` times, those that it resends included, is failed. A
    session that nobody uses is offloaded after `idle_after_s`, or when more than `max_live_actors`
    are awake. A call that nobody approves within `approval_limit_s` counts as refused.
    A turn whose conversation takes up more than the share `compact_at` of its model's context
    window is begun with a compaction.
    """

    snapshot_every: int = 1000
    turn_limit_s: float | None = None
    quarantine_after: int = 3
    idle_after_s: float = 600.0
    max_live_actors: int = 1000
    approval_limit_s: float | None = None
    compact_at: float | None = 0.8
