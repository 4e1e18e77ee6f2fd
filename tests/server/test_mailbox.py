"""A mailbox takes one step after the other, each to its end, whatever becomes of one."""

from __future__ import annotations

import asyncio

import pytest

from perdure.server.session.mailbox import Mailbox


async def test_steps_are_taken_in_order_and_to_their_end_even_if_the_caller_leaves() -> None:
    mailbox, taken, gate = Mailbox(), list[int](), asyncio.Event()

    async def first() -> None:
        await gate.wait()
        taken.append(1)

    async def second() -> None:
        taken.append(2)

    caller = asyncio.create_task(mailbox.do(first))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    waiting = asyncio.create_task(mailbox.do(second))
    await asyncio.sleep(0)
    assert (taken, mailbox.is_busy, mailbox.has_more) == ([], True, True)
    gate.set()
    await waiting
    assert taken == [1, 2]
    await asyncio.sleep(0)
    assert not mailbox.is_busy


async def test_a_step_that_is_cancelled_from_inside_takes_no_other_with_it() -> None:
    mailbox = Mailbox()

    async def cut_off() -> None:
        raise asyncio.CancelledError

    async def answer() -> int:
        return 7

    bad, good = await asyncio.gather(
        mailbox.do(cut_off), mailbox.do(answer), return_exceptions=True
    )
    assert "cancelled from inside" in str(bad)
    assert isinstance(bad, RuntimeError)
    assert good == 7


async def test_who_waits_is_told_when_the_worker_itself_is_cancelled() -> None:
    mailbox = Mailbox()

    async def hang() -> None:
        await asyncio.Event().wait()

    callers = [asyncio.create_task(mailbox.do(hang)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert mailbox._worker is not None
    mailbox._worker.cancel()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 2
