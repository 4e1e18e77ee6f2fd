"""The two messages beside MCP's own by which late results are handed over.

The side that calls tools asks `perdure/late` and waits; the answer is one late result. What it has
stored, late or not, it says with `notifications/perdure/stored`.
"""

from __future__ import annotations

from typing import Literal

import mcp_types as types

LATE = "perdure/late"
STORED = "notifications/perdure/stored"


class LateRequest(types.Request[types.RequestParams, Literal["perdure/late"]]):
    """Asks for the next late result."""

    method: Literal["perdure/late"] = "perdure/late"
    params: types.RequestParams


class LateAnswer(types.Result):
    """One late result, and whose it is."""

    session_id: str
    turn_id: str
    call_id: str
    name: str
    key: str
    result: types.CallToolResult


class StoredParams(types.NotificationParams):
    """Whose result is stored."""

    key: str


class StoredNotification(types.Notification[StoredParams, Literal["notifications/perdure/stored"]]):
    """A result is stored on the side that called."""

    method: Literal["notifications/perdure/stored"] = "notifications/perdure/stored"
    params: StoredParams
