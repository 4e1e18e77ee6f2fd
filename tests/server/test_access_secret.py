"""What is secret is in no log, no error and no answer: tokens, cookies, passwords of stores."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from perdure.errors import PerdureError
from perdure.server.access.token_file import add_token, cookie_of, read_tokens
from perdure.server.config import Settings
from perdure.server.served_store import as_journal_store
from perdure.stores import open_store, shown_url
from perdure.stores.jsonl import JsonlStore
from tests.cli.terminal import run
from tests.serving import ServerProcess

SECRET = "s3cret-of-the-store"
URLS = {
    f"postgres://user:{SECRET}@host:5432/db": "postgres://user:***@host:5432/db",
    f"postgres://:{SECRET}@host/db": "postgres://:***@host/db",
    f"postgres://user:{SECRET}@@/x@host/db": "postgres://user:***@host/db",
    f"postgres://host/db?user=a&password={SECRET}&x=1": (
        "postgres://host/db?user=a&password=***&x=1"
    ),
    f"nats://host?token={SECRET}": "nats://host?token=***",
    f"x://host?sslPassword={SECRET}#f": "x://host?sslPassword=***#f",
    f"user:{SECRET}@host": "user:***@host",
    "sqlite:///perdure-data/sessions.db": "sqlite:///perdure-data/sessions.db",
    "sqlite:////srv/a:b@c.db": "sqlite:////srv/a:b@c.db",
    "memory://": "memory://",
}


@pytest.mark.parametrize("url", URLS)
def test_a_store_s_url_is_shown_without_its_secret(url: str) -> None:
    assert shown_url(url) == URLS[url]


@pytest.mark.parametrize("url", [url for url in URLS if SECRET in url])
def test_no_error_and_no_command_shows_the_secret_of_a_url(url: str, tmp_path: Path) -> None:
    with pytest.raises(PerdureError) as refused:
        open_store(url)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(vars(refused.value))
    assert SECRET not in repr(Settings(store=url, token="a-token-0123456789"))
    for verb in (["ls"], ["serve", "--port", "0"], ["verify"]):
        ran = run(*verb, "--store", url, cwd=tmp_path)
        assert ran.returncode != 0
        assert SECRET not in ran.stdout + ran.stderr


async def test_a_store_that_cannot_be_served_is_named_without_its_secret(tmp_path: Path) -> None:
    async with JsonlStore(tmp_path) as store:
        with pytest.raises(PerdureError) as refused:
            as_journal_store(store, f"jsonl://u:{SECRET}@h/x")
    assert SECRET not in str(refused.value)


def test_the_settings_show_no_token() -> None:
    assert "0123456789" not in repr(Settings(token="a-token-0123456789"))
    assert "port=8377" in repr(Settings())


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_of_a_server_with_everything_on_has_no_secret(
    tmp_path: Path, log_format: str
) -> None:
    path = tmp_path / "tokens.toml"
    admin, _ = add_token(path, "root", "admin")
    gone, entry = add_token(path, "anna", "user")
    guess = "a-guess-0123456789-0123456789"
    options = ["--tokens", str(path), "--log-format", log_format, "--requests-per-s", "20"]
    with ServerProcess(tmp_path, options=options) as server:
        secrets = [server.token, admin, gone, guess]
        with httpx.Client(base_url=server.base, timeout=20) as client:
            for token in secrets:
                bearer = {"Authorization": f"Bearer {token}"}
                client.get(f"/?token={token}")
                client.get(f"/?x=1&token={token}&token={token}", headers={"Accept": "text/html"})
                client.post("/v1/sessions", json={"session_id": token[:20]}, headers=bearer)
                client.get(f"/v1/sessions?token={token}", headers=bearer)
                client.get(f"/v1/nothing?token={token}", headers=bearer)
                client.post("/v1/sessions/%ff/messages", content=b"{", headers=bearer)
                client.get("/v1/stream?session=nowhere", headers=bearer)
                client.get("/v1/sessions", headers={"Cookie": f"perdure_x={token}"})
                client.get("/v1/sessions", headers={"Authorization": f"Basic {token}"})
                client.get("/v1/sessions", headers={**bearer, "Host": "evil.example"})
                client.cookies.clear()
            for _ in range(400):
                client.get("/v1/sessions", headers={"Authorization": f"Bearer {guess}"})
            client.post(
                "/v1/sessions/s/messages",
                json={"text": "hello"},
                headers={"Authorization": f"Bearer {admin}"},
            )
        path.write_text(path.read_text().replace(entry.sha256, "x"))
        _raw(server, f"GET /?token={admin} HTTP/9.9\r\nAuthorization: {admin}\r\n\r\n")
        log = _log_until(server, "not in order")
        server.stop()
    log = (tmp_path / "server.log").read_text()
    assert "a token that does not count" in log
    assert log.count("a token that does not count") < 250  # it is bounded, too
    for token in secrets:
        assert token not in log
        assert cookie_of(token) not in log
    for each in read_tokens_of(log, path):
        assert each not in log


def read_tokens_of(log: str, path: Path) -> list[str]:
    """The hashes that the file has, which it had in order before."""
    path.write_text(path.read_text().replace('"x"', f'"{"0" * 64}"'))
    return [entry.sha256 for entry in read_tokens(path)]


def _raw(server: ServerProcess, request: str) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(request.encode())
        connection.recv(1000)


def _log_until(server: ServerProcess, text: str) -> str:
    import time

    for _ in range(100):
        log = (server.folder / "server.log").read_text()
        if text in log:
            return log
        time.sleep(0.1)
    raise AssertionError(log)
