"""One line between two processes: whole messages both ways, and nobody waits for a dead peer.

Messages travel as *frames* of text over a wire: `.` and the text ends a message, `+` and the text
is a piece of one that goes on, and an empty frame is a heartbeat. Both sides send heartbeats, also
between the pieces of a message; a side that has heard nothing for `lost_after_s` gives the link up,
whatever its sockets say. A process that stood still itself, and so could not listen, gives its peer
that time once more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Protocol

from perdure.clock import monotonic

PIECE_CHARS = 1 << 16
MAX_MESSAGE_CHARS = 256 << 20
MAX_FRAME_BYTES = 1 << 20
"""No frame is larger: a piece of characters, in UTF-8."""

_BEATS = 3
_WAITING = 64


class WireClosedError(Exception):
    """Nothing goes over the wire any more; the text says why."""


class LinkLostError(Exception):
    """The link is over; `cause` says why."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class MessageTooBigError(Exception):
    """A message is larger than any that is taken; it was not sent, and the link is well."""


class Wire(Protocol):
    """What carries frames: a WebSocket, a socket. Sending and receiving happen at once."""

    async def send(self, frame: str) -> None:
        """Hands a frame over, in order.

        Raises:
            WireClosedError: it is closed.

        """
        ...

    async def receive(self) -> str:
        """The next frame.

        Raises:
            WireClosedError: there is none any more.

        """
        ...

    async def close(self, why: str) -> None:
        """Closes it, in bounded time, also where the peer is silent. Raises nothing."""
        ...


class Link:
    """A wire that is listened to from `start` on, until it is lost or closed."""

    def __init__(self, wire: Wire, *, lost_after_s: float) -> None:
        self._wire = wire
        self._lost_after_s = lost_after_s
        self._beat_s = lost_after_s / _BEATS
        self._messages: asyncio.Queue[str | None] = asyncio.Queue(_WAITING)
        self._turn = asyncio.Lock()
        self._sends = set[asyncio.Task[None]]()
        self._heard = monotonic()
        self._is_delivering = False
        self.was_silent = False
        """Whether it was lost because the peer said nothing for too long."""
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listens, and sends heartbeats."""
        self._heard = monotonic()
        self._tasks = [
            asyncio.create_task(each) for each in (self._listen(), self._beat(), self._watch())
        ]

    @property
    def cause(self) -> str | None:
        """Why the link is over; None while it is well."""
        return self._over.result() if self._over.done() else None

    async def until_lost(self) -> str:
        """Waits until it is over, and says why."""
        return await asyncio.shield(self._over)

    async def send(self, message: str) -> None:
        """Hands a message over; where the peer does not read this waits, until the link is lost.

        Raises:
            LinkLostError: the link is over; whether the message arrived is not known.
            MessageTooBigError: nothing was sent.

        """
        if len(message) > MAX_MESSAGE_CHARS:
            raise MessageTooBigError
        sending = asyncio.create_task(self._send_whole(message))
        self._sends.add(sending)
        sending.add_done_callback(self._sent)
        either: list[asyncio.Future[Any]] = [sending, self._over]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done() or sending.cancelled() or sending.exception() is not None:
            raise LinkLostError(self.cause or "it is over")

    async def receive(self) -> str:
        """The next message.

        Raises:
            LinkLostError: the link is over, and what came before has been given.

        """
        message = await self._messages.get() if self.cause is None else self._left()
        if message is None:
            self._messages.put_nowait(None)
            raise LinkLostError(self.cause or "it is over")
        return message

    def _left(self) -> str | None:
        return None if self._messages.empty() else self._messages.get_nowait()

    async def close(self, why: str) -> None:
        """Ends the link on this side; the peer hears why, if it still listens."""
        self._lose(why)
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _send_whole(self, message: str) -> None:
        """Sends all of a message, even where nobody waits for it any more."""
        async with self._turn:
            for start in range(0, max(len(message), 1), PIECE_CHARS):
                end = start + PIECE_CHARS
                flag = "." if end >= len(message) else "+"
                await self._send_frame(flag + message[start:end])

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sends.discard(sending)
        if not sending.cancelled():
            sending.exception()  # a lost link is told to who waits, and to nobody else

    async def _send_frame(self, frame: str) -> None:
        if self._over.done():
            raise LinkLostError(self._over.result())
        try:
            await self._wire.send(frame)
        except WireClosedError as error:
            self._lose(str(error))
            raise LinkLostError(self._over.result()) from error

    async def _listen(self) -> None:
        pieces, size = list[str](), 0
        try:
            while True:
                frame = await self._wire.receive()
                self._heard = monotonic()
                if not frame:
                    continue
                pieces.append(frame[1:])
                size += len(frame)
                if frame[0] not in ".+" or size > MAX_MESSAGE_CHARS + MAX_FRAME_BYTES:
                    raise WireClosedError("it sent what is no message")
                if frame[0] == ".":
                    self._is_delivering = True
                    await self._messages.put("".join(pieces))
                    self._is_delivering = False
                    self._heard = monotonic()
                    pieces, size = [], 0
        except WireClosedError as error:
            self._lose(str(error))

    async def _beat(self) -> None:
        with suppress(LinkLostError):
            while True:
                await self._send_frame("")
                await asyncio.sleep(self._beat_s)

    async def _watch(self) -> None:
        while True:
            wait_s = self._heard + self._lost_after_s - monotonic()
            if wait_s <= 0 and not self._is_delivering:
                self.was_silent = self.cause is None
                self._lose(f"nothing was heard for {self._lost_after_s:g} seconds")
                return
            wait_s = max(wait_s, self._beat_s)
            before = monotonic()
            await asyncio.sleep(wait_s)
            if monotonic() - before > wait_s + self._beat_s:
                self._heard = monotonic()  # we stood still, and so could not listen

    def _lose(self, why: str) -> None:
        if self._over.done():
            return
        self._over.set_result(why)
        with suppress(asyncio.QueueFull):
            self._messages.put_nowait(None)  # who waits for one wakes; a full queue has no waiter
        self._closing = asyncio.create_task(self._let_go(why))

    async def _let_go(self, why: str) -> None:
        current = asyncio.current_task()
        tasks = [task for task in (*self._tasks, *self._sends) if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wire.close(why)
