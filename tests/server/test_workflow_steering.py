"""A workflow is paused, approved, cancelled, and tried again or passed over step by step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.errors import (
    StepNotFoundError,
    WorkflowConflictError,
)
from perdure.server.workflow.look import WorkflowLook
from perdure.stores.memory import MemoryStore
from perdure.workflow import Check, Retry, Workflow
from tests.server.workflow_house import (
    FAIL,
    HANG,
    ONCE,
    brief,
    living,
    step,
    timed,
    until,
)


async def test_a_paused_workflow_starts_nothing_until_it_is_resumed() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG), step("b"))
        look = await house.workflows.pause("w", why="lunch", by="anna")
        assert (look.status, look.why) == ("paused", "lunch")
        await house.house.registry.stop(str((await house.of("a")).attempts[0].session_id))
        await house.rest()
        await house.workflows.skip("w", "a", reason="never mind")
        await house.rest()
        assert await house.said() == {"a": "skipped", "b": "pending"}


async def test_a_pause_survives_a_restart() -> None:
    store = MemoryStore()
    async with living(store) as house:
        await house.start(step("a", approve=True), step("b"))
        await house.workflows.pause("w")
        await house.workflows.answer("w", "a", approve=True)
        await house.rest()
    async with living(store) as house:
        assert await house.said() == {"a": "pending", "b": "pending"}
        await house.workflows.resume("w")
        await house.rest()
        assert (await house.look()).status == "completed"


async def test_an_approval_is_waited_for_and_a_refusal_fails_the_step() -> None:
    async with living(MemoryStore()) as house:
        look = await house.start(step("a"), step("b", approve=True), step("c", after=["a"]))
        assert look.status == "waiting"
        assert await house.said() == {"a": "completed", "b": "waiting", "c": "completed"}
        with pytest.raises(WorkflowConflictError, match="does not wait"):
            await house.workflows.answer("w", "a", approve=True)
        await house.workflows.answer("w", "b", approve=False, reason="not today", by="anna")
        await house.rest()
        b = await house.of("b")
        assert (b.status, b.reason, b.cause, b.attempts) == ("failed", "rejected", "not today", ())
        assert [(each.answer, each.by) for each in b.answers] == [("reject", "anna")]
        await house.workflows.retry("w", "b")
        await house.rest()
        assert (await house.look()).status == "waiting", "it is asked for again"
        await house.workflows.answer("w", "b", approve=True)
        await house.rest()
        assert (await house.look()).status == "completed"


async def test_cancelling_stops_what_runs_and_is_the_end() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG), step("b", HANG, after=[]), step("c"))
        await house.workflows.cancel("w", why="enough")
        await house.rest()
        look = await house.look()
        assert (look.status, look.why) == ("cancelled", "enough")
        assert await house.reasons("a") == await house.reasons("b") == ["stopped"]
        with pytest.raises(WorkflowConflictError, match="is cancelled"):
            await house.workflows.resume("w")
        again = await house.workflows.cancel("w")
        assert again.status == "cancelled"


async def test_cancelling_ends_a_check_that_runs(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    check = Check(command=f"echo $$ > {pid}; exec sleep 600")
    async with living(MemoryStore()) as house:
        workflow = Workflow("w", [step("a", check=check)])
        await house.workflows.create(workflow, workflow_id="w")
        await until(lambda: written(pid) != "")
        await house.workflows.cancel("w")
        await until(lambda: not len(house.keeper))
        assert (await house.look()).status == "cancelled"
        assert await house.reasons("a") == ["stopped"]
        assert not is_alive(int(written(pid)))


async def test_a_server_that_ends_ends_its_checks_and_the_next_one_checks_again(
    tmp_path: Path,
) -> None:
    ran = tmp_path / "ran"
    check = Check(command=f"echo x >> {ran}; [ $(wc -l < {ran}) = 2 ] || exec sleep 600")
    store = MemoryStore()
    async with asyncio.timeout(30):
        async with living(store) as house:
            workflow = Workflow("w", [step("a", check=check)])
            await house.workflows.create(workflow, workflow_id="w")
            await until(lambda: written(ran) != "")
            (task,) = house.keeper.find_kept("w").checks.values()
            house.rest = until_now  # type: ignore[method-assign]  # it does not end by itself
        assert task.cancelled()
        async with living(store) as house:
            assert (await house.look()).status == "completed"
    assert attempts_of(await house.look()) == 1
    assert written(ran) == "x\nx\n"


def written(path: Path) -> str:
    """What is in a file; nothing, where it is not there."""
    return path.read_text() if path.exists() else ""


def is_alive(pid: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{pid}").exists()


async def until_now() -> None:
    """Waits for nothing."""


def attempts_of(look: WorkflowLook) -> int:
    """How many attempts there were."""
    return sum(len(each.attempts) for each in look.steps)


async def test_a_cancelled_workflow_is_cancelled_by_the_next_process_too() -> None:
    store = MemoryStore()
    async with living(store) as house:
        await house.start(step("a", HANG))
        house.keeper.call = lambda *given, **options: None  # the process ends before it acts
        await house.workflows.cancel("w")
    async with living(store) as house:
        assert (await house.look()).status == "cancelled"


async def test_a_retry_from_a_step_runs_it_and_what_follows_with_a_fresh_budget() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a"), step("b"), step("c"), step("d", after=[]))
        await house.workflows.retry("w", "b")
        await house.rest()
        assert (await house.look()).status == "completed"
        counts = {each.step: len(each.attempts) for each in (await house.look()).steps}
        assert counts == {"a": 1, "b": 2, "c": 2, "d": 1}
        assert "A retry is not a rollback" in (await house.prompts("b"))[1]


async def test_what_runs_or_never_ran_is_not_retried() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG), step("b"))
        for name, status in (("a", "running"), ("b", "pending")):
            with pytest.raises(WorkflowConflictError, match=status):
                await house.workflows.retry("w", name)
        with pytest.raises(StepNotFoundError, match="there is no step 'z'; there are a, b"):
            await house.workflows.retry("w", "z")
        with pytest.raises(WorkflowConflictError, match="running"):
            await house.workflows.skip("w", "a", reason="no")


async def test_a_skipped_step_gives_nothing_and_holds_up_nothing() -> None:
    text = "{% if steps.a.skipped %}without it{% else %}{{ steps.a.output }}{% endif %}"
    async with living(MemoryStore()) as house:
        await house.start(step("a", FAIL, retry=ONCE), step("b", text))
        assert (await house.look()).status == "failed"
        await house.workflows.skip("w", "a", reason="not needed", by="anna")
        await house.rest()
        assert (await house.look()).status == "completed"
        assert await house.prompts("b") == ["without it"]
        assert (await house.of("a")).answers[0].reason == "not needed"


async def test_a_cancelled_workflow_goes_on_at_a_step_that_it_never_came_to() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a"), step("b", approve=True), step("c"))
        await house.workflows.cancel("w")
        await house.rest()
        assert (await house.look()).status == "cancelled"
        await house.workflows.retry("w", "b")
        await house.rest()
        assert (await brief(house)).status == "waiting"
        await house.workflows.answer("w", "b", approve=True)
        await house.rest()
        assert await house.said() == {"a": "completed", "b": "completed", "c": "completed"}
        assert await house.reasons("a") == ["completed"]


async def test_in_a_cancelled_workflow_nothing_is_said_to_be_tried_again() -> None:
    async with timed(), living(MemoryStore()) as house:
        await house.start(step("a", FAIL, retry=Retry(attempts=3, wait_s=100)))
        assert await house.said() == {"a": "retrying"}
        await house.workflows.cancel("w")
        await house.rest()
        a = await house.of("a")
        assert (a.status, a.reason, a.retry_at) == ("failed", "failed", None)
