"""Facts: entries without a place in the tree. None reaches a model; only `leaf_moved` moves a leaf.

Every field that is written once is written for ever: a new version may add a field with a default
and may not change or drop one (docs/format.md is the normative table).
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import field

from perdure.entry import Json, Parts, ResultParts, _Entry

Source = Literal["user", "routine", "workflow", "hook"]
Policy = Literal["queue", "steer", "interrupt", "reject"]
TurnReason = Literal["completed", "stopped", "interrupted", "failed", "refused"]

AfterOutage = Literal["run_once", "skip"]
Overlap = Literal["skip", "queue", "interrupt"]
Origin = Literal["api", "configuration"]
RoutineStatus = Literal["enabled", "paused", "stopped"]
FiredCause = Literal["due", "catch_up", "asked"]
RunReason = Literal[
    "completed", "stopped", "interrupted", "failed", "refused", "skipped", "discarded"
]
WorkflowSwitch = Literal["running", "paused", "cancelling"]
WorkflowReason = Literal["completed", "failed", "cancelled"]


class Fact(_Entry, frozen=True, omit_defaults=True):
    """The root of all facts."""


class Claimed(Fact, tag="claimed", frozen=True, omit_defaults=True):
    """A node owns the session from here on; each epoch is higher than the one before."""

    epoch: int
    node: str


class TurnStarted(Fact, tag="turn_started", frozen=True, omit_defaults=True):
    """A turn runs, from the message `message_id`, until its `turn_ended`."""

    turn_id: str
    message_id: str
    source: Source = "user"
    resends: str | None = None


class TurnEnded(Fact, tag="turn_ended", frozen=True, omit_defaults=True):
    """The one end of a turn. The first one counts. `crashed`: the server died in its middle."""

    turn_id: str
    reason: TurnReason
    cause: str | None = None
    crashed: bool = False


class ToolDispatched(Fact, tag="tool_dispatched", frozen=True, omit_defaults=True):
    """A tool call is about to start; stored before it does."""

    turn_id: str
    call_id: str
    name: str
    arguments: Json
    idempotency_key: str


class MessageQueued(Fact, tag="message_queued", frozen=True, omit_defaults=True):
    """A message was accepted while a turn ran; its message entry follows when its turn starts."""

    message_id: str
    parts: Parts
    policy: Policy = "queue"
    source: Source = "user"


class MessageDiscarded(Fact, tag="message_discarded", frozen=True, omit_defaults=True):
    """A queued message will not run."""

    message_id: str
    why: str


class MessageJoined(Fact, tag="message_joined", frozen=True, omit_defaults=True):
    """A queued message joined the running turn; its message entry is in the same batch."""

    turn_id: str
    message_id: str


class LeafMoved(Fact, tag="leaf_moved", frozen=True, omit_defaults=True):
    """The next tree entry grows from `leaf_id` (None: before the first entry)."""

    from_id: str | None
    leaf_id: str | None


class ApprovalRequested(Fact, tag="approval_requested", frozen=True, omit_defaults=True):
    """A tool call waits for somebody's yes, until `expires_at` if there is one.

    `in_run`: the run goes on meanwhile and holds what it holds; a crash interrupts it.
    """

    turn_id: str
    call_id: str
    name: str
    arguments: Json
    reason: str | None = None
    in_run: bool = False
    expires_at: datetime | None = None


class ApprovalAnswered(Fact, tag="approval_answered", frozen=True, omit_defaults=True):
    """The answer; `arguments` replaces the call's own where it is given."""

    turn_id: str
    call_id: str
    approve: bool
    reason: str | None = None
    arguments: Json = None


class HookRan(Fact, tag="hook_ran", frozen=True, omit_defaults=True):
    """A hook ran; `seconds` of wall time, `exit` code or None where it has none."""

    event: str
    handler: str
    input: Json
    output: Json
    exit: int | None
    seconds: float
    source: str | None = None


class RuntimeAttached(Fact, tag="runtime_attached", frozen=True, omit_defaults=True):
    """Tools run in this runtime from here on."""

    runtime_id: str


class RuntimeLost(Fact, tag="runtime_lost", frozen=True, omit_defaults=True):
    """The runtime is gone; its calls in flight were interrupted."""

    runtime_id: str
    cause: str | None = None


class LateResult(Fact, tag="late_result", frozen=True, omit_defaults=True):
    """A result that came after its call had been interrupted; it changes nothing."""

    call_id: str
    parts: ResultParts


class SessionStarted(Fact, tag="session_started", frozen=True, omit_defaults=True):
    """The SessionStart hooks of this source run next, at most once."""

    source: str


class RoutineDefined(Fact, tag="routine_defined", frozen=True, omit_defaults=True):
    """What the routine does from here on. Due times up to `after` are none of its business."""

    after: datetime
    parts: Parts
    cron: str | None = None
    zone: str = "UTC"
    every_s: float | None = None
    starts_at: datetime | None = None
    at: datetime | None = None
    session_id: str | None = field(name="to_session", default=None)  # that name is reserved
    incarnation: str | None = None
    loop: str | None = None
    fork_of: str | None = None
    after_outage: AfterOutage = "run_once"
    overlap: Overlap = "skip"
    deadline_s: float | None = None
    jitter_s: float = 0.0
    resends: int = 0
    origin: Origin = "api"
    owner: str | None = None


class RoutineSwitched(Fact, tag="routine_switched", frozen=True, omit_defaults=True):
    """The routine goes on (due times up to `after` are passed over), or rests."""

    status: RoutineStatus
    after: datetime | None = None
    why: str | None = None


class RoutineFired(Fact, tag="routine_fired", frozen=True, omit_defaults=True):
    """A due time of a routine was claimed: the one start that it can have may follow.

    `run_id` names the run; null: its due time does.
    """

    routine_id: str
    due_at: str
    run_id: str | None = None
    cause: FiredCause = "due"


class RoutineRunStarted(Fact, tag="routine_run_started", frozen=True, omit_defaults=True):
    """The message of a run was accepted by its session; `attempt` counts its turns from 1."""

    run_id: str
    session_id: str = field(name="to_session")
    incarnation: str
    message_id: str
    turn_id: str
    attempt: int = 1


class RoutineRunResent(Fact, tag="routine_run_resent", frozen=True, omit_defaults=True):
    """The interrupted turn of a run is about to be sent again; stored before it is."""

    run_id: str
    turn_id: str
    attempt: int


class RoutineRunEnded(Fact, tag="routine_run_ended", frozen=True, omit_defaults=True):
    """The one end of a run: that of its turn, or why it never had one."""

    run_id: str
    reason: RunReason
    turn_id: str | None = None
    cause: str | None = None


class RoutineSkipped(Fact, tag="routine_skipped", frozen=True, omit_defaults=True):
    """A due time that a policy of the routine passed over."""

    due_at: datetime
    why: str


class RoutineMissed(Fact, tag="routine_missed", frozen=True, omit_defaults=True):
    """Due times that nobody was there for. `count` None: more than could be counted."""

    first_at: datetime
    last_at: datetime
    count: int | None


class WorkflowDefined(Fact, tag="workflow_defined", frozen=True, omit_defaults=True):
    """What the workflow does, once and for all; `needs` has the steps that each step waits for.

    `source` is the text that it was written in, where it was.
    """

    definition: Json
    needs: Json
    inputs: Json = None
    source: str | None = None


class WorkflowSwitched(Fact, tag="workflow_switched", frozen=True, omit_defaults=True):
    """Steps start from here on, or none does; `cancelling`: those that run are stopped, too."""

    status: WorkflowSwitch
    why: str | None = None
    by: str | None = None


class WorkflowEnded(Fact, tag="workflow_ended", frozen=True, omit_defaults=True):
    """Nothing more happens by itself; a step that is reopened or skipped lets it go on."""

    reason: WorkflowReason
    cause: str | None = None


class StepStarted(Fact, tag="step_started", frozen=True, omit_defaults=True):
    """An attempt at a workflow's step; `attempt` counts from 1.

    Stored before its message, `prompt`, is sent: which session, message and turn it is.
    """

    step: str
    attempt: int
    session_id: str | None = field(name="to_session", default=None)  # that name is reserved
    incarnation: str | None = None
    message_id: str | None = None
    turn_id: str | None = None
    prompt: str | None = None


class StepChecked(Fact, tag="step_checked", frozen=True, omit_defaults=True):
    """What the check of an attempt found."""

    step: str
    attempt: int
    passed: bool
    check: str
    output: str | None = None
    seconds: float = 0.0


class StepEnded(Fact, tag="step_ended", frozen=True, omit_defaults=True):
    """The one end of an attempt at a workflow's step; the next one starts at `retry_at`, if any.

    `output` is what was said last; `seen` are the tool calls that it was seen to make.
    """

    step: str
    attempt: int
    reason: str
    cause: str | None = None
    output: str | None = None
    seen: Json = None
    retry_at: datetime | None = None


class StepSkipped(Fact, tag="step_skipped", frozen=True, omit_defaults=True):
    """A person had the step passed over; those that wait for it go on."""

    step: str
    why: str
    by: str | None = None


class StepAnswered(Fact, tag="step_answered", frozen=True, omit_defaults=True):
    """A person let the step start, or not."""

    step: str
    approve: bool
    reason: str | None = None
    by: str | None = None


class StepsReopened(Fact, tag="steps_reopened", frozen=True, omit_defaults=True):
    """A person had these steps run again, with new attempts: `step`, and what follows from it."""

    step: str
    steps: tuple[str, ...]
    by: str | None = None


class LoopChosen(Fact, tag="loop_chosen", frozen=True, omit_defaults=True):
    """The server runs this session's turns with the loop of this name from here on."""

    name: str


class SessionOwned(Fact, tag="session_owned", frozen=True, omit_defaults=True):
    """The session belongs to this principal from here on; without one it belongs to admins."""

    principal: str


class LoopRemembered(Fact, tag="loop_remembered", frozen=True, omit_defaults=True):
    """What a loop of this session wants to know in a later run; the newest of a key counts."""

    key: str
    value: Json


class Gap(Fact, tag="gap", frozen=True, omit_defaults=True):
    """What a salvage could not keep: `place` in the original, and why."""

    place: str
    detail: str
    lost_bytes: int | None = None


KnownFact = (
    Claimed
    | TurnStarted
    | TurnEnded
    | ToolDispatched
    | MessageQueued
    | MessageDiscarded
    | LeafMoved
    | ApprovalRequested
    | ApprovalAnswered
    | HookRan
    | RuntimeAttached
    | RuntimeLost
    | LateResult
    | SessionStarted
    | RoutineDefined
    | RoutineSwitched
    | RoutineFired
    | RoutineRunStarted
    | RoutineRunResent
    | RoutineRunEnded
    | RoutineSkipped
    | RoutineMissed
    | WorkflowDefined
    | WorkflowSwitched
    | WorkflowEnded
    | StepStarted
    | StepChecked
    | StepEnded
    | StepSkipped
    | StepAnswered
    | StepsReopened
    | LoopChosen
    | SessionOwned
    | MessageJoined
    | LoopRemembered
    | Gap
)
