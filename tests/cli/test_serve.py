"""`serve` as a command: its first line, its end, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.terminal import DEADLINE_S, environment, run


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in `folder`, and the address that it printed."""
    command = [sys.executable, "-m", "perdure", "serve", "--port", "0", *arguments]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_the_first_line_is_the_address_and_sigterm_is_a_clean_end(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, address):
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        assert parts.query.startswith("token=")
        with urllib.request.urlopen(f"http://{parts.netloc}/v1/health") as answer:
            health = json.load(answer)
        assert health["loop"] == "shell"
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        assert parts.query.removeprefix("token=") not in (tmp_path / "log").read_text()


def test_a_second_server_on_the_store_is_told_who_has_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, address):
        ran = run("serve", "--port", "0", cwd=tmp_path)
        assert ran.returncode == 1
        assert f"process {process.pid}" in ran.stderr.splitlines()[-1]
        assert ran.stderr.splitlines()[-1].startswith("perdure: ")
        assert address
        assert ran.stdout == ""


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, address):
        port = str(urlsplit(address).port)
        ran = run("serve", "--port", port, "--data", "other", cwd=tmp_path)
        assert ran.returncode == 2
        assert f"port {port}" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError('No module named starlette', name='starlette')\n"
    )
    hidden = {"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"}
    ran = run("serve", "--port", "0", cwd=tmp_path, env=hidden)
    assert ran.returncode == 2
    assert ran.stderr == (
        'perdure: perdure serve needs the extra "server": pip install "perdure[server]"\n'
    )


def test_the_sessions_of_a_running_server_can_be_read(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, address):
        parts = urlsplit(address)
        request = urllib.request.Request(
            f"http://{parts.netloc}/v1/sessions",
            data=b'{"session_id": "s"}',
            headers={
                "Authorization": f"Bearer {parts.query.removeprefix('token=')}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 201
        assert run("ls", cwd=tmp_path).stdout.splitlines()[1].split()[0] == "s"
        assert run("verify", cwd=tmp_path).returncode == 0


def test_the_help_says_what_an_option_is_given(tmp_path: Path) -> None:
    told = run("serve", "--help", cwd=tmp_path).stdout
    assert "--requests-per-s NUMBER" in told
    assert "--retain-dry-run TRUE|FALSE" in told
    assert "--grace-s SECONDS" in told
