"""What a session is shown as, beside its pages: its tree in outline, and all of it as a file."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from perdure.codec import encode
from perdure.interchange import ReadableStore, export_session
from perdure.server.http.segment import bound_of, limit_of, session_id_of
from perdure.server.service import Service

LINES_TYPE = "application/jsonl"


async def tree(service: Service, request: Request) -> Response:
    """A page of the tree in outline."""
    after = bound_of(request, "after")
    page = await service.registry.outline(
        session_id_of(request), after=0 if after is None else after.seq, limit=limit_of(request)
    )
    headers = {"cache-control": "no-store"}
    return Response(encode(page), headers=headers, media_type="application/json")


async def export(service: Service, request: Request) -> Response:
    """The session as JSON lines; verified to its last byte before the first one is sent."""
    session_id = session_id_of(request)
    made = await export_session(cast("ReadableStore", service.store), session_id)
    name = quote(session_id.replace("/", "_").replace("\\", "_"), safe="")
    headers = {
        "cache-control": "no-store",
        "content-disposition": f"attachment; filename*=UTF-8''{name}.jsonl",
        "perdure-head": str(made.head),
    }
    return StreamingResponse(aiter(made), headers=headers, media_type=LINES_TYPE)
