"""`/v1/loops`: the loops that a session may choose, and the vendors that could be behind others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from perdure.loops.vendor import vendors
from perdure.server.http.session_route import answer
from perdure.server.service import Service


async def list_loops(service: Service, request: Request) -> Response:
    """What there is; nothing is imported, started or sent to find out."""
    looks: Callable[[], Sequence[object]] = getattr(service.loops, "looks", tuple)
    found = await asyncio.to_thread(looks)
    known = await asyncio.to_thread(vendors)
    return answer({"default": service.loops.default, "loops": found, "vendors": known})
