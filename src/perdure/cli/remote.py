"""A running server, as a command talks to it: its address and token are those that are set here.

Nothing but the standard library, so that a command starts fast and needs no extra.
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from perdure.errors import ConfigurationError, PerdureError
from perdure.server.config import Settings, load_settings

TIMEOUT_S = 60.0

_USAGE = frozenset({"configuration", "invalid_body", "invalid_routine", "missing_extra"})


def add_server_to(verb: argparse.ArgumentParser) -> None:
    """Gives a verb the option `--server`."""
    verb.add_argument(
        "--server",
        metavar="URL",
        help="the address of the running server (host and port as perdure serve has them here)",
    )


class Remote:
    """The server that is meant, with the token that is set or that it made in its data folder."""

    def __init__(self, named: str | None) -> None:
        settings = load_settings()
        self.address = named.rstrip("/") if named is not None else _address(settings)
        self._parts = urlsplit(self.address)
        if self._parts.scheme not in {"http", "https"} or not self._parts.hostname:
            raise ConfigurationError(f"--server is an address like http://host:8377, not {named!r}")
        self._token = _token(settings)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the server, as Python values; None where it has no content.

        Raises:
            PerdureError: the server refuses, with its own words, or cannot be reached.
            ConfigurationError: what was asked for cannot be meant.

        """
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._parts.path + path, body=sent, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise PerdureError(
                f"there is no server at {self.address} ({error}): start it with perdure serve, or "
                "name its address with --server"
            ) from error
        finally:
            connection.close()
        return _read(answer.status, content, self.address)


def segment(name: str) -> str:
    """A name as one segment of an address."""
    return quote(name, safe="")


def _read(status: int, content: bytes, address: str) -> Any:
    try:
        value = json.loads(content) if content else None
    except ValueError as error:
        raise PerdureError(f"what is at {address} is no server of Perdure") from error
    if status < 400:
        return value
    problem = value if isinstance(value, dict) else {}
    detail = str(problem.get("detail", f"the server answers {status}"))
    raise (ConfigurationError if problem.get("code") in _USAGE else PerdureError)(detail)


def _address(settings: Settings) -> str:
    if settings.port == 0:
        raise ConfigurationError(
            "the server takes any free port here: name its address with --server"
        )
    host = settings.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _token(settings: Settings) -> str:
    if settings.token is not None:
        return settings.token
    path = Path(settings.data) / "token"
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"there is no token in {str(path)!r}: run this in the folder of the server, name its "
            "data folder with PERDURE_DATA, or set PERDURE_TOKEN"
        ) from error
