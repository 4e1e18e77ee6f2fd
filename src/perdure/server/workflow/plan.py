"""What a workflow does next: pure functions of its plan, its state and the time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from perdure.fact import WorkflowReason
from perdure.server.workflow.definition import Plan
from perdure.server.workflow.identity import fraction_of
from perdure.server.workflow.state import DONE, State
from perdure.workflow import Retry

RETRIED = frozenset({"failed", "interrupted", "timed_out", "check_failed"})
"""How an attempt ends that is followed by another, under the budget.

What a person stopped or refused is not tried again by itself, nor what a hook refused.
"""


def ready(plan: Plan, state: State, now: datetime) -> Sequence[str]:
    """The steps that start now, in order; what their sessions and `parallel` allow."""
    if state.status != "running":
        return ()
    busy, room = _taken(plan, state)
    found: list[str] = []
    for step in plan.workflow.steps:
        if len(found) >= room:
            break
        known = state.steps[step.id]
        is_due = known.status == "pending" or (
            known.status == "retrying" and known.retry_at is not None and known.retry_at <= now
        )
        if not is_due or not _is_wanted(plan, state, step.id):
            continue
        if (step.approve and not known.approved) or step.session in busy:
            continue
        found.append(step.id)
        if step.session is not None:
            busy.add(step.session)
    return found


def _taken(plan: Plan, state: State) -> tuple[set[str | None], int]:
    """The shared sessions that open attempts have, and how many more may run."""
    running = state.open_attempts
    busy = {plan.workflow.step(name).session for name in running} - {None}
    return busy, plan.workflow.parallel - len(running)


def waiting(plan: Plan, state: State) -> Sequence[str]:
    """The steps that a person has to approve before they start."""
    if state.is_over or state.status == "cancelling":
        return ()
    return [
        step.id
        for step in plan.workflow.steps
        if step.approve
        and state.steps[step.id].status == "pending"
        and not state.steps[step.id].approved
        and _is_wanted(plan, state, step.id)
    ]


def is_waiting(plan: Plan, state: State) -> bool:
    """Whether it waits for a person's approval, and for nothing else."""
    is_at_rest = state.status == "running" and not any(
        each.open is not None or each.status == "retrying" for each in state.steps.values()
    )
    return is_at_rest and bool(waiting(plan, state))


def has_to_be_undone(state: State, name: str) -> bool:
    """Whether a step has failed, and had an attempt: one that was refused before did nothing."""
    return state.steps[name].status == "failed" and state.steps[name].attempts > 0


def _is_wanted(plan: Plan, state: State, name: str) -> bool:
    """Whether what it waits for is done; a compensation step waits for a failure."""
    if name in plan.undoes:
        return any(has_to_be_undone(state, each) for each in plan.undoes[name])
    if any(each.status == "failed" for each in state.steps.values()):
        return False
    return all(state.steps[each].status in DONE for each in plan.needs[name])


def outcome(plan: Plan, state: State) -> tuple[WorkflowReason, str | None] | None:
    """How the workflow ends, and why; None while something runs, or is to run.

    One that is paused does not fail meanwhile: whoever paused it can skip what has failed.
    """
    if state.is_over or state.open_attempts:
        return None
    if state.status == "cancelling":
        return "cancelled", state.why
    failed = [name for name, each in state.steps.items() if each.status == "failed"]
    if failed:
        undone = [
            name
            for name in plan.undoes
            if state.steps[name].status in {"pending", "retrying"} and _is_wanted(plan, state, name)
        ]
        if undone:
            return None
        if state.status == "paused":
            return None
        first = failed[0]
        known = state.steps[first]
        said = f"step {first!r}: {known.reason}"
        return "failed", f"{said}: {known.cause}" if known.cause else said
    ordered = [step.id for step in plan.workflow.steps if step.id not in plan.undoes]
    if all(state.steps[name].status in DONE for name in ordered):
        return "completed", None
    return None


def due_at(plan: Plan, state: State, *, checked: Collection[str] = ()) -> datetime | None:
    """When something is due: an attempt after its wait, or an attempt's limit.

    What waits for another attempt's end is due by that, and at no time. The limits of those that
    are `checked` are over: a check has one of its own.
    """
    if state.is_over:
        return None
    busy, room = _taken(plan, state)
    times: list[datetime] = []
    for name, known in state.steps.items():
        if known.open is not None:
            deadline = deadline_of(plan, state, name)
            if deadline is not None and name not in checked:
                times.append(deadline)
        elif (
            known.status == "retrying"
            and known.retry_at is not None
            and state.status == "running"
            and room > 0
            and plan.workflow.step(name).session not in busy
            and _is_wanted(plan, state, name)
        ):
            times.append(known.retry_at)
    return min(times, default=None)


def deadline_of(plan: Plan, state: State, name: str) -> datetime | None:
    """When the open attempt of this step has had its time."""
    limit_s, attempt = plan.workflow.step(name).limit_s, state.steps[name].open
    if limit_s is None or attempt is None:
        return None
    return attempt.started_at + timedelta(seconds=limit_s)


def retry_at(
    plan: Plan, state: State, incarnation: str, name: str, reason: str, now: datetime
) -> datetime | None:
    """When the next attempt is due after one that ended so; None: there is none."""
    known = state.steps[name]
    policy = plan.workflow.retry_of(plan.workflow.step(name))
    if reason not in RETRIED or known.used >= policy.attempts or state.status == "cancelling":
        return None
    fraction = fraction_of(incarnation, name, known.attempts)
    return now + timedelta(seconds=wait_s(policy, known.used, fraction))


def wait_s(policy: Retry, used: int, fraction: float) -> float:
    """How long is waited after so many attempts; `fraction` places it in the jitter."""
    wait = min(policy.wait_s * policy.factor ** min(used - 1, 200), policy.most_wait_s)
    return round(max(0.0, wait * (1 + policy.jitter * (2 * fraction - 1))), 3)
