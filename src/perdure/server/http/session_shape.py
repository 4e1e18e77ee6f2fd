"""What several operations of sessions have in common: the address, and an entry."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.server.http.shape import STRING

SESSION = "/v1/sessions/{session_id}"
ENTRY: Mapping[str, object] = {
    "type": "object",
    "required": ["session_id", "seq", "id", "type", "created_at"],
    "properties": {
        "session_id": STRING,
        "seq": {"type": "integer", "minimum": 1},
        "id": STRING,
        "type": STRING,
        "created_at": {"type": "string", "format": "date-time"},
        "parent_id": {"type": ["string", "null"]},
    },
    "additionalProperties": True,
}
