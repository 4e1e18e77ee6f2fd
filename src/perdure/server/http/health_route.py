"""`/v1/health` and `/v1/ready`: what whoever keeps the server running asks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from perdure.server.http.session_route import answer
from perdure.server.service import Service, version


async def health(service: Service, request: Request) -> Response:
    """That it lives, and what it runs on."""
    scheme = service.settings.store_url.partition(":")[0]
    return answer(
        {"status": "ok", "version": version(), "store": scheme, "loop": service.loops.default}
    )


async def ready(service: Service, request: Request) -> Response:
    """That it can take commands and read its store."""
    await service.check_ready()
    problem = request.app.state.access.keyring.problem
    warnings = {} if problem is None else {"warnings": [problem]}
    return answer({"status": "ready", **warnings})
