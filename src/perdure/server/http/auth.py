"""Who may talk to the server: the token, its cookie, the Host names and the origins.

The page's own files, the liveness answer and the API's description are public: they hold nothing of
anybody. Everything else needs the token, as `Authorization: Bearer` or as the cookie that opening
the printed address gives. The cookie is not the token: it is derived from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from perdure.errors import ConfigurationError
from perdure.server.config import Settings
from perdure.server.problem import Refused

PUBLIC = frozenset({"/", "/v1/health", "/v1/ready", "/openapi.json", "/favicon.ico"})
_ASSETS = "/assets/"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]+)(?::[0-9]{1,5})?")
_TOKEN = re.compile(r"[!-~]{16,512}")


class Access:
    """Decides about requests by their scope alone, before anything of the body is read."""

    def __init__(
        self,
        token: str,
        *,
        host: str = "127.0.0.1",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> None:
        self._token = token.encode()
        key = hmac.digest(self._token, b"perdure cookie", "sha256")
        self._cookie = key.hex()
        self._cookie_name = "perdure_" + hashlib.sha256(b"name" + key).hexdigest()[:12]
        self._hosts = {"localhost", "127.0.0.1", "::1"}
        self._hosts |= {_plain_host(name) for name in hosts}
        self._any_address = host in {"0.0.0.0", "::"}
        if not self._any_address:
            self._hosts.add(_plain_host(host))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def check(self, scope: Scope) -> None:
        """Returns if the request may go on.

        Raises:
            Refused: 421 by its Host, 403 by its Origin, 401 without the token.

        """
        headers = _headers(scope)
        host = self._check_host(headers.get(b"host", []))
        self._check_origin(headers.get(b"origin", []), host)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in PUBLIC or path.startswith(_ASSETS):
            return
        if not (self._has_bearer(headers) or self._has_cookie(headers)):
            raise Refused(
                401,
                "unauthorised",
                "open the address that the server printed at its start, or send its token as "
                "'Authorization: Bearer …'",
                headers={"www-authenticate": "Bearer"},
            )

    def exchange(self, scope: Scope) -> Response | None:
        """Answers an address with a token in it: the cookie, and the address without the token.

        None where there is no token in the address.

        Raises:
            Refused: 401, it is another token.

        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if not tokens:
            return None
        if not hmac.compare_digest(tokens[-1].encode(), self._token):
            raise Refused(
                401,
                "unauthorised",
                "this is not the token of the server that runs now; open the address that it "
                "printed at its start",
            )
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        root = scope.get("root_path", "")
        response = Response(status_code=303, headers={"cache-control": "no-store"})
        response.headers["location"] = f"{root}/" + (f"?{rest}" if rest else "")
        response.set_cookie(
            self._cookie_name,
            self._cookie,
            max_age=365 * 24 * 3600,
            path=f"{root}/",
            secure=scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response

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

    def _has_bearer(self, headers: dict[bytes, list[bytes]]) -> bool:
        values = headers.get(b"authorization", [])
        if len(values) != 1:
            return False
        scheme, _, token = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)

    def _has_cookie(self, headers: dict[bytes, list[bytes]]) -> bool:
        for value in headers.get(b"cookie", []):
            cookie = cookie_parser(value.decode("latin-1")).get(self._cookie_name, "")
            if hmac.compare_digest(cookie.encode(), self._cookie.encode()):
                return True
        return False


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


def load_token(settings: Settings) -> str:
    """The token to start with: the one that was set, or the one in the data folder.

    At first start one is made, and kept in a file that only its owner can read.

    Raises:
        ConfigurationError: the file is there and is no token, or cannot be read or written.

    """
    if settings.token is not None:
        return settings.token
    path = Path(settings.data) / "token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _write_new(path, secrets.token_urlsafe(32))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o600)
            token = file.read(1024).strip()
    except OSError as error:
        raise ConfigurationError(
            f"the token cannot be kept in {str(path)!r}: {error.strerror}; choose another folder "
            "with --data, or set PERDURE_TOKEN"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{str(path)!r} holds no token (16 to 512 visible characters); delete it to get a new "
            "one"
        )
    return token


def _write_new(path: Path, token: str) -> None:
    """Makes the file whole or not at all: two first starts at once agree on one token."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()
