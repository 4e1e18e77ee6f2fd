"""The operation that tells who asks."""

from __future__ import annotations

from typing import get_args

from perdure.server.access.principal import ROLES, Right
from perdure.server.http import me_route
from perdure.server.http.shape import STRING, Operation, make_list, make_object

_ME = make_object(
    principal=STRING,
    role={"enum": list(ROLES)},
    rights=make_list({"enum": list(get_args(Right))}),
)

ME_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/me",
        "me",
        "Whose token this is, and what its role may",
        me_route.me,
        {200: _ME},
    ),
)
