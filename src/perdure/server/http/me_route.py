"""`/v1/me`: what the token of a request grants."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from perdure.server.access.principal import RIGHTS
from perdure.server.http.auth import grant_of_request
from perdure.server.http.session_route import answer
from perdure.server.service import Service


async def me(service: Service, request: Request) -> Response:
    """Whose token it is, and what its role may."""
    grant = grant_of_request(request)
    return answer(
        {
            "principal": grant.principal,
            "role": grant.role,
            "rights": sorted(RIGHTS[grant.role]),
        }
    )
