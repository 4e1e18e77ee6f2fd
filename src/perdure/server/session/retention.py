"""Deletes sessions by the age of their last activity: off by default, and a dry run at first.

A session whose turn runs, whose age cannot be told, or that somebody uses in the meantime, stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from perdure import clock
from perdure.errors import PerdureError
from perdure.server.session.look import SessionLook
from perdure.server.session.registry import Registry

_log = logging.getLogger("perdure.server")

EVERY_S = 3600.0
PAGE = 200


async def find_expired(registry: Registry, age: timedelta) -> Sequence[SessionLook]:
    """The sessions that nothing happened in for so long; O(sessions). Wakes and writes nothing."""
    before = clock.now() - age
    found: list[SessionLook] = []
    looks, after = await registry.list(limit=PAGE)
    while True:
        found += [look for look in looks if _is_over(look) and look.last_activity < before]
        if after is None:
            return found
        looks, after = await registry.list(limit=PAGE, after=after)


def _is_over(look: SessionLook) -> bool:
    return look.status in {"idle", "interrupted", "failed"}


async def expire(registry: Registry, age: timedelta, *, dry_run: bool) -> Sequence[str]:
    """Deletes the sessions that are that old, or only says which; returns their ids."""
    expired: list[str] = []
    for look in await find_expired(registry, age):
        since = look.last_activity.isoformat()
        about = {"session_id": look.session_id}
        if dry_run:
            _log.info(
                "retention would delete session %r, last active %s",
                look.session_id,
                since,
                extra=about,
            )
        elif await registry.expire(look.session_id, clock.now() - age):
            _log.info(
                "retention deleted session %r, last active %s", look.session_id, since, extra=about
            )
        else:
            continue
        expired.append(look.session_id)
    return expired


async def keep_expiring(registry: Registry, age: timedelta, *, dry_run: bool) -> None:
    """Does that now and every hour, until it is cancelled."""
    while True:
        try:
            await expire(registry, age, dry_run=dry_run)
        except PerdureError as error:
            _log.warning("retention, trying again in %g s: %s", EVERY_S, error)
        except Exception:  # outermost frame: it goes on an hour later
            _log.exception("retention, trying again in %g s", EVERY_S)
        await clock.sleep(EVERY_S)


@asynccontextmanager
async def retaining(
    registry: Registry, days: float | None, *, dry_run: bool
) -> AsyncIterator[None]:
    """Deletes old sessions, or names them, inside the block; nothing where `days` is None."""
    if days is None:
        yield
        return
    task = asyncio.create_task(keep_expiring(registry, timedelta(days=days), dry_run=dry_run))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
