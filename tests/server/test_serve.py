"""`perdure serve` as a process: its first line, its end, its log, and what it refuses."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from perdure.errors import ConfigurationError, StoreUnavailableError
from perdure.server import create_app
from perdure.server.config import Settings
from perdure.server.serve import address_of, bind
from tests.serving import REPO, ServerProcess

LOOP = "perdure.testing.scripted_loop:scripted_by_message"
HANG = '[{"do": "say", "text": "shown", "cut": "hang"}]'


def start_and_fail(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Starts a server that is expected to refuse: its exit status and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "serve", *arguments],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(REPO / "src"), "ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}
        | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b""
    said = done.stderr.decode()
    assert "Traceback" not in said
    return done.returncode, said


def test_it_says_its_address_serves_and_ends_with_success_in_mid_turn(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, loop=LOOP) as server:
        assert server.address == f"{server.base}/?token={server.token}"
        token_file = tmp_path / "data" / "token"
        assert token_file.read_text().strip() == server.token
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        with httpx.Client(base_url=server.base, timeout=20) as browser:
            assert browser.get(server.address).status_code == 303
            assert browser.post("/v1/sessions", json={"session_id": "s"}).status_code == 201
            assert browser.get("/").headers["content-type"].startswith("text/html")
        with httpx.Client(base_url=server.base, headers=server.headers, timeout=20) as client:
            ended = threading.Event()
            shown = threading.Event()

            def watch() -> None:
                with client.stream("GET", "/v1/stream", params={"session": "s"}) as answer:
                    for line in answer.iter_lines():
                        if line in {"event: delta", "event: partial"}:
                            shown.set()
                ended.set()

            viewer = threading.Thread(target=watch)
            viewer.start()
            sent = client.post("/v1/sessions/s/messages", json={"text": HANG})
            assert sent.status_code == 202, sent.text
            assert shown.wait(20)
            assert server.stop() == 0
            viewer.join(20)
            assert ended.is_set()
        log = (tmp_path / "server.log").read_text()
        assert server.token not in log
        assert "Traceback" not in log
        assert "ERROR" not in log
        server.start()
        with httpx.Client(base_url=server.base, headers=server.headers, timeout=20) as client:
            look = client.get("/v1/sessions/s").json()
            assert look["status"] == "interrupted"
            assert look["last_turn"]["reason"] == "interrupted"
        assert server.stop() == 0


def test_a_second_server_on_the_same_store_says_who_has_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, loop=LOOP) as server:
        store = f"sqlite:///{tmp_path / 'sessions.db'}"
        code, said = start_and_fail(tmp_path, "--store", store, "--port", "0", "--loop", "shell")
        assert code == 1
        assert server.base in said


def test_a_file_that_is_no_store_is_refused_before_the_address_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are notes, and no store of anything\n")
    store = f"sqlite:///{tmp_path / 'notes.db'}"
    code, said = start_and_fail(tmp_path, "--store", store, "--port", "0", "--loop", "shell")
    assert code == 1
    assert "is not a SQLite file" in said
    assert (tmp_path / "notes.db").read_text().startswith("these are notes")


async def test_an_application_owns_its_store_from_its_startup_to_its_shutdown(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'sessions.db'}"
    settings = Settings(store=url, token="a-token-for-tests-0123456789", loop="shell")
    one, other = create_app(settings), create_app(settings)
    async with one.router.lifespan_context(one):
        with pytest.raises(StoreUnavailableError, match=f"process {os.getpid()}"):
            async with other.router.lifespan_context(other):
                pass
    async with other.router.lifespan_context(other):
        assert (await other.state.service.registry.list())[0] == []


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, said = start_and_fail(tmp_path, "--port", str(port), "--loop", "shell")
        assert code == 2
        assert str(port) in said
        assert "--port 0" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--loop", "nothing"), "unknown loop 'nothing'"),
        (("--loop", "anthropic:some-model"), "ANTHROPIC_API_KEY"),
        (("--workspace", "nowhere"), "the workspace 'nowhere'"),
        (("--store", "mongo://x"), "unknown store URL"),
        (("--store", "jsonl:///folder"), "cannot be served"),
        (("--host", "0.0.0.0"), "PERDURE_TOKEN"),
        (("--port", "70000"), "--port is not valid"),
    ],
)
def test_what_cannot_work_is_said_and_nothing_is_made(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, said = start_and_fail(tmp_path, "--port", "0", *arguments)
    assert code == 2
    assert says in said
    assert len(said.splitlines()) == 1
    assert [each.name for each in tmp_path.rglob("*") if each.suffix == ".db"] == []


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("[::1]", "http://[::1]:1"),
        ("box.example", "http://box.example:1"),
    ],
)
def test_the_address_can_be_opened_on_this_machine(host: str, address: str) -> None:
    assert address_of(host, 1) == address


def test_a_taken_port_is_refused_before_anything_is_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigurationError, match="cannot listen"):
            bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigurationError, match="is no address"):
        bind("no such host", 0)


def test_many_connections_are_allowed_as_far_as_the_process_may() -> None:
    program = (
        "import resource; from perdure.server.serve import allow_many_connections as allow; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300)); allow(); allow(); "
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stdout.split() == [b"300", b"300"]
