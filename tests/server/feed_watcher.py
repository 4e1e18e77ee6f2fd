"""A viewer of the simulated feed: slow, often cut off, and it checks what it is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.codec import StoredEntry
from perdure.errors import PerdureError
from perdure.server.feed.cursor import parse_cursor
from perdure.server.feed.viewer import Viewer
from tests.server.feed_node import HEARTBEAT_S, IDS, Node, Stage


class Watcher:
    """A browser: it watches some sessions, over as many connections as it takes."""

    def __init__(self, stage: Stage, number: int) -> None:
        self._stage = stage
        self._dice = stage.dice
        self._number = number
        self._ids = self._dice.sample(IDS, self._dice.randrange(1, len(IDS) + 1))
        self.has_listing = self._dice.random() < 0.4
        self.at: dict[str, tuple[str | None, int]] = dict.fromkeys(self._ids, (None, 0))
        """The incarnation and `seq` that it has seen each session up to."""
        self.is_from_now_on = self._dice.random() < 0.2

    async def run(self) -> None:
        """Connects until it has seen everything."""
        while True:
            is_last = self._stage.is_over
            if await self._connect(is_last=is_last) and is_last:
                return
            await asyncio.sleep(self._dice.choice((0, 0, 0.1)))

    async def _connect(self, *, is_last: bool) -> bool:
        node = self._stage.node
        if node is None:
            await asyncio.sleep(0.2)
            return False
        cursors = [
            None
            if self.is_from_now_on
            else parse_cursor(str(seq) if inc is None else f"{seq}.{inc}")
            for inc, seq in self.at.values()
        ]
        try:
            viewer = await node.feed.watch(
                list(zip(self._ids, cursors, strict=True)),
                look=node.look,
                partials=node.partials,
                listing=self.has_listing,
            )
        except PerdureError:
            await asyncio.sleep(0.05)
            return False
        connection = Connection(self, node, viewer)
        cut = asyncio.Event()
        viewer.on_cut = cut.set
        try:
            return await self._read(connection, viewer, cut, is_last=is_last)
        finally:
            node.feed.leave(viewer)

    async def _read(
        self, connection: Connection, viewer: Viewer, cut: asyncio.Event, *, is_last: bool
    ) -> bool:
        patience = self._dice.randrange(1, 15)
        quiet = 0
        line = Line(connection, self._dice)
        if self._dice.random() < 0.5:
            viewer.direct = line
        while is_last or patience:
            patience -= 1
            data = await viewer.next()
            line.check()
            if data is None:
                return False
            if cut.is_set() or (not is_last and not patience and self._dice.random() < 0.5):
                data = data[: self._dice.randrange(len(data))]  # the connection broke here
            before = len(connection.statuses)
            grew = connection.take(data) or len(connection.statuses) > before or line.has_grown
            line.has_grown = False
            self.is_from_now_on &= any(inc is None for inc, _ in self.at.values())
            if cut.is_set():
                return False
            if is_last:
                quiet = 0 if grew else quiet + 1
                if quiet > 3:
                    await connection.check()
                    return True
            elif self._dice.random() < 0.2:
                await asyncio.sleep(self._dice.choice((0.01, 0.3, 2 * HEARTBEAT_S)))
        return True

    async def check(self) -> None:
        """Whether it has seen every session to its end."""
        for session_id, (incarnation, seq) in self.at.items():
            session = await self._stage.sea.load_session(session_id)
            journal = self._stage.sea.journals.get(session.incarnation, [])
            assert incarnation in {None, session.incarnation}
            assert seq == len(journal), f"{session_id} ends at {seq} of {len(journal)}"

    @property
    def ids(self) -> Sequence[str]:
        """The sessions that it watches."""
        return self._ids

    @property
    def journals(self) -> dict[str, list[StoredEntry]]:
        """What is true."""
        return self._stage.sea.journals

    @property
    def has_whole_ring(self) -> bool:
        """Whether no viewer can fall behind what is kept in memory."""
        return self._stage.weather.ring_bytes == 2**20


class Line:
    """A connection that can be written to directly, except when it is full."""

    def __init__(self, connection: Connection, dice: random.Random) -> None:
        self._connection = connection
        self._dice = dice
        self._error: Exception | None = None
        self.has_grown = False
        """Whether something was written since this was last said."""

    @property
    def is_free(self) -> bool:
        return self._dice.random() < 0.7

    def write(self, data: bytes) -> None:
        assert data
        self.has_grown = True
        try:
            self._connection.take(data)
        except Exception as error:  # whoever writes would take it for a failure of its own
            self._error = self._error or error

    def check(self) -> None:
        """Raises what was found while something was written."""
        if self._error is not None:
            raise self._error


class Connection:
    """What one connection was told, checked as it comes."""

    def __init__(self, watcher: Watcher, node: Node, viewer: Viewer) -> None:
        self._watcher = watcher
        self._node = node
        self._rest = b""
        self._texts: dict[str, dict[int, str]] = {}
        self._stored: set[str] = set()
        self._gone: set[str] = set()
        self._frames = 0
        self._first_told = len(node.told)
        self.statuses: list[dict[str, Any]] = []
        self.listed: list[dict[str, Any]] = []
        self.incarnations = {x.session.id: x.session.incarnation for x in viewer.followers}
        self._voids = {
            session_id
            for session_id, (incarnation, _) in watcher.at.items()
            if incarnation not in {None, self.incarnations[session_id]}
        }

    def take(self, data: bytes) -> bool:
        """Takes bytes as they come; whether there was anything but heartbeats."""
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for each in frames:
            fields = dict(line.split(b": ", 1) for line in each.split(b"\n") if line != b":")
            if not fields or b"retry" in fields:
                continue
            if b"data" not in fields:
                self._bookmark(fields[b"id"].decode())
                continue
            self._frames += 1
            told = msgspec.json.decode(fields[b"data"])
            self._take(fields[b"event"].decode(), told, fields)
        return bool(frames) and frames != [b":"]

    def _take(self, name: str, data: dict[str, Any], fields: dict[bytes, bytes]) -> None:
        session_id = data["session_id"]
        if name == "status" and session_id not in self._watcher.ids:
            self.listed.append(data)
            return
        assert session_id not in self._gone, f"{name} after the end of {session_id}"
        match name:
            case "entry":
                self._entry(session_id, data, fields)
            case "delta" | "partial":
                self._text(session_id, name, data)
            case "void":
                self._voids.remove(session_id)
                self._watcher.at[session_id] = (None, 0)
            case "status":
                self._status(session_id, data)
            case _:
                raise AssertionError(name)

    def _entry(self, session_id: str, data: dict[str, Any], fields: dict[bytes, bytes]) -> None:
        assert session_id not in self._voids
        at = self._watcher.at
        incarnation, seq = at[session_id]
        mine = self.incarnations[session_id]
        assert incarnation in {None, mine}
        assert data["seq"] == seq + 1, f"{session_id} goes from {seq} to {data['seq']}"
        true = self._watcher.journals[mine][seq]
        assert fields[b"data"].endswith(true.raw[1:])
        at[session_id] = (mine, seq + 1)
        cursors = fields[b"id"].decode().split(",")
        assert cursors == [f"{at[x][1]}.{self.incarnations[x]}" for x in self._watcher.ids]
        self._stored.add(true.id)
        for part, said in self._texts.pop(true.id, {}).items():
            whole = data["parts"][part]["text"]
            assert whole.startswith(said)
            if self._watcher.has_whole_ring:
                assert whole == said

    def _text(self, session_id: str, name: str, data: dict[str, Any]) -> None:
        message_id = data["message_id"]
        assert message_id not in self._stored, "a text after its entry"
        known = self._texts.setdefault(message_id, {})
        if name == "partial":
            known[data["part"]] = ""
        assert data["offset"] == len(known.get(data["part"], ""))
        known[data["part"]] = known.get(data["part"], "") + data["text"]
        assert all(
            entry.id != message_id
            for entry in self._watcher.journals.get(self.incarnations[session_id], [])[
                : self._watcher.at[session_id][1]
            ]
        )

    def _status(self, session_id: str, data: dict[str, Any]) -> None:
        self.statuses.append(data)
        if "cursor" in data:
            assert data["cursor"].endswith(f".{self.incarnations[session_id]}")
        if data["status"] == "deleted":
            self._gone.add(session_id)
        elif data["status"] == "unrecoverable":
            assert "its sum is wrong" in data["cause"]
        elif self._frames > len(self._watcher.ids) and not self._watcher.is_from_now_on:
            assert data["last_seq"] <= self._watcher.at[session_id][1], "a status before its entry"

    def _bookmark(self, cursors: str) -> None:
        for session_id, cursor in zip(self._watcher.ids, cursors.split(","), strict=True):
            found = parse_cursor(cursor)
            _, seq = self._watcher.at[session_id]
            assert found.incarnation == self.incarnations[session_id]
            if not self._watcher.is_from_now_on:
                assert found.seq == (seq if session_id not in self._voids else 0)
            self._watcher.at[session_id] = (found.incarnation, found.seq)

    async def check(self) -> None:
        """At rest: the last status of each session is true, and the listing missed nothing."""
        for session_id in self._watcher.ids:
            last = [x for x in self.statuses if x["session_id"] == session_id][-1]
            true = await self._node.true_look(session_id)
            assert (last["status"], last["cursor"].split(".")[1]) == (
                true.status,
                self.incarnations[session_id],
            )
            assert last["turn"] is None
        told = [
            x for x in self._node.told[self._first_told :] if x.session_id not in self._watcher.ids
        ]
        if self._watcher.has_listing:
            assert [x["cursor"] for x in self.listed] == [x.cursor for x in told]
        else:
            assert self.listed == []
