"""Who may talk to the server: tokens, their cookies, the Host names and the origins.

The page's own files, the liveness answer and the API's description are public: they hold nothing of
anybody. Everything else needs a token, as `Authorization: Bearer` or as the cookie that opening
the address with the token in it gives. The cookie is not the token: it is derived from it, and
counts for as long.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from perdure.server.access.connection import Connections
from perdure.server.access.keyring import Keyring
from perdure.server.access.limit import BodyLimit, FailureLimit, RequestLimit
from perdure.server.access.principal import RIGHTS, ROLES, Grant, Right
from perdure.server.access.token_file import cookie_of
from perdure.server.problem import Refused

log = logging.getLogger("perdure.server")

GRANT = "perdure.grant"
"""What a request's token grants, in its scope; not there on a public path."""

BODIES_AT_ONCE = 4
"""So many of the largest bodies may be in memory for each principal."""

PUBLIC = frozenset({"/", "/v1/health", "/v1/ready", "/openapi.json", "/favicon.ico"})
_ASSETS = "/assets/"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]+)(?::[0-9]{1,5})?")


def grant_of(scope: Scope) -> Grant | None:
    """What the token of a request grants that was let in; None on a public path."""
    found: Grant | None = scope.get(GRANT)
    return found


def grant_of_request(request: Request) -> Grant:
    """What the token of a request grants whose path is not public."""
    found = grant_of(request.scope)
    assert found is not None
    return found


def is_operator(scope: Scope) -> bool:
    """Whether a request is from who operates the server, and may know where its files are."""
    grant = grant_of(scope)
    return grant is not None and grant.may("operate")


def check_right(grant: Grant, right: Right) -> None:
    """Returns if the grant's role has the right.

    Raises:
        Refused: 403; which session it was about makes no difference.

    """
    if not grant.may(right):
        able = ", ".join(role for role in ROLES if right in RIGHTS[role])
        raise Refused(
            403,
            "not_allowed",
            f"a token of the role {grant.role!r} may not do this; these roles may: {able}",
        )


class Access:
    """Decides about requests by their scope alone, before anything of the body is read."""

    def __init__(
        self,
        keyring: Keyring,
        *,
        host: str = "127.0.0.1",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        requests_per_s: float = 1000,
        max_streams: int = 500,
        max_body_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self.keyring = keyring
        self.connections = Connections(keyring, max_streams)
        self.bodies = BodyLimit(BODIES_AT_ONCE * max_body_bytes)
        self._requests = RequestLimit(requests_per_s)
        self._failures = FailureLimit()
        self._hosts = {"localhost", "127.0.0.1", "::1"}
        self._hosts |= {_plain_host(name) for name in hosts}
        self._any_address = host in {"0.0.0.0", "::"}
        if not self._any_address:
            self._hosts.add(_plain_host(host))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def check(self, scope: Scope) -> Grant | None:
        """What the request's token grants; None if the path is public.

        Raises:
            Refused: 421 by its Host, 403 by its Origin, 401 without a token that counts, 429 for
                too many requests of its principal, or with tokens that do not count.

        """
        headers = _headers(scope)
        host = self._check_host(headers.get(b"host", []))
        self._check_origin(headers.get(b"origin", []), host)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in PUBLIC or path.startswith(_ASSETS):
            return None
        grant = self._of_bearer(headers) or self._of_cookie(headers, host)
        if grant is None:
            if b"authorization" in headers or self._sent_cookie(headers, host) is not None:
                self._fail(scope)
            raise _unauthorised()
        self._requests.take(grant.principal)
        return grant

    def check_again(self, grant: Grant) -> None:
        """Returns if the token still grants that, some time after it was let in.

        Raises:
            Refused: 401, it was revoked, has expired, or grants something else now.

        """
        if not self.keyring.is_valid(grant):
            raise _unauthorised()

    def exchange(self, scope: Scope) -> Response | None:
        """Answers an address with a token in it: the cookie, and the address without the token.

        None where there is no token in the address.

        Raises:
            Refused: 401, it is no token that counts; 429, that was tried too often.

        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if not tokens:
            return None
        if self.keyring.of_token(tokens[-1]) is None:
            self._fail(scope)
            raise Refused(
                401,
                "unauthorised",
                "this is no token of the server that runs now: open the address that it printed "
                "at its start, or ask who gave you the token for another; it may have expired or "
                "been revoked",
            )
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        root = scope.get("root_path", "")
        response = Response(status_code=303, headers={"cache-control": "no-store"})
        response.headers["location"] = f"{root}/" + (f"?{rest}" if rest else "")
        (host,) = _headers(scope)[b"host"]
        response.set_cookie(
            _cookie_name(host.decode("latin-1").lower()),
            cookie_of(tokens[-1]),
            max_age=365 * 24 * 3600,
            path=f"{root}/",
            secure=scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    def _fail(self, scope: Scope) -> None:
        client = scope.get("client")
        host = client[0] if client is not None else ""
        self._failures.take(host)
        log.warning("a request from %s had a token that does not count", host or "somewhere")

    def _check_host(self, values: list[bytes]) -> str:
        host = values[0].decode("latin-1").lower() if len(values) == 1 else ""
        found = _HOST.fullmatch(host)
        name = _plain_host(found[1]) if found else ""
        if name in self._hosts or (self._any_address and _is_address(name)):
            return host
        raise Refused(
            421,
            "host_not_allowed",
            "this server does not answer to that Host name; add it to the setting 'hosts'",
        )

    def _check_origin(self, values: list[bytes], host: str) -> None:
        for value in values:
            origin = value.decode("latin-1").lower()
            netloc = origin.partition("://")[2]
            if origin in self._origins or (netloc and _same(origin, netloc, host)):
                continue
            raise Refused(
                403,
                "foreign_origin",
                "requests of pages from elsewhere are refused; add the page's origin to the "
                "setting 'origins' if it is yours",
            )

    def _of_bearer(self, headers: dict[bytes, list[bytes]]) -> Grant | None:
        values = headers.get(b"authorization", [])
        if len(values) != 1:
            return None
        scheme, _, token = values[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self.keyring.of_token(token.strip().decode("latin-1"))

    def _of_cookie(self, headers: dict[bytes, list[bytes]], host: str) -> Grant | None:
        cookie = self._sent_cookie(headers, host)
        return None if cookie is None else self.keyring.of_cookie(cookie)

    def _sent_cookie(self, headers: dict[bytes, list[bytes]], host: str) -> str | None:
        name = _cookie_name(host)
        for value in headers.get(b"cookie", []):
            if (cookie := cookie_parser(value.decode("latin-1")).get(name)) is not None:
                return cookie
        return None


def _unauthorised() -> Refused:
    return Refused(
        401,
        "unauthorised",
        "open the address that the server printed at its start, or send a token as "
        "'Authorization: Bearer …'; one that counted may have expired or been revoked",
        headers={"www-authenticate": "Bearer"},
    )


def _cookie_name(host: str) -> str:
    """The name of the cookie at this Host name and port, which browsers do not tell apart."""
    return "perdure_" + hashlib.sha256(host.encode()).hexdigest()[:12]


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower(), []).append(value)
    return found


def _plain_host(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(origin: str, netloc: str, host: str) -> bool:
    """Whether an origin is this server's own; a port that is the scheme's own may be left out."""
    port = ":443" if origin.startswith("https://") else ":80"
    return netloc.removesuffix(port) == host.removesuffix(port)
