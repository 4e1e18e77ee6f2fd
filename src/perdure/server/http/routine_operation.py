"""The operations of routines."""

from __future__ import annotations

from perdure.server.http import routine_route
from perdure.server.http.body import EmptyBody
from perdure.server.http.routine_route import RoutineBody, RoutineChange, RoutinePage
from perdure.server.http.shape import KEY, PAGED, Operation
from perdure.server.routine.definition import Wanted
from perdure.server.routine.history import RunPage
from perdure.server.routine.look import DueLook, RoutineLook, RunLook

_ROUTINE = "/v1/routines/{routine_id}"

ROUTINE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/routines",
        "list_routines",
        "Lists routines, in the order of their ids",
        routine_route.list_routines,
        {200: RoutinePage},
        (422,),
        query=PAGED,
    ),
    Operation(
        "POST",
        "/v1/routines",
        "create_routine",
        "Makes a routine, and its session; 200 if the same one is there already",
        routine_route.create,
        {201: RoutineLook, 200: RoutineLook},
        (400, 404, 409, 413, 422),
        body=RoutineBody,
    ),
    Operation(
        "POST",
        "/v1/routines/preview",
        "preview_routine",
        "The next five due times of a schedule, or what is wrong with it",
        routine_route.preview,
        {200: DueLook},
        (400, 413, 422),
        body=Wanted,
        right="read",
    ),
    Operation(
        "GET",
        _ROUTINE,
        "look_at_routine",
        "Looks at a routine: what it does, the next due times, the runs that have not ended",
        routine_route.look,
        {200: RoutineLook},
        (404,),
    ),
    Operation(
        "PATCH",
        _ROUTINE,
        "change_routine",
        "Changes what is given; pauses a routine, or has it go on",
        routine_route.change,
        {200: RoutineLook},
        (400, 404, 413, 422),
        body=RoutineChange,
    ),
    Operation(
        "DELETE",
        _ROUTINE,
        "delete_routine",
        "Deletes a routine and its history; turns that it started go on",
        routine_route.delete,
        {204: None},
        (404, 422),
    ),
    Operation(
        "GET",
        f"{_ROUTINE}/runs",
        "list_runs",
        "The run history, newest first: one item for each due time, and what became of it",
        routine_route.runs,
        {200: RunPage},
        (404, 422),
        query=PAGED,
    ),
    Operation(
        "POST",
        f"{_ROUTINE}/run",
        "run_routine",
        "Starts a run now",
        routine_route.run,
        {202: RunLook},
        (400, 404, 409, 413, 422),
        body=EmptyBody,
        headers=KEY,
    ),
)
