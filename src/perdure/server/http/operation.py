"""The server's operations: one table that routes and the OpenAPI document are both made from.

Each area has a file of its own, and its line here.
"""

from __future__ import annotations

from perdure.server.http.command_operation import COMMAND_OPERATIONS
from perdure.server.http.health_operation import HEALTH_OPERATIONS
from perdure.server.http.loop_operation import LOOP_OPERATIONS
from perdure.server.http.me_operation import ME_OPERATIONS
from perdure.server.http.reading_operation import READING_OPERATIONS
from perdure.server.http.routine_operation import ROUTINE_OPERATIONS
from perdure.server.http.runtime_operation import RUNTIME_OPERATIONS
from perdure.server.http.shape import Operation
from perdure.server.http.workflow_operation import WORKFLOW_OPERATIONS

OPERATIONS: tuple[Operation, ...] = (
    *HEALTH_OPERATIONS,
    *ME_OPERATIONS,
    *COMMAND_OPERATIONS,
    *READING_OPERATIONS,
    *LOOP_OPERATIONS,
    *RUNTIME_OPERATIONS,
    *ROUTINE_OPERATIONS,
    *WORKFLOW_OPERATIONS,
)
