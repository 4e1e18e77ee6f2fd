"""A running server, as a command talks to it: its address and token are those that are set here.

Nothing but the standard library, so that a command starts fast and needs no extra.
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from perdure.errors import ConfigurationError, PerdureError
from perdure.server.config import Settings, load_settings

TIMEOUT_S = 60.0

SILENCE_S = 40.0
"""A stream that says nothing for so long, not even that it is there, is broken."""

_USAGE = frozenset(
    {"configuration", "invalid_body", "invalid_routine", "invalid_workflow", "missing_extra"}
)


def add_server_to(verb: argparse.ArgumentParser) -> None:
    """Gives a verb the option `--server`."""
    verb.add_argument(
        "--server",
        metavar="URL",
        help="the address of the running server (host and port as perdure serve has them here)",
    )


class UnreachableError(PerdureError):
    """The server cannot be reached, or is gone; it may come back."""


class Remote:
    """The server that is meant, with the token that is set or that it made in its data folder."""

    def __init__(self, named: str | None) -> None:
        settings = load_settings()
        self.address = named.rstrip("/") if named is not None else _address(settings)
        wrong = f"--server is an address like http://host:8377, not {self.address!r}"
        try:
            self._parts = urlsplit(self.address)
            self._port = self._parts.port  # looked at only when it is asked for
        except ValueError as error:
            raise ConfigurationError(wrong) from error
        if self._parts.scheme not in {"http", "https"} or not self._parts.hostname:
            raise ConfigurationError(wrong)
        self._token = _token(settings)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the server, as Python values; None where it has no content.

        Raises:
            PerdureError: the server refuses, with its own words, or cannot be reached.
            ConfigurationError: what was asked for cannot be meant.

        """
        connection = self._connect(TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._parts.path + path, body=sent, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(
                f"there is no server at {self.address} ({error}): start it with perdure serve, or "
                "name its address with --server"
            ) from error
        finally:
            connection.close()
        return _read(answer.status, content, self.address)

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """The events of a stream as they come, each with its name; first of all `("open", None)`.

        It ends when the server ends it; whoever wants to know more looks, and asks again.

        Raises:
            PerdureError: as `ask`.

        """
        connection = self._connect(SILENCE_S)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "text/event-stream"}
        try:
            connection.request("GET", self._parts.path + path, headers=headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                _read(answer.status, answer.read(), self.address)
            yield "open", None
            name = "message"
            for raw in answer:
                field, _, value = raw.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)
                elif not field:
                    name = "message"
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(
                f"the connection to {self.address} broke off ({error})"
            ) from error
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(str(self._parts.hostname), self._port, timeout=timeout_s)


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
