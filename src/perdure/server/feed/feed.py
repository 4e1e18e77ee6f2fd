"""Tells viewers of sessions what is new: each `seq` once, in order, without a gap.

One follower for each watched session reads the store and encodes; all viewers share its bytes. A
session that nobody watches costs nothing and holds nothing. A viewer that leaves stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from perdure import clock
from perdure.events import MessageUpdate
from perdure.server.feed import frame
from perdure.server.feed.cursor import Cursor
from perdure.server.feed.follower import Follower
from perdure.server.feed.frame import Changing
from perdure.server.feed.ring import Item, Ring
from perdure.server.feed.viewer import Viewer, Watched
from perdure.server.journal import JournalStore
from perdure.server.session.look import SessionLook
from perdure.server.session.partial import Partial
from perdure.store import Look

LISTING_BYTES = 256 * 1024
SETTLE_S = 1
GATHER_S = 0.1
"""How long changes of what is around the sessions are gathered before they are told."""

RETRY_MS, RETRY_SPREAD_MS = 1000, 4000
"""When viewers come back whose streams the server ended: so late, and spread over so long."""


_Scope = tuple[str, str | None]
"""Of a listing: where the server is mounted, and whose sessions it has (None: all)."""


class _Change(NamedTuple):
    kind: Changing
    name: str
    owner: str | None
    all_see: bool

    def frame(self, _: str) -> bytes:
        return frame.changed(self.kind, self.name)

    def is_seen_by(self, scope: str | None) -> bool:
        return self.all_see or scope is None or scope == self.owner


class Feed:
    """The streams of one server. Everything happens on one event loop."""

    def __init__(
        self,
        store: JournalStore,
        *,
        heartbeat_s: float = 10,
        backlog_bytes: int = 4 * 1024 * 1024,
        ring_bytes: int = 1024 * 1024,
    ) -> None:
        self._store = store
        self._heartbeat_s = heartbeat_s
        self._backlog_bytes = backlog_bytes
        self._ring_bytes = ring_bytes
        # By session id, then by incarnation and by where the server is mounted.
        self._followers: dict[str, dict[tuple[str, str], Follower]] = {}
        self._viewers: dict[Viewer, None] = {}  # sets in the order of coming
        self._listings: dict[_Scope, Ring] = {}
        self._listing_viewers: dict[Viewer, _Scope] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._beats: asyncio.Task[None] | None = None
        self._ending: dict[asyncio.Task[None], None] = {}
        self._changed: dict[_Change, None] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._writes = self._written_bytes = self._cuts = 0

    @property
    def watched(self) -> frozenset[str]:
        """The ids of the sessions that somebody watches."""
        return frozenset(self._followers)

    @property
    def viewer_count(self) -> int:
        """How many viewers there are."""
        return len(self._viewers)

    @property
    def writes(self) -> int:
        """How many writes viewers were given, those that left included."""
        return self._writes + sum(viewer.writes for viewer in self._viewers)

    @property
    def written_bytes(self) -> int:
        """Their bytes."""
        return self._written_bytes + sum(viewer.written_bytes for viewer in self._viewers)

    @property
    def cuts(self) -> int:
        """How many viewers were cut off, because they did not read."""
        return self._cuts

    def delta(self, session_id: str, turn_id: str, update: MessageUpdate, /) -> None:
        """More text of a message in the making."""
        for follower in self._of(session_id):
            follower.delta(turn_id, update)

    def notice(self, session_id: str, turn_id: str, text: str, /) -> None:
        """What the loop of a turn wants its watchers to know now."""
        for follower in self._of(session_id):
            follower.notice(turn_id, text)

    def status(self, look: SessionLook, /) -> None:
        """A session's status, turn or queue changed."""
        for follower in self._of(look.session_id):
            follower.status(look)
        self._tell_listings(
            lambda root: frame.status(look, root),
            lambda owner: owner is None or owner == look.owner,
            look.session_id,
        )

    def changed(self, kind: Changing, name: str, owner: str | None, /, *, all_see: bool) -> None:
        """A routine, a runtime or a workflow of this owner is not what it was.

        Whoever has a listing, and sees it, is told so soon, however often it changes until then.
        """
        if not self._listings or self._is_closed:
            return
        self._changed[_Change(kind, name, owner, all_see)] = None
        if self._telling is None:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_later(GATHER_S, self._tell_changed)

    def _tell_changed(self) -> None:
        self._telling = None
        found, self._changed = self._changed, {}
        for change in found:
            self._tell_listings(change.frame, change.is_seen_by)

    def _tell_listings(
        self,
        make: Callable[[str], bytes],
        sees: Callable[[str | None], bool],
        session_id: str = "",
    ) -> None:
        """Pushes a frame, made for where the server is mounted, to the listings that see it."""
        sizes: dict[_Scope, int] = {}
        for (root, owner), ring in self._listings.items():
            if sees(owner):
                data = make(root)
                ring.push(Item(0, data, data, session_id))
                ring.trim()
                sizes[root, owner] = len(data)
        for viewer, scope in tuple(self._listing_viewers.items()):
            if scope in sizes:
                viewer.wake(sizes[scope])

    async def watch(
        self,
        wanted: Sequence[tuple[str, Cursor | None]],
        *,
        look: Callable[[str], Awaitable[SessionLook]],
        partials: Callable[[str], Sequence[Partial]],
        listing: bool = False,
        owner: str | None = None,
        root: str = "",
    ) -> Viewer:
        """A viewer of these sessions, each from its cursor on, or from now on where it is None.

        `listing` adds the changes of status of all sessions, or of those of one `owner`; `root` is
        where the server is mounted for this viewer. Give it back with `leave`.

        Raises:
            SessionNotFoundError, UnrecoverableError, StoreError: of one of the sessions.

        """
        both = [await self._look_twice(session_id, look) for session_id, _ in wanted]
        watched: list[Watched] = []
        for (session_id, cursor), (shown, found) in zip(wanted, both, strict=True):
            key = (found.session.incarnation, root)
            follower = self._followers.get(session_id, {}).get(key)
            if follower is None or follower.has_ended:
                for other in self._of(session_id):
                    other.hint()
                follower = Follower(
                    self._store,
                    found.session,
                    found.last_seq,
                    root=root,
                    ring_bytes=self._ring_bytes,
                    look=look,
                    partials=partials,
                )
                self._followers.setdefault(session_id, {})[key] = follower
            if cursor is None:
                watched.append(Watched(follower, found.last_seq, shown))
                continue
            fits = cursor.fits(found.session.incarnation, found.last_seq)
            watched.append(Watched(follower, cursor.seq if fits else 0, shown, is_void=not fits))
        scope = (root, owner)
        viewer = Viewer(
            self._store,
            watched,
            listing=self._listings.setdefault(scope, Ring(LISTING_BYTES)) if listing else None,
            backlog_bytes=self._backlog_bytes,
            has_bookmark=any(cursor is None for _, cursor in wanted),
        )
        if listing:
            self._listing_viewers[viewer] = scope
        self._add(viewer)
        return viewer

    async def _look_twice(
        self, session_id: str, look: Callable[[str], Awaitable[SessionLook]]
    ) -> tuple[SessionLook, Look]:
        """How a session is shown, and how it is stored after that: of one incarnation."""
        while True:
            shown, found = await look(session_id), await self._store.look(session_id)
            if shown.cursor.endswith(f".{found.session.incarnation}"):
                return shown, found

    def _add(self, viewer: Viewer) -> None:
        self._viewers[viewer] = None
        if self._unsubscribe is None:
            self._unsubscribe = self._store.subscribe(self._hint)
            for follower in viewer.followers:
                follower.hint()
        if self._beats is None:
            self._beats = asyncio.create_task(self._beat())
        if self._is_closed:
            viewer.turn_away(RETRY_MS)

    def leave(self, viewer: Viewer) -> None:
        """Lets a viewer go; with the last one of a session goes all that was held for it."""
        if viewer in self._viewers:
            del self._viewers[viewer]
            self._writes += viewer.writes
            self._written_bytes += viewer.written_bytes
            self._cuts += viewer.is_cut
        scope = self._listing_viewers.pop(viewer, None)
        if scope is not None and scope not in self._listing_viewers.values():
            del self._listings[scope]
        for follower in viewer.followers:
            follower.viewers.pop(viewer, None)
            if not follower.viewers:
                self._end(follower.close())
                self._forget(follower)
        if not self._viewers:
            if self._unsubscribe is not None:
                self._unsubscribe()
            if self._beats is not None:
                self._end(self._beats)
            self._unsubscribe = self._beats = None

    async def settle(self) -> None:
        """Waits, for a moment at most, until what happened by now is ready for its viewers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                for known in tuple(self._followers.values()):
                    for follower in tuple(known.values()):
                        await follower.until_rest()

    def end_streams(self) -> None:
        """Ends all streams, and those that come later at once; each viewer resumes by cursor.

        They are told when to come back, and not all at once.
        """
        self._is_closed = True
        for number, viewer in enumerate(tuple(self._viewers)):
            viewer.dismiss(RETRY_MS + number * 10 % RETRY_SPREAD_MS)

    async def close(self) -> None:
        """Lets all viewers go and waits until nothing of the feed runs any more; idempotent."""
        self.end_streams()
        if self._telling is not None:
            self._telling.cancel()
        for viewer in tuple(self._viewers):
            self.leave(viewer)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending[task] = None
        task.add_done_callback(lambda ended: self._ending.pop(ended, None))

    def _of(self, session_id: str) -> tuple[Follower, ...]:
        """The followers of a session; of one that was just made anew, of both incarnations."""
        return tuple(self._followers.get(session_id, {}).values())

    def _forget(self, follower: Follower) -> None:
        known = self._followers.get(follower.session.id, {})
        key = (follower.session.incarnation, follower.root)
        if known.get(key) is follower:
            del known[key]
        if not known:
            self._followers.pop(follower.session.id, None)

    def _hint(self, session_id: str) -> None:
        for follower in self._of(session_id):
            follower.hint()

    async def _beat(self) -> None:
        """Heartbeats, and a look for what no hint told."""
        while True:
            await clock.sleep(self._heartbeat_s)
            for session_id in tuple(self._followers):
                self._hint(session_id)
            for viewer in tuple(self._viewers):
                viewer.beat()
