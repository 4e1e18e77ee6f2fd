"""The plan and the fold alone: whatever ends and crashes in whatever order, each step ends once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.codec import StoredEntry, seal_all
from perdure.fact import Fact, StepEnded, StepStarted, WorkflowEnded
from perdure.server.workflow.definition import Plan, plan_of, plan_workflow
from perdure.server.workflow.plan import due_at, outcome, ready, retry_at, wait_s
from perdure.server.workflow.state import (
    DONE,
    State,
    apply,
    decode_state,
    encode_state,
    fold,
)
from perdure.workflow import Retry, Step, Workflow

NOW = datetime(2026, 1, 5, tzinfo=UTC)
REASONS = ["completed", "failed", "interrupted", "timed_out", "check_failed", "stopped"]


class Journal:
    """A journal in memory, whose state is folded as it grows; a crash folds it anew."""

    def __init__(self, plan: Plan) -> None:
        self.entries: list[StoredEntry] = []
        self.state = State()
        self.append(plan.as_fact())

    def append(self, *facts: Fact) -> None:
        for entry in seal_all(facts):
            stored = StoredEntry(len(self.entries) + 1, entry)
            self.entries.append(stored)
            self.state = apply(self.state, stored)

    def crash(self) -> None:
        assert fold(State(), self.entries) == self.state
        found = decode_state(encode_state(self.state))
        assert found == self.state
        self.state = found


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Up to six steps that wait for earlier ones, some in shared sessions, one compensated."""
    count = draw(st.integers(1, 6))
    steps = []
    for n in range(count):
        before = [f"s{m}" for m in range(n)]
        some = st.lists(st.sampled_from(before), unique=True) if before else st.just([])
        after = draw(st.none() | some)
        session = draw(st.sampled_from([None, None, "shared"]))
        undo = "undo" if draw(st.booleans()) else None
        steps.append(Step(f"s{n}", "x", after=after, session=session, compensate=undo))
    if any(step.compensate for step in steps):
        steps.append(Step("undo", "x"))
    retry = Retry(attempts=draw(st.integers(1, 3)), wait_s=draw(st.sampled_from([0.0, 60.0])))
    return Workflow("w", steps, retry=retry, parallel=draw(st.integers(1, 4)))


@settings(max_examples=300, deadline=None)
@given(workflow=workflows(), data=st.data())
def test_any_interleaving_of_ends_and_crashes_runs_each_step_to_its_end_once(
    workflow: Workflow, data: st.DataObject
) -> None:
    plan = plan_workflow(workflow, {})
    journal, now = Journal(plan), NOW
    final: Counter[str] = Counter()
    for _ in range(200):
        state = journal.state
        if (end := outcome(plan, state)) is not None:
            journal.append(WorkflowEnded(reason=end[0]))
            break
        starting = ready(plan, state, now)
        sessions = [workflow.step(name).session for name in (*starting, *state.open_attempts)]
        shared = [each for each in sessions if each is not None]
        assert len(shared) <= 1, "two steps in one session"
        assert len(sessions) <= workflow.parallel
        for name in starting:
            assert final[name] == 0, "a step that ended runs again"
            assert all(state.steps[each].status in DONE for each in plan.needs[name])
            journal.append(StepStarted(name, state.steps[name].attempts + 1))
        if data.draw(st.booleans()):
            journal.crash()
        if opened := journal.state.open_attempts:
            name = data.draw(st.sampled_from(sorted(opened)))
            reason = data.draw(st.sampled_from(REASONS))
            due = retry_at(plan, journal.state, "i", name, reason, now)
            end_fact = StepEnded(name, opened[name].attempt, reason, retry_at=due)
            final[name] += due is None
            journal.append(end_fact)
            if data.draw(st.booleans()):  # somebody else tells of the same end, differently
                other = StepEnded(name, opened[name].attempt, "failed")
                before = journal.state.steps
                journal.append(other)
                assert journal.state.steps == before
        elif not starting:
            due = due_at(plan, journal.state)
            assert due is not None, "nothing runs, nothing is due, and it is not over"
            now = max(now, due)
    assert journal.state.is_over
    assert set(final.values()) <= {0, 1}
    if journal.state.status == "completed":
        ordered = {step.id for step in workflow.steps} - plan.undoes.keys()
        assert all(final[name] == 1 for name in ordered)
    assert not ready(plan, journal.state, now + timedelta(days=1)), "it is over, and goes on"
    journal.crash()


@settings(max_examples=100, deadline=None)
@given(workflow=workflows())
def test_a_plan_is_the_same_after_it_was_stored(workflow: Workflow) -> None:
    plan = plan_workflow(workflow, {})
    (entry,) = seal_all([plan.as_fact()])
    found = plan_of(entry.view)  # type: ignore[arg-type]  # it is what was sealed
    assert found is not None
    assert msgspec.to_builtins(found.workflow) == msgspec.to_builtins(plan.workflow)
    assert found.needs == plan.needs


def test_waits_grow_to_their_most_and_jitter_stays_within_its_bounds() -> None:
    policy = Retry(attempts=100, wait_s=1, factor=2, most_wait_s=30, jitter=0.5)
    assert [wait_s(policy, n, 0.5) for n in (1, 2, 3, 6, 99)] == [1, 2, 4, 30, 30]
    assert (wait_s(policy, 1, 0.0), wait_s(policy, 1, 1.0)) == (0.5, 1.5)
