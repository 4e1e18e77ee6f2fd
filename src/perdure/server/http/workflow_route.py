"""What the addresses of workflows do: each reads its request, asks the workflows, and answers.

A workflow belongs to the principal who started it; that of somebody else is not there (guard.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from perdure.errors import InvalidWorkflowError
from perdure.server.http.auth import grant_of_request
from perdure.server.http.body import Body, EmptyBody, read_body, read_text
from perdure.server.http.segment import limit_of, text_of
from perdure.server.http.session_route import answer
from perdure.server.problem import Refused
from perdure.server.service import Service
from perdure.server.workflow.definition import convert
from perdure.server.workflow.look import WorkflowBrief, WorkflowLook
from perdure.workflow import Workflow

T = TypeVar("T")

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
"""With one of these the body is the workflow itself, whose inputs have defaults."""


class WorkflowBody(Body, frozen=True):
    """A workflow, as a value (`workflow`) or as YAML (`yaml`), and what it is given."""

    workflow: Workflow | None = None
    yaml: str | None = None
    inputs: Mapping[str, Any] = {}
    workflow_id: str | None = None


class _Given(Body, frozen=True):
    """The same, before it is known to be a workflow."""

    workflow: Any = None
    yaml: str | None = None
    inputs: Mapping[str, Any] = {}
    workflow_id: str | None = None


class WhyBody(Body, frozen=True):
    """Why, for people."""

    why: str | None = None


class SkipBody(Body, frozen=True):
    """Why a step is passed over."""

    reason: str


class ApproveBody(Body, frozen=True):
    """Whether a step may start, and why."""

    approve: bool = True
    reason: str | None = None


class WorkflowPage(Struct, frozen=True):
    """Some workflows; `next` is the `after` of the page that follows, None on the last."""

    workflows: tuple[WorkflowBrief, ...]
    next: str | None


class EdgesLook(Struct, frozen=True):
    """A step, the steps that it waits for, and those whose failure it is for."""

    step: str
    needs: tuple[str, ...]
    undoes: tuple[str, ...]


class PlanLook(Struct, frozen=True):
    """A workflow in which nothing is wrong."""

    name: str
    inputs: dict[str, Any]
    steps: tuple[EdgesLook, ...]


async def _read(service: Service, request: Request) -> tuple[Workflow | str, _Given]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    most = service.settings.max_body_bytes
    if media_type in YAML_TYPES:
        return await read_text(request, most), _Given()
    given = await read_body(request, _Given, most)
    if (given.workflow is None) == (given.yaml is None):
        raise Refused(422, "invalid_body", 'a workflow is given as either "workflow" or "yaml"')
    return (given.yaml if given.yaml is not None else convert(given.workflow, {})), given


async def _telling(doing: Awaitable[T]) -> T:
    """What is done; all that is wrong with a workflow is told, each with line and field."""
    try:
        return await doing
    except InvalidWorkflowError as error:
        problems = [each._asdict() for each in error.problems]
        raise Refused(
            422,
            "invalid_workflow",
            str(error),
            line=error.line,
            field=error.field,
            problems=problems,
        ) from error


async def list_workflows(service: Service, request: Request) -> Response:
    """A page of the listing."""
    after = request.query_params.get("after")
    scope = grant_of_request(request).scope
    found, following = await service.workflows.list(
        limit=limit_of(request), after=after, scope=scope
    )
    return answer(WorkflowPage(tuple(found), following))


async def create(service: Service, request: Request) -> Response:
    """Starts a workflow; 200 if the same one is there already."""

    async def make() -> tuple[WorkflowLook, bool]:
        workflow, given = await _read(service, request)
        grant = grant_of_request(request)
        return await service.workflows.create(
            workflow,
            given.inputs,
            workflow_id=given.workflow_id,
            owner=grant.owner,
            scope=grant.scope,
        )

    look, is_new = await _telling(make())
    return answer(look, 201 if is_new else 200)


async def check(service: Service, request: Request) -> Response:
    """Says what is wrong with a workflow; stores nothing."""

    async def plan() -> PlanLook:
        workflow, given = await _read(service, request)
        owner = grant_of_request(request).owner
        found = await service.workflows.check(workflow, given.inputs, owner=owner)
        undoes = found.undoes
        steps = tuple(
            EdgesLook(each.id, found.needs[each.id], undoes.get(each.id, ()))
            for each in found.workflow.steps
        )
        return PlanLook(found.workflow.name, dict(found.inputs), steps)

    return answer(await _telling(plan()))


async def look(service: Service, request: Request) -> Response:
    """A look at a workflow."""
    return answer(await service.workflows.look(text_of(request, "workflow_id")))


async def delete(service: Service, request: Request) -> Response:
    """Deletes a workflow that is over."""
    await service.workflows.delete(text_of(request, "workflow_id"))
    return Response(status_code=204)


def _about(request: Request) -> tuple[str, Mapping[str, Any]]:
    return text_of(request, "workflow_id"), {"by": grant_of_request(request).principal}


async def pause(service: Service, request: Request) -> Response:
    """Starts no further attempt."""
    workflow_id, who = _about(request)
    body = await read_body(request, WhyBody, service.settings.max_body_bytes)
    return answer(await service.workflows.pause(workflow_id, why=body.why, **who))


async def resume(service: Service, request: Request) -> Response:
    """Goes on."""
    workflow_id, who = _about(request)
    await read_body(request, EmptyBody, service.settings.max_body_bytes)
    return answer(await service.workflows.resume(workflow_id, **who))


async def cancel(service: Service, request: Request) -> Response:
    """Stops what runs, and ends it."""
    workflow_id, who = _about(request)
    body = await read_body(request, WhyBody, service.settings.max_body_bytes)
    return answer(await service.workflows.cancel(workflow_id, why=body.why, **who), 202)


async def retry(service: Service, request: Request) -> Response:
    """Runs a step again, and what follows from it."""
    workflow_id, who = _about(request)
    await read_body(request, EmptyBody, service.settings.max_body_bytes)
    step = text_of(request, "step")
    return answer(await service.workflows.retry(workflow_id, step, **who), 202)


async def skip(service: Service, request: Request) -> Response:
    """Passes a step over."""
    workflow_id, who = _about(request)
    body = await read_body(request, SkipBody, service.settings.max_body_bytes)
    step = text_of(request, "step")
    return answer(await service.workflows.skip(workflow_id, step, reason=body.reason, **who), 202)


async def approve(service: Service, request: Request) -> Response:
    """Lets a step start, or not."""
    workflow_id, who = _about(request)
    body = await read_body(request, ApproveBody, service.settings.max_body_bytes)
    look = await service.workflows.answer(
        workflow_id, text_of(request, "step"), approve=body.approve, reason=body.reason, **who
    )
    return answer(look, 202)
