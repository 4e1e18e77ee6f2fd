"""How long to wait before a provider is asked again: longer each time, and not all at once."""

from __future__ import annotations

from perdure.clock import new_id
from perdure.errors import ModelError

FIRST_S = 0.5
MOST_S = 30.0
MOST_ASKED_S = 120.0
"""A provider that asks for a longer wait than this is not waited for."""


def wait_before(attempt: int, error: ModelError) -> float | None:
    """Seconds until the request that failed for the `attempt`th time is sent again; None: not.

    Twice as long each time, up to `MOST_S`, less up to a half by chance, so that many runs that
    failed at the same moment do not come back at the same moment. What the provider asked for
    (`Retry-After`) is the least.
    """
    if not error.is_transient:
        return None
    asked_s = error.retry_after_s or 0.0
    if asked_s > MOST_ASKED_S:
        return None
    wait_s = min(FIRST_S * 2.0 ** (attempt - 1), MOST_S)
    return max(asked_s, 0.0) + wait_s * (1 - _chance() / 2)


def _chance() -> float:
    """A number from 0 to 1, of the same source as ids: with a manual clock it is known."""
    return int(new_id()[-6:], 16) / 0xFFFFFF
