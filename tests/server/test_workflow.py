"""A workflow runs its steps in order, and tries them again under a budget."""

from __future__ import annotations

import json

import pytest

from perdure.codec import import_entry
from perdure.errors import (
    InvalidWorkflowError,
    UnrecoverableError,
    WorkflowConflictError,
    WorkflowExistsError,
    WorkflowNotFoundError,
)
from perdure.fact import TurnStarted
from perdure.stores.memory import MemoryStore
from perdure.workflow import Check, Input, Retry, Workflow
from tests.crash.step_loop import step_loop
from tests.server.house import Loops
from tests.server.workflow_house import (
    FAIL,
    HANG,
    ONCE,
    SAYS_WHY,
    SECOND_TIME,
    brief,
    living,
    move,
    step,
    timed,
)


async def test_steps_run_in_order_and_hand_on_what_they_said() -> None:
    async with living(MemoryStore()) as house:
        workflow = Workflow(
            "a workflow",
            [
                step("a", "hello {{ inputs.who }}"),
                step("b", "{{ steps.a.output }}, and {{ steps['a'].attempts }}"),
            ],
            inputs={"who": Input()},
        )
        await house.workflows.create(workflow, {"who": "you"}, workflow_id="w", owner="anna")
        await house.rest()
        look = await house.look()
        assert (look.status, look.owner) == ("completed", "anna")
        assert [each.attempts[0].output for each in look.steps] == ["hello you", "hello you, and 1"]
        assert [each.needs for each in look.steps] == [(), ("a",)]
        sessions = {str(each.attempts[0].session_id) for each in look.steps}
        assert len(sessions) == 2
        for session_id in sessions:
            assert (await house.house.registry.look(session_id)).owner == "anna"
            entries = await house.store.load_entries(session_id)
            (turn,) = (each.view for each in entries if isinstance(each.view, TurnStarted))
            assert turn.source == "workflow"


async def test_steps_that_do_not_wait_for_each_other_run_at_the_same_time() -> None:
    async with living(MemoryStore()) as house:
        await house.start(
            step("a", HANG), step("b", HANG, after=[]), step("c", HANG, after=[]), parallel=2
        )
        assert await house.said() == {"a": "running", "b": "running", "c": "pending"}
        await house.house.registry.stop(str((await house.of("a")).attempts[0].session_id))
        await house.rest()
        assert (await house.said())["a"] == "failed"
        assert (await house.of("a")).reason == "stopped", "what a person stopped is not tried again"
        assert (await house.said())["c"] == "pending", "nothing starts after a failure"


async def test_steps_of_one_session_share_it_one_after_the_other() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG, session="s"), step("b", after=[], session="s"))
        assert await house.said() == {"a": "running", "b": "pending"}
        session_id = str((await house.of("a")).attempts[0].session_id)
        await house.workflows.cancel("w")
        await house.rest()
        assert (await house.look()).status == "cancelled"
        assert (await house.house.registry.look(session_id)).turn is None


async def test_a_step_that_fails_is_tried_again_and_told_what_happened() -> None:
    calls = [{"name": "look", "arguments": {"at": "x"}, "result": "there it is"}]
    text = json.dumps([{"do": "say", "calls": calls}, {"do": "fail", "message": "broken"}])
    async with timed() as clock, living(MemoryStore()) as house:
        policy = Retry(attempts=3, wait_s=10, factor=3, jitter=0)
        look = await house.start(step("a", text, retry=policy))
        (a,) = look.steps
        assert (a.status, look.status) == ("retrying", "running")
        assert a.retry_at is not None
        assert (a.retry_at - clock.now()).total_seconds() == pytest.approx(10, abs=0.1)
        await move(house, clock, 9)
        assert len((await house.of("a")).attempts) == 1
        await move(house, clock, 2)
        assert len((await house.of("a")).attempts) == 2
        await move(house, clock, 60)
        assert await house.reasons("a") == ["failed"] * 3
        assert (await house.look()).why == "step 'a': failed: broken"
        _, second, third = await house.prompts("a")
        assert "A retry is not a rollback" in second
        assert 'look {"at":"x"}' in second
        assert "there it is" in second
        assert "failed. (broken)" in third
        assert second.endswith(text)


async def test_a_wait_survives_a_restart_and_is_not_begun_again() -> None:
    store = MemoryStore()
    async with timed() as clock:
        policy = Retry(attempts=2, wait_s=100, jitter=0)
        async with living(store) as house:
            await house.start(step("a", FAIL, retry=policy))
            await move(house, clock, 60)
        async with living(store) as house:
            assert await house.said() == {"a": "retrying"}
            await move(house, clock, 39)
            assert await house.reasons("a") == ["failed"]
            await move(house, clock, 2)
            assert await house.reasons("a") == ["failed", "failed"]


async def test_jitter_spreads_the_waits_and_is_the_same_after_a_restart() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        policy = Retry(attempts=2, wait_s=100, jitter=0.5)
        look = await house.start(
            *(step(f"s{n}", FAIL, after=[], retry=policy) for n in range(8)), parallel=8
        )
        waits = {
            round((each.retry_at - clock.now()).total_seconds())
            for each in look.steps
            if each.retry_at is not None
        }
        assert len(waits) > 4
        assert all(50 <= wait <= 150 for wait in waits)


async def test_a_retry_can_say_something_else() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        prompt = "again, attempt {{ attempt }} of {{ attempts }}, after {{ earlier.reason }}"
        await house.start(
            step("a", FAIL, retry=Retry(attempts=2, wait_s=1, prompt=prompt)),
        )
        await move(house, clock, 5)
        assert (await house.prompts("a"))[1] == "again, attempt 2 of 2, after failed"
        assert (await house.look()).status == "completed"


async def test_a_check_decides_and_its_outcome_is_kept() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        retry = Retry(attempts=2, wait_s=1)
        await house.start(step("a", check=Check(function=SECOND_TIME), retry=retry))
        await move(house, clock, 5)
        assert await house.reasons("a") == ["check_failed", "completed"]
        first, second = (await house.of("a")).attempts
        assert (first.check and first.check.passed, second.check and second.check.passed) == (
            False,
            True,
        )


async def test_a_check_says_why() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", check=Check(function=SAYS_WHY), retry=ONCE))
        assert (await house.of("a")).cause == "a said 'done'"


async def test_an_attempt_that_takes_too_long_is_stopped_and_tried_again() -> None:
    async with timed() as clock, living(MemoryStore()) as house:
        await house.start(step("a", HANG, limit_s=30, retry=Retry(attempts=2, wait_s=5)))
        await move(house, clock, 29)
        assert await house.reasons("a") == [None]
        await move(house, clock, 2)
        assert await house.reasons("a") == ["timed_out"]
        await move(house, clock, 40)
        assert await house.reasons("a") == ["timed_out", "timed_out"]
        assert (await house.look()).status == "failed"


async def test_a_compensation_step_runs_after_a_failure_and_only_then() -> None:
    undo = "{{ failed.step }} {{ failed.reason }}: {{ failed.cause }}"
    async with living(MemoryStore()) as house:
        look = await house.start(
            step("a", FAIL, retry=ONCE, compensate="undo"), step("undo", undo), step("b")
        )
        assert look.status == "failed"
        assert await house.said() == {"a": "failed", "undo": "completed", "b": "pending"}
        assert await house.prompts("undo") == ["a failed: broken"]
        assert (await house.of("undo")).undoes == ("a",)
        assert (await house.of("b")).needs == ("a",), "a step that compensates is in nobody's order"


async def test_a_compensation_step_is_not_run_where_nothing_failed() -> None:
    async with living(MemoryStore()) as house:
        look = await house.start(step("a", compensate="undo"), step("undo"))
        assert look.status == "completed"
        assert await house.said() == {"a": "completed", "undo": "pending"}


async def test_a_workflow_that_cannot_be_read_is_shown_as_such_and_stops_no_other() -> None:
    store = MemoryStore()
    async with living(store) as house:
        await house.start(step("a", approve=True))
    journals = store.of_kind("workflow")
    newer = b'{"type":"step_ended","id":"x","created_at":"2026-01-01T00:00:00Z","step":[]}'
    await journals.append_entries("w", [import_entry(newer)])
    async with living(store) as house:
        (brief,) = (await house.workflows.list())[0]
        assert brief.status == "unrecoverable"
        assert "step_ended" in str(brief.why)
        with pytest.raises(UnrecoverableError):
            await house.look()
        other = Workflow("x", [step("a")])
        await house.workflows.create(other, workflow_id="x")
        await house.rest()
        assert (await house.workflows.look("x")).status == "completed"


async def test_a_template_that_fails_with_what_a_step_said_is_not_tried_again() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a"), step("b", "{{ steps.a.output.split(',')[3] }}"))
        b = await house.of("b")
        assert (b.status, b.reason, len(b.attempts)) == ("failed", "template_failed", 1)


async def test_a_session_that_is_deleted_ends_the_attempt_and_is_made_anew() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG))
        session_id = str((await house.of("a")).attempts[0].session_id)
        before = await house.store.load_session(session_id)
        await house.house.registry.delete(session_id)
        await house.rest()
        assert await house.said() == {"a": "failed"}
        await house.workflows.retry("w", "a")
        await house.rest()
        assert (await house.reasons("a"))[1] is None
        after = await house.store.load_session(session_id)
        assert after.incarnation != before.incarnation


async def test_a_session_that_was_deleted_while_nobody_was_there_costs_an_attempt() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await house.start(step("a", HANG, retry=Retry(attempts=2, wait_s=5)))
            session_id = str((await house.of("a")).attempts[0].session_id)
        await store.delete_session(session_id)
        async with living(store) as house:
            assert await house.reasons("a") == ["failed"]
            await move(house, clock, 10)
            assert await house.reasons("a") == ["failed", None]


async def test_a_loop_that_cannot_start_is_tried_again_under_the_budget() -> None:
    def broken() -> None:
        raise RuntimeError("no key")

    loops = Loops(step_loop, broken=broken)  # type: ignore[arg-type]  # not a loop at all
    async with timed() as clock, living(MemoryStore(), loops) as house:
        await house.start(step("a", loop="broken", retry=Retry(attempts=2, wait_s=5)))
        await move(house, clock, 20)
        assert await house.reasons("a") == ["failed", "failed"]
        assert "no key" in str((await house.of("a")).cause)


async def test_the_same_one_again_is_found_and_another_is_refused() -> None:
    async with living(MemoryStore()) as house:
        workflow = Workflow("x", [step("a")])
        _, is_new = await house.workflows.create(workflow, workflow_id="x", owner="anna")
        assert is_new
        look, is_new = await house.workflows.create(
            workflow, workflow_id="x", owner="anna", scope="anna"
        )
        assert (look.workflow_id, is_new) == ("x", False)
        with pytest.raises(WorkflowExistsError):
            await house.workflows.create(Workflow("x", [step("b")]), workflow_id="x")
        with pytest.raises(WorkflowExistsError):
            await house.workflows.create(workflow, workflow_id="x", owner="ben", scope="ben")


async def test_a_workflow_is_its_owners() -> None:
    async with living(MemoryStore()) as house:
        for owner, name in (("anna", "x"), ("ben", "y")):
            workflow = Workflow("x", [step("a")])
            await house.workflows.create(workflow, workflow_id=name, owner=owner)
        found, _ = await house.workflows.list(scope="anna")
        assert [each.workflow_id for each in found] == ["x"]
        await house.workflows.check_scope("x", "anna")
        for name in ("y", "nobody's"):
            with pytest.raises(WorkflowNotFoundError):
                await house.workflows.check_scope(name, "anna")


async def test_a_workflow_that_is_over_can_be_deleted_and_is_gone() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", HANG))
        with pytest.raises(WorkflowConflictError, match="cancel it first"):
            await house.workflows.delete("w")
        await house.workflows.cancel("w")
        await house.rest()
        await house.workflows.delete("w")
        with pytest.raises(WorkflowNotFoundError):
            await house.look()


async def test_a_loop_a_runtime_or_a_check_that_is_not_there_is_found_first() -> None:
    async with living(MemoryStore()) as house:
        steps = [
            step("a", loop="nobody"),
            step("b", runtime="nowhere"),
            step("c", check=Check(function="os:system")),
        ]
        with pytest.raises(InvalidWorkflowError) as caught:
            await house.workflows.create(Workflow("x", steps), workflow_id="x")
        fields = [problem.field for problem in caught.value.problems]
        assert fields == ["steps[0].loop", "steps[1].runtime", "steps[2].check.function"]
        with pytest.raises(WorkflowNotFoundError):
            await house.workflows.look("x")


async def test_a_start_keeps_only_what_is_not_over_and_reads_no_other_journal() -> None:
    store = MemoryStore()
    async with living(store) as house:
        for n in range(300):
            workflow = Workflow("x", [step("a", approve=n == 7)])
            await house.workflows.create(workflow, workflow_id=f"w{n}")
        for _ in range(10):
            await house.rest()
        assert len(house.keeper) == 1
    reads: list[str] = []
    journals = store.of_kind("workflow")

    async def load_entry(session_id: str, entry: int | str) -> object:
        reads.append(session_id)
        return await type(journals).load_entry(journals, session_id, entry)

    store.of_kind = lambda kind: journals  # type: ignore[method-assign]
    journals.load_entry = load_entry  # type: ignore[method-assign,assignment]
    async with living(store) as house:
        assert [work.name for work in house.keeper.kept()] == ["w7"]
    assert set(reads) == {"w7"}


async def test_a_listing_says_that_a_workflow_waits_also_in_the_next_process() -> None:
    store = MemoryStore()
    steps = (step("a"), step("b", approve=True), step("c", HANG, after=["a"], retry=ONCE))
    async with living(store) as house:
        await house.start(*steps)
        assert ((await house.look()).status, (await brief(house)).status) == ("running",) * 2
        turn = (await house.of("c")).attempts[0]
        assert turn.session_id is not None
        await house.house.registry.stop(turn.session_id, turn.turn_id)
        await house.rest()
        await house.workflows.skip("w", "c", reason="no")
        await house.rest()
        assert ((await house.look()).status, (await brief(house)).status) == ("waiting",) * 2
    async with living(store) as house:
        assert (await brief(house)).status == "waiting"
        await house.workflows.answer("w", "b", approve=True)
        await house.rest()
        assert (await brief(house)).status == "completed"


async def test_a_compensation_step_counts_only_once_it_is_asked_for() -> None:
    undo = step("undo")
    async with living(MemoryStore()) as house:
        await house.start(step("a", compensate="undo"), undo)
        found = await brief(house)
        assert (found.status, found.done, found.steps) == ("completed", 1, 1)
    async with living(MemoryStore()) as house:
        await house.start(step("a", FAIL, compensate="undo", retry=ONCE), undo)
        found = await brief(house)
        assert (found.status, found.done, found.steps) == ("failed", 1, 2)


async def test_what_was_refused_before_its_first_attempt_is_not_compensated() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", approve=True, compensate="undo"), step("undo"))
        await house.workflows.answer("w", "a", approve=False)
        await house.rest()
        assert (await house.look()).why == "step 'a': rejected"
        assert await house.said() == {"a": "failed", "undo": "pending"}
        assert (await house.of("undo")).attempts == ()


async def test_what_was_refused_after_an_attempt_is_compensated() -> None:
    async with living(MemoryStore()) as house:
        await house.start(step("a", approve=True, compensate="undo"), step("undo"))
        await house.workflows.answer("w", "a", approve=True)
        await house.rest()
        await house.workflows.retry("w", "a")
        await house.rest()
        await house.workflows.answer("w", "a", approve=False)
        await house.rest()
        assert await house.said() == {"a": "failed", "undo": "completed"}
