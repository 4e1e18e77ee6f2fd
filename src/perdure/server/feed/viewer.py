"""One connection's view of some sessions: what it is sent next.

Each session is *caught up* from the store, by cursor, until the follower's ring has the rest; then
it is *live*: it joins the ring at its end, in one step, and is told the texts so far. A viewer
that falls behind the ring is caught up again. Only `seq` decides what it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from perdure.errors import SessionNotFoundError, StoreError, UnrecoverableError
from perdure.server.feed import frame
from perdure.server.feed.follower import PAGE, Follower
from perdure.server.feed.ring import Ring
from perdure.server.feed.write import Write
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.server.session.look import SessionLook

MAX_MISSED_BEATS = 2


class Watched:
    """One session of a viewer, which has seen it up to `seq`."""

    def __init__(
        self, follower: Follower, seq: int, look: SessionLook, *, is_void: bool = False
    ) -> None:
        self.follower = follower
        self.seq = seq
        self.look = look
        self.is_void = is_void
        self.position: int | None = None
        """Where it reads the ring; None while it is caught up from the store."""
        self.is_over = False
        self.is_damaged = False

    @property
    def cursor(self) -> str:
        """The wire cursor of what was sent."""
        return self.follower.cursor(self.seq)


class Direct(Protocol):
    """A connection that can be written to while nobody else writes to it."""

    @property
    def is_free(self) -> bool:
        """Whether it takes more without being waited for."""

    def write(self, data: bytes, /) -> None:
        """Writes some bytes."""


class Viewer:
    """What one connection is sent: `next` gives it write by write, and `close` lets it go.

    With a `direct` connection, what all viewers of a session get is written while `next` waits.

    A viewer that leaves more than `backlog_bytes` waiting while one write is not taken, or takes
    none for `MAX_MISSED_BEATS` beats, is cut off: `on_cut` is called, and it resumes by cursor.
    """

    def __init__(
        self,
        store: JournalStore,
        watched: Sequence[Watched],
        *,
        listing: Ring | None,
        backlog_bytes: int,
        has_bookmark: bool,
    ) -> None:
        self.on_cut: Callable[[], object] | None = None
        self.direct: Direct | None = None
        self.is_cut = False
        self.writes = self.written_bytes = 0
        """How many writes it was given, and their bytes."""
        self._store = store
        self._watched = watched
        self._alone = len(watched) == 1
        self._ids = {each.follower.session.id for each in watched}
        self._listing = listing
        self._listing_position = listing.end if listing is not None else 0
        self._backlog_bytes = backlog_bytes
        self._backlog = 0
        self._missed_beats = 0
        self._is_closed = False
        self._farewell: bytes | None = None
        self._is_sending = False
        self._is_dirty = False
        self._is_beat_due = False
        self._waiting: asyncio.Future[None] | None = None
        self._opening = [frame.status(each.look, each.follower.root) for each in watched]
        self._opening += [
            frame.void(each.follower.writer.session_json) for each in watched if each.is_void
        ]
        if watched and (has_bookmark or any(each.is_void for each in watched)):
            self._opening.append(frame.bookmark(self._cursors()))
        self._opening.reverse()
        self._first = 0
        """Whose turn it is to be written first."""
        for each in watched:
            each.follower.viewers[self] = None

    @property
    def followers(self) -> list[Follower]:
        """Of the sessions that it watches."""
        return [each.follower for each in self._watched]

    async def next(self) -> bytes | None:
        """The next bytes to send, as soon as there are some; None when there will be none."""
        self._is_sending = False
        self._backlog = self._missed_beats = 0
        while not self._is_closed:
            self._is_dirty = False
            if (shared := self._shared()) is not None:
                if shared:
                    self._is_sending = True
                    return self._counted(shared)
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
                continue
            write = Write()
            while self._opening and write.add(self._opening[-1]):
                self._opening.pop()
            if not self._opening:
                await self._collect(write)
                self._collect_listing(write)
            if self._is_beat_due:
                self._is_beat_due = False
                write.add(frame.HEARTBEAT)
            if self._farewell is not None:
                self._is_sending = self._is_closed = True
                farewell, self._farewell = self._farewell, None
                return self._counted(write.data + farewell)
            if write:
                self._is_sending = True
                return self._counted(write.data)
            if self._listing is None and all(each.is_over for each in self._watched):
                return None
            if not self._is_dirty and not self._is_closed:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
        last, self._farewell = self._farewell, None
        return last

    def _shared(self) -> bytes | None:
        """What is new in the ring of its only session, as all its viewers get it; b"": nothing.

        None where there is more to it than that. This is what a delivery costs.
        """
        if not self._alone or self._opening or self._is_beat_due or self._farewell is not None:
            return None
        watched = self._watched[0]
        follower, position = watched.follower, watched.position
        ring = follower.ring
        if position is None or position < ring.start or self._listing is not None:
            return None
        if position == ring.end:
            return None if follower.has_ended else b""
        data, watched.position, seq = ring.frames_from(position)
        watched.seq = seq or watched.seq
        return data

    def _counted(self, data: bytes) -> bytes:
        self.writes += 1
        self.written_bytes += len(data)
        return data

    def _write_directly(self, direct: Direct) -> bool:
        """Writes what is new, if that is all that is to be done; whether it was.

        It is not after the last frame that there will be: `next` has to end then.
        """
        if self._is_closed or not direct.is_free:
            return False
        shared = self._shared()
        if shared is None:
            return False
        if shared:
            direct.write(self._counted(shared))
        watched = self._watched[0]
        return watched.position == watched.follower.ring.end and not watched.follower.has_ended

    def wake(self, size: int, /) -> None:
        """There are `size` new bytes, or a follower has changed."""
        self._is_dirty = True
        if self._waiting is not None and not self._waiting.done():
            if self.direct is None or not self._write_directly(self.direct):
                self._waiting.set_result(None)
        elif self._is_sending:
            self._backlog += size
            if self._backlog > self._backlog_bytes:
                self._cut()

    def beat(self) -> None:
        """A heartbeat is due."""
        self._is_beat_due = True
        if self._is_sending:
            self._missed_beats += 1
            if self._missed_beats > MAX_MISSED_BEATS:
                self._cut()
        self.wake(0)

    def dismiss(self, retry_ms: int) -> None:
        """Ends it after one more write, whose last frame says when to come back."""
        if not self._is_closed and self._farewell is None:
            self._farewell = frame.retry(retry_ms)
            self.wake(0)

    def turn_away(self, retry_ms: int) -> None:
        """Ends it with nothing but the frame that says when to come back."""
        self._farewell = frame.retry(retry_ms)
        self.close()

    def expel(self) -> None:
        """Ends it now: what waits for it is not sent, and whoever does not read is cut off."""
        if self._is_sending:
            self._cut()
        else:
            self.close()

    def close(self) -> None:
        """Ends it: `next` returns None from here on."""
        self._is_closed = True
        self.wake(0)

    def _cut(self) -> None:
        if not self._is_closed:
            self.is_cut = self._is_closed = True
            if self.on_cut is not None:
                self.on_cut()

    def _cursors(self) -> str:
        return ",".join(each.cursor for each in self._watched)

    async def _collect(self, write: Write) -> None:
        """Adds what is new of each session; who did not fit in comes first the next time."""
        count = len(self._watched)
        first, self._first = self._first, 0
        for n in range(first, first + count):
            watched = self._watched[n % count]
            if watched.is_over:
                continue
            follower, ring, size = watched.follower, watched.follower.ring, write.size
            if watched.position is None or watched.position < ring.start:
                watched.position = None
                await self._catch_up(watched, write)
            elif watched.position < ring.end:
                self._take(watched, write)
            if follower.has_ended and watched.position == ring.end:
                watched.is_over = True
            if write.is_full:
                self._first = (n + (write.size > size)) % count
                return

    def _take(self, watched: Watched, write: Write) -> None:
        """Adds what the ring has after the viewer's position."""
        ring, position = watched.follower.ring, watched.position
        assert position is not None
        for item in ring.items_from(position):
            if not (
                self._add_entry(watched, item.seq, item.body, write)
                if item.seq
                else write.add(item.frame)
            ):
                break
            position += 1
        watched.position = position

    def _add_entry(self, watched: Watched, seq: int, body: bytes, write: Write) -> bool:
        """Adds an entry with the cursors after it; whether it fitted in."""
        before, watched.seq = watched.seq, seq
        if write.add(frame.identified(self._cursors(), body)):
            return True
        watched.seq = before
        return False

    async def _catch_up(self, watched: Watched, write: Write) -> None:
        """Adds a page of the journal, or joins the ring where it has the rest."""
        follower = watched.follower
        if watched.seq >= follower.floor or follower.has_ended:
            self._join(watched, write)
            return
        try:
            page = await self._store.page_entries(
                follower.session.id, after=watched.seq, before=follower.seq + 1, limit=PAGE
            )
        except SessionNotFoundError:
            follower.hint()
            return
        except UnrecoverableError as error:
            json = follower.writer.session_json
            if not watched.is_damaged:
                cause = without_folders(str(error))
                watched.is_damaged = write.add(frame.ended(json, "unrecoverable", cause))
            return  # and tries again at the next beat
        except StoreError:
            return  # likewise; who sends and looks is told why
        if page.incarnation != follower.session.incarnation:
            follower.hint()
            return
        for stored in page.entries:
            if not self._add_entry(watched, stored.seq, follower.entry_body(stored), write):
                break

    def _join(self, watched: Watched, write: Write) -> None:
        """Adds all that the ring has of entries, and the texts so far; live from here on."""
        follower = watched.follower
        if follower.has_ended:
            if follower.last_words is None or write.add(follower.last_words):
                watched.position = follower.ring.end
            return
        if watched.seq > follower.seq:
            follower.hint()
            return
        if not follower.is_ready:
            if follower.last_words is not None and not watched.is_damaged:
                watched.is_damaged = write.add(follower.last_words)
            return
        for item in follower.ring.items_from(follower.ring.start):
            if item.seq > watched.seq and not self._add_entry(watched, item.seq, item.body, write):
                return
        told = follower.partial_frames()
        latest = follower.latest
        if latest is not None and latest.last_seq > follower.seq:
            latest = None  # it could not read up to there
        if latest not in (None, watched.look) and latest.last_seq >= watched.look.last_seq:
            told.append(frame.status(latest, follower.root))
        elif watched.is_damaged:  # as this viewer was told, and it could read all of it since
            told.append(frame.status(latest or watched.look, follower.root))
        if follower.last_words is not None:
            told.append(follower.last_words)
        if not told or write.add(b"".join(told)):  # as of one moment, and so not apart
            watched.look = latest or watched.look
            watched.is_damaged = False
            watched.position = follower.ring.end

    def _collect_listing(self, write: Write) -> None:
        listing = self._listing
        if listing is None or self._listing_position == listing.end:
            return
        if self._listing_position < listing.start:  # it has to list anew
            self._is_closed = True
            return
        for item in listing.items_from(self._listing_position):
            if item.session_id not in self._ids and not write.add(item.frame):
                return
            self._listing_position += 1
