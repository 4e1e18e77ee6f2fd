"""One watched session: reads its journal once, for all who watch it.

On a hint it reads the store after the last `seq` it knows, encodes each new entry once, and wakes
its viewers. Texts and statuses wait until the entries before them were read, so a viewer never
sees them first; what waits of a message's text is told just before its entry, and never after it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Protocol

from perdure.codec import StoredEntry
from perdure.errors import (
    EntryNotFoundError,
    SessionNotFoundError,
    StoreError,
    UnrecoverableError,
)
from perdure.events import MessageUpdate
from perdure.fact import TurnEnded
from perdure.server.feed import frame
from perdure.server.feed.ring import Item, Ring
from perdure.server.feed.wire import EntryWriter
from perdure.server.folder import without_folders
from perdure.server.journal import JournalStore
from perdure.server.session.look import SessionLook
from perdure.server.session.partial import Partial
from perdure.store import Session

log = logging.getLogger(__name__)

PAGE = 64
"""Entries read from the store at a time."""


class Wakes(Protocol):
    """A viewer, as its followers see it."""

    def wake(self, size: int, /) -> None:
        """There are `size` new bytes, or the follower has ended."""


class _Text:
    """The text so far of one part of a message in the making."""

    __slots__ = ("kind", "length", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.length = 0

    def add(self, offset: int, text: str) -> str | None:
        """Takes what is new in a text; returns it, or None where all of it was known."""
        if offset > self.length:
            return None
        new = text[self.length - offset :]
        if new:
            self.pieces.append(new)
            self.length += len(new)
        return new or None


class _Making:
    """A message in the making, as far as viewers were shown it."""

    __slots__ = ("call_id", "parts", "turn_id")

    def __init__(self, turn_id: str, call_id: str | None) -> None:
        self.turn_id = turn_id
        self.call_id = call_id
        self.parts: dict[int, _Text] = {}

    def add(self, part: int, kind: str, offset: int, text: str) -> tuple[int, str | None]:
        """Takes what is new in a text: where it begins, and it, or None where it was known."""
        known = self.parts.setdefault(part, _Text(kind))
        return known.length, known.add(offset, text)


class _Delta:
    __slots__ = ("turn_id", "update")

    def __init__(self, turn_id: str, update: MessageUpdate) -> None:
        self.turn_id = turn_id
        self.update = update


class _Notice:
    __slots__ = ("text", "turn_id")

    def __init__(self, turn_id: str, text: str) -> None:
        self.turn_id = turn_id
        self.text = text


_News = _Delta | _Notice | SessionLook


class Follower:
    """The frames of one incarnation of a session, from when it was first watched."""

    def __init__(
        self,
        store: JournalStore,
        session: Session,
        seq: int,
        *,
        root: str,
        ring_bytes: int,
        look: Callable[[str], Awaitable[SessionLook]],
        partials: Callable[[str], Sequence[Partial]],
    ) -> None:
        self.session = session
        self._about = {"session_id": session.id}
        self.root = root
        self.writer = EntryWriter(session.id, root)
        self.seq = seq
        """The last `seq` that was read; its frame and those before are in the ring or gone."""
        self.floor = seq
        """The ring has every entry above this `seq`, up to `seq`."""
        self.ring = Ring(ring_bytes)
        self.viewers: dict[Wakes, None] = {}
        """Who watches, in the order of coming."""
        self.latest: SessionLook | None = None
        """The newest status that it knows."""
        self.has_ended = False
        self._store = store
        self._look = look
        self._waiting: list[_News] = []
        self._due: list[_News] = []
        self._making: dict[str, _Making] = {}
        for known in partials(session.id):
            making = self._making.setdefault(
                known.message_id, _Making(known.turn_id, known.call_id)
            )
            making.add(known.part, known.kind, 0, known.text)
        self.is_ready = False
        """Whether its status is known, and the texts so far are of messages without an entry."""
        self.last_words: bytes | None = None
        """The frame that a viewer gets who comes after the end, or when the journal is damaged."""
        self._hinted = True
        self._wakeup = asyncio.Event()
        self._wakeup.set()
        self._rest = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    def hint(self) -> None:
        """The journal may have grown, or be one of another incarnation now."""
        self._hinted = True
        self._rouse()

    def _rouse(self) -> None:
        self._rest.clear()
        self._wakeup.set()

    async def until_rest(self) -> None:
        """Returns when all that it was told by now is in the ring."""
        await self._rest.wait()

    def is_of(self, look: SessionLook) -> bool:
        """Whether this is a look at the incarnation that it follows."""
        return look.cursor.endswith(f".{self.session.incarnation}")

    def delta(self, turn_id: str, update: MessageUpdate) -> None:
        """More text of a message in the making."""
        if update.message_id not in self._making:
            self._hinted = True
        self._waiting.append(_Delta(turn_id, update))
        self._rouse()

    def notice(self, turn_id: str, text: str) -> None:
        """What the loop of a turn wants its watchers to know now."""
        self._waiting.append(_Notice(turn_id, text))
        self._rouse()

    def status(self, look: SessionLook) -> None:
        """The session's status changed; that of another incarnation is not told."""
        if not self.is_of(look):
            if look.status != "deleted":  # a deletion is told late, when there may be a new one
                self.hint()
            return
        if look.status == "deleted":
            self._end(frame.status(look, self.root))
            return
        if look.last_seq > self.seq:
            self._hinted = True
        self._waiting.append(look)
        self._rouse()

    def close(self) -> asyncio.Task[None]:
        """Stops following, since nobody watches; returns the task to cancel."""
        self.has_ended = True
        return self._task

    def cursor(self, seq: int) -> str:
        """The wire cursor of a `seq`."""
        return f"{seq}.{self.session.incarnation}"

    def partial_frames(self) -> list[bytes]:
        """The texts so far, as of the end of the ring."""
        return [
            frame.text(
                b"partial",
                self.writer.session_json,
                making.turn_id,
                message_id,
                part,
                0,
                "".join(text.pieces),
                text.kind,
                making.call_id,
            )
            for message_id, making in self._making.items()
            for part, text in sorted(making.parts.items())
        ]

    def entry_body(self, stored: StoredEntry) -> bytes:
        """The frame of an entry, without its id."""
        return frame.event(b"entry", self.writer.elided(stored))

    async def _follow(self) -> None:
        while not self.has_ended:
            await self._wakeup.wait()
            self._wakeup.clear()
            if self.has_ended:  # while it waited; its last words are told
                return
            try:
                await self._step()
                if not self._wakeup.is_set():
                    self._rest.set()
                continue
            except SessionNotFoundError:
                self._end(frame.ended(self.writer.session_json, "deleted"))
            except UnrecoverableError as error:
                if self.last_words is None:
                    log.error("cannot follow a session: %s", error, extra=self._about)
                    cause = without_folders(str(error))
                    data = frame.ended(self.writer.session_json, "unrecoverable", cause)
                    self.last_words = data
                    self._push([Item(0, data, data)])
            except StoreError as error:
                says = "cannot read a followed session, trying again: %s"
                log.warning(says, error, extra=self._about)
            except Exception:  # the outermost frame of this task
                log.exception(
                    "following session %r failed; its viewers are let go",
                    self.session.id,
                    extra=self._about,
                )
                self.has_ended = True
                self._wake(1)
            self._hinted = True  # what it could not read it reads on the next hint or beat

    async def _step(self) -> None:
        """Reads what is new, then tells what was waiting before it began to read."""
        self._due += self._waiting
        self._waiting.clear()
        if not self.is_ready:
            await self._drop_stored_texts()
            # What changed just before this follower was there to hear of it is in this look.
            latest = await self._look(self.session.id)
            if not self.is_of(latest):
                raise SessionNotFoundError(self.session.id)
            self.latest = latest
            self._hinted = True
        if self._hinted:
            self._hinted = False
            await self._read()
            if self.has_ended:
                return
            if self.last_words is not None:
                await self._tell_of_recovery()
        if not self.is_ready:
            self.is_ready = True
            self._wake(0)
        due, self._due = self._due, []
        self._push(self._tell(due))

    async def _tell_of_recovery(self) -> None:
        """The journal was damaged, and can be read again: says how the session is now.

        In the next step, which reads up to the entries that the status follows from.
        """
        look = await self._look(self.session.id)
        self.last_words = None
        self.status(look)

    async def _drop_stored_texts(self) -> None:
        """Drops texts of messages that were stored just before this follower began."""
        for message_id in list(self._making):
            try:
                await self._store.load_entry(self.session.id, message_id)
            except EntryNotFoundError:
                continue
            self._take_texts(message_id)
            self._making.pop(message_id, None)

    async def _read(self) -> None:
        """Reads to the end of the journal and pushes its entries, each after its own texts."""
        more = True
        while more:
            page = await self._store.page_entries(self.session.id, after=self.seq, limit=PAGE)
            if page.incarnation != self.session.incarnation:
                raise SessionNotFoundError(self.session.id)
            more = page.has_more and bool(page.entries)
            if not page.entries or self.has_ended:
                break
            items: list[Item] = []
            for stored in page.entries:
                if stored.type == "message":  # a turn's start has its turn's id, and comes first
                    items += self._tell(self._take_texts(stored.id))
                self._making.pop(stored.id, None)
                if stored.type == "turn_ended" and isinstance(view := stored.view, TurnEnded):
                    self._take_texts(view.turn_id)
                    self._drop_texts([view.turn_id])
                items.append(self._entry_item(stored))
            self.seq = page.entries[-1].seq
            self._push(items)

    def _take_texts(self, of: str) -> list[_News]:
        """Takes the texts that wait out, of a message or of a turn that has ended."""
        if not self._due and not self._waiting:
            return []
        taken = [each for each in (*self._due, *self._waiting) if _is_text_of(each, of)]
        if taken:
            self._due = [each for each in self._due if not _is_text_of(each, of)]
            self._waiting = [each for each in self._waiting if not _is_text_of(each, of)]
        return taken

    def _drop_texts(self, turns: Container[str]) -> None:
        self._making = {
            key: each for key, each in self._making.items() if each.turn_id not in turns
        }

    def _entry_item(self, stored: StoredEntry) -> Item:
        body = self.entry_body(stored)
        return Item(stored.seq, frame.identified(self.cursor(stored.seq), body), body)

    def _tell(self, waiting: Sequence[_News]) -> list[Item]:
        """The frames of texts and statuses; texts that follow each other are one."""
        frames: list[bytes] = []
        runs: list[tuple[_Delta, int, list[str]]] = []

        def flush() -> None:
            frames.extend(self._delta_frame(delta, at, "".join(new)) for delta, at, new in runs)
            runs.clear()

        for each in waiting:
            if isinstance(each, _Notice):
                flush()
                frames.append(frame.notice(self.writer.session_json, each.turn_id, each.text))
                continue
            if isinstance(each, SessionLook):
                flush()
                live = each.turn.turn_id if each.turn else None
                self._drop_texts({x.turn_id for x in self._making.values()} - {live})
                if self.latest is None or each.last_seq >= self.latest.last_seq:
                    self.latest = each
                    frames.append(frame.status(each, self.root))
                continue
            update = each.update
            making = self._making.setdefault(
                update.message_id, _Making(each.turn_id, update.call_id)
            )
            offset, new = making.add(update.part, update.kind, update.offset, update.text)
            if new is None:
                continue
            last = runs[-1][0].update if runs else None
            if last and (last.message_id, last.part) == (update.message_id, update.part):
                runs[-1][2].append(new)
            else:
                runs.append((each, offset, [new]))
        flush()
        return [Item(0, data, data) for data in frames]

    def _delta_frame(self, delta: _Delta, offset: int, text: str) -> bytes:
        update = delta.update
        return frame.text(
            b"delta",
            self.writer.session_json,
            delta.turn_id,
            update.message_id,
            update.part,
            offset,
            text,
            update.kind,
            update.call_id,
        )

    def _push(self, items: Iterable[Item]) -> None:
        size = 0
        for item in items:
            self.ring.push(item)
            size += len(item.frame)
        if not size:
            return
        for gone in self.ring.trim():
            self.floor = gone.seq or self.floor
        self._wake(size)

    def _wake(self, size: int) -> None:
        for viewer in tuple(self.viewers):
            viewer.wake(size)

    def _end(self, last: bytes) -> None:
        """Tells the last status; a new incarnation has a follower of its own."""
        if not self.has_ended:
            self.has_ended = True
            self.last_words = last
            self._push([Item(0, last, last)])
            self._rouse()


def _is_text_of(each: _News, of: str) -> bool:
    """Whether it is told before the entry with this id, or before the end of this turn."""
    if isinstance(each, _Notice):
        return of == each.turn_id
    return isinstance(each, _Delta) and of in {each.update.message_id, each.turn_id}
