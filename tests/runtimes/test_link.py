"""A link: messages whole and in order, a bound on silence, and nobody waits for a dead peer."""

from __future__ import annotations

import asyncio
import time

import pytest

from perdure.runtimes import link as links
from perdure.runtimes.link import Link, LinkLostError, MessageTooBigError, WireClosedError


class Pipe:
    """One end of a wire in memory. What is sent goes when it `moves`; silent, it is swallowed."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[str | None] = asyncio.Queue()
        self.other: Pipe = self
        self.sent: list[str] = []
        self.is_silent = False
        self.moves = asyncio.Event()
        self.moves.set()
        self.closed_because: str | None = None

    async def send(self, frame: str) -> None:
        await self.moves.wait()
        if self.closed_because is not None:
            raise WireClosedError("closed")
        self.sent.append(frame)
        if not self.is_silent:
            self.other.frames.put_nowait(frame)

    async def receive(self) -> str:
        frame = await self.frames.get()
        if frame is None:
            raise WireClosedError("closed by the other side")
        return frame

    async def close(self, why: str) -> None:
        self.closed_because = why
        self.other.frames.put_nowait(None)


def linked(lost_after_s: float = 30) -> tuple[Link, Link, Pipe, Pipe]:
    near, far = Pipe(), Pipe()
    near.other, far.other = far, near
    links = Link(near, lost_after_s=lost_after_s), Link(far, lost_after_s=lost_after_s)
    for link in links:
        link.start()
    return *links, near, far


async def test_messages_arrive_whole_and_in_order() -> None:
    here, there, near, _ = linked()
    sent = ["a", "", "é\n\u2028", "x" * (links.PIECE_CHARS * 3 + 1), "y" * links.PIECE_CHARS, "z"]
    await asyncio.gather(*(here.send(message) for message in sent))
    assert [await there.receive() for _ in sent] == sent
    assert max(map(len, near.sent)) == links.PIECE_CHARS + 1
    await here.close("over")
    with pytest.raises(LinkLostError):
        await there.receive()
    await there.close("over")


async def test_what_came_before_the_end_is_given_before_it() -> None:
    here, there, _, _ = linked()
    for message in ("a", "b"):
        await here.send(message)
    await here.close("done")
    assert await there.until_lost() == "closed by the other side"
    assert [await there.receive(), await there.receive()] == ["a", "b"]
    for _ in range(2):
        with pytest.raises(LinkLostError, match="closed by"):
            await there.receive()
    with pytest.raises(LinkLostError):
        await there.send("c")


async def test_heartbeats_keep_a_link_that_has_nothing_to_say() -> None:
    here, there, _, _ = linked(lost_after_s=0.3)
    await asyncio.sleep(1)
    assert (here.cause, there.cause) == (None, None)
    await here.close("over")
    await there.close("over")


async def test_silence_ends_a_link_in_time_and_wakes_who_waits() -> None:
    here, there, near, far = linked(lost_after_s=0.3)
    waiting = asyncio.create_task(here.receive())
    await asyncio.sleep(0.1)
    far.is_silent = True
    began = time.monotonic()
    with pytest.raises(LinkLostError, match="nothing was heard"):
        await waiting
    assert 0.15 < time.monotonic() - began < 1.5
    await here.close("again")
    assert near.closed_because == "nothing was heard for 0.3 seconds"
    assert here.was_silent
    assert not there.was_silent
    await there.close("over")


async def test_who_sends_to_a_peer_that_does_not_read_waits_only_until_the_link_is_lost() -> None:
    here, there, near, far = linked(lost_after_s=0.3)
    near.moves.clear()
    far.is_silent = True
    with pytest.raises(LinkLostError):
        await here.send("x" * 1_000_000)
    near.moves.set()
    await there.close("over")


async def test_a_message_that_nobody_waits_for_any_more_is_still_sent_whole() -> None:
    here, there, near, _ = linked()
    near.moves.clear()
    first = asyncio.create_task(here.send("x" * (links.PIECE_CHARS * 2)))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    near.moves.set()
    await here.send("second")
    assert await there.receive() == "x" * (links.PIECE_CHARS * 2)
    assert await there.receive() == "second"
    await here.close("over")
    await there.close("over")


async def test_a_message_that_is_too_big_is_refused_and_the_link_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "MAX_MESSAGE_CHARS", 10)
    here, there, _, _ = linked()
    with pytest.raises(MessageTooBigError):
        await here.send("x" * 11)
    await here.send("x" * 10)
    assert await there.receive() == "x" * 10
    await here.close("over")
    await there.close("over")


async def test_what_is_no_frame_ends_the_link() -> None:
    here, there, near, _ = linked()
    await near.send("!what")
    assert "no message" in await there.until_lost()
    await here.close("over")


@pytest.mark.may_block
async def test_a_process_that_stood_still_itself_gives_its_peer_another_chance() -> None:
    here, there, _, far = linked(lost_after_s=0.6)
    far.is_silent = True
    await asyncio.sleep(0.1)
    time.sleep(1.2)  # noqa: ASYNC251  # the whole process stands still
    far.is_silent = False
    await asyncio.sleep(0.5)
    assert here.cause is None
    await here.close("over")
    await there.close("over")
