"""The operations of workflows."""

from __future__ import annotations

from perdure.server.http import workflow_route
from perdure.server.http.body import EmptyBody
from perdure.server.http.shape import PAGED, Operation
from perdure.server.http.workflow_route import (
    ApproveBody,
    PlanLook,
    SkipBody,
    WhyBody,
    WorkflowBody,
    WorkflowPage,
)
from perdure.server.workflow.look import WorkflowLook

_WORKFLOW = "/v1/workflows/{workflow_id}"
_STEP = f"{_WORKFLOW}/steps/{{step}}"

WORKFLOW_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/workflows",
        "list_workflows",
        "Lists workflows, newest change first",
        workflow_route.list_workflows,
        {200: WorkflowPage},
        (422,),
        query=PAGED,
    ),
    Operation(
        "POST",
        "/v1/workflows",
        "create_workflow",
        "Starts a workflow, checked before anything runs; 200 if the same one is there already",
        workflow_route.create,
        {201: WorkflowLook, 200: WorkflowLook},
        (400, 409, 413, 422),
        body=WorkflowBody,
    ),
    Operation(
        "POST",
        "/v1/workflows/check",
        "check_workflow",
        "What each step waits for, or all that is wrong with a workflow; stores nothing",
        workflow_route.check,
        {200: PlanLook},
        (400, 413, 422),
        body=WorkflowBody,
        right="read",
    ),
    Operation(
        "GET",
        _WORKFLOW,
        "look_at_workflow",
        "Looks at a workflow: its steps as a graph, and the attempts of each",
        workflow_route.look,
        {200: WorkflowLook},
        (404,),
    ),
    Operation(
        "DELETE",
        _WORKFLOW,
        "delete_workflow",
        "Deletes a workflow that is over, and its history; its sessions stay",
        workflow_route.delete,
        {204: None},
        (404, 409),
    ),
    Operation(
        "POST",
        f"{_WORKFLOW}/pause",
        "pause_workflow",
        "Starts no further attempt; those that run go on to their end",
        workflow_route.pause,
        {200: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=WhyBody,
    ),
    Operation(
        "POST",
        f"{_WORKFLOW}/resume",
        "resume_workflow",
        "Goes on where it was paused",
        workflow_route.resume,
        {200: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=EmptyBody,
    ),
    Operation(
        "POST",
        f"{_WORKFLOW}/cancel",
        "cancel_workflow",
        "Stops the turns that run, and ends it; undoes nothing",
        workflow_route.cancel,
        {202: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=WhyBody,
    ),
    Operation(
        "POST",
        f"{_STEP}/retry",
        "retry_step",
        "Runs a step again, and what follows from it; a retry is not a rollback",
        workflow_route.retry,
        {202: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=EmptyBody,
    ),
    Operation(
        "POST",
        f"{_STEP}/skip",
        "skip_step",
        "Passes a step over, for a reason",
        workflow_route.skip,
        {202: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=SkipBody,
    ),
    Operation(
        "POST",
        f"{_STEP}/approve",
        "approve_step",
        "Lets a step start that waits for it, or not",
        workflow_route.approve,
        {202: WorkflowLook},
        (400, 404, 409, 413, 422),
        body=ApproveBody,
    ),
)
