"""What an attempt at a step says: the step's prompt, and before it, in a retry, what is known.

A retry is not a rollback, and the retried prompt says so: what the earlier attempt was seen to do,
its tool calls and their results, unless the step's policy has a prompt of its own. Where a prompt
is a shell's command, all of that is comments: what an attempt wrote is never run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from perdure.fact import StepEnded
from perdure.server.session.seen import read_seen, say_seen
from perdure.server.workflow.definition import first_values
from perdure.server.workflow.plan import has_to_be_undone
from perdure.server.workflow.rendering import render
from perdure.server.workflow.template import Named, Said, TemplateProblem
from perdure.server.workflow.work import Work
from perdure.workflow import Step

NOT_A_ROLLBACK = (
    "A retry is not a rollback: nothing of what an earlier attempt did was undone. It runs against "
    "what that attempt left behind."
)

_NOTICE = """\
This is attempt {attempt} at the step "{step}". {not_a_rollback} Look at what is there before you \
do anything a second time.

The attempt before it ended: {reason}.{cause} What it was seen to do:
{seen}

The step:

"""


async def prompt_of(work: Work, step: Step, attempt: int, *, is_command: bool) -> str:
    """The message of this attempt; what is told before a command, is told as comments.

    Raises:
        TemplateProblem: it cannot be rendered with what the steps before it gave.
        StoreError, UnrecoverableError: the workflow's journal cannot be read.

    """
    values = first_values(work.plan.workflow, work.name, work.plan.inputs)
    is_undo = step.id in work.plan.undoes
    taken = work.state.steps if is_undo else work.plan.needs[step.id]
    values["steps"] = Named({each: await _said(work, each) for each in taken})
    if is_undo:
        values["failed"] = await _failed(work, step)
    earlier = await work.end_of(step.id) if attempt > 1 else None
    made = await asyncio.to_thread(
        _render, work, step, attempt, values, earlier, is_command=is_command
    )
    if not made.strip():
        raise TemplateProblem(None, "the prompt is empty")
    return made


def _render(
    work: Work,
    step: Step,
    attempt: int,
    values: Mapping[str, Any],
    earlier: StepEnded | None,
    *,
    is_command: bool,
) -> str:
    prompt = render(step.prompt, values)
    if earlier is None:
        return prompt
    seen = say_seen(read_seen(earlier.seen))
    notice = _NOTICE.format(
        attempt=attempt,
        step=step.id,
        not_a_rollback=NOT_A_ROLLBACK,
        reason=earlier.reason.replace("_", " "),
        cause=f" ({earlier.cause})" if earlier.cause else "",
        seen=seen,
    )
    if is_command:
        notice = as_comments(notice)
    policy = work.plan.workflow.retry_of(step)
    if policy.prompt is None:
        return notice + prompt
    before = Named({"reason": earlier.reason, "cause": earlier.cause or "", "seen": seen})
    more = {
        "prompt": prompt,
        "notice": notice,
        "earlier": before,
        "attempt": attempt,
        "attempts": policy.attempts,
    }
    return render(policy.prompt, {**values, **more})


def as_comments(text: str) -> str:
    """The text as comments of a shell: none of it is run, whatever it says."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.strip("\n").split("\n"))


async def _said(work: Work, name: str) -> Said:
    known = work.state.steps[name]
    end = await work.end_of(name) if known.status == "completed" else None
    from_session = None
    if end is not None:
        start = await work.start_of(name, end.attempt)
        from_session = start.session_id if start is not None else None
    return Said(
        {
            "output": "" if end is None else end.output or "",
            "session_id": from_session or "",
            "attempts": known.attempts,
            "skipped": known.status == "skipped",
        }
    )


async def _failed(work: Work, step: Step) -> Named:
    for name in work.plan.undoes[step.id]:
        known = work.state.steps[name]
        if has_to_be_undone(work.state, name):
            end = await work.end_of(name)
            seen = say_seen(read_seen(end.seen)) if end is not None else ""
            return Named(
                {
                    "step": name,
                    "reason": known.reason or "",
                    "cause": known.cause or "",
                    "seen": seen,
                }
            )
    return Named({"step": "", "reason": "", "cause": "", "seen": ""})
