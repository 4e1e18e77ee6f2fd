"""A check that fails by itself says nothing of the step, and is over."""

from __future__ import annotations

import asyncio

from perdure.server.workflow.check import CheckOutcome, outcome_of_check


async def raising(error: BaseException) -> CheckOutcome:
    raise error


async def finished(error: BaseException) -> asyncio.Task[CheckOutcome]:
    task = asyncio.create_task(raising(error))
    await asyncio.wait([task])
    return task


async def test_what_a_check_raises_is_its_own_failure() -> None:
    found = outcome_of_check(await finished(ValueError("a toolbox broke")))
    assert (found.passed, found.could_run) == (False, False)
    assert "ValueError: a toolbox broke" in found.output


async def test_a_check_that_was_cut_off_could_not_run() -> None:
    found = outcome_of_check(await finished(asyncio.CancelledError()))
    assert (found.passed, found.could_run) == (False, False)
    assert "cut off" in found.output
