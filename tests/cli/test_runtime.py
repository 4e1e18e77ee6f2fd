"""`runtime` as a command: what it refuses, and that it ends only where trying again cannot help."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.terminal import DEADLINE_S, environment, run
from tests.cli.test_serve import serving
from tests.serving import free_port

TOKEN = "a-token-for-tests-0123456789"
URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--connect"),
        (("--connect", URL), "PERDURE_TOKEN"),
        (("--connect", URL, "--token", "t", "--workspace", "nowhere"), "nowhere"),
        (("--connect", "ftp://x", "--token", "t"), "no address of a server"),
        (("--connect", "http://me:it@x", "--token", "t"), "no address of a server"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    ran = run("runtime", *arguments, cwd=tmp_path)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_table_of_mcp_servers_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text("[mcp.x]\ncolour = 1")
    ran = run("runtime", "--connect", URL, "--token", "t", cwd=tmp_path)
    assert ran.returncode == 2
    assert "[mcp.x] in perdure.toml" in ran.stderr
    served = run("serve", "--port", "0", cwd=tmp_path)
    assert served.returncode == 2
    assert "[mcp.x] in perdure.toml" in served.stderr


def test_a_token_that_does_not_count_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, address):
        base = f"http://{urlsplit(address).netloc}"
        ran = run("runtime", "--connect", base, "--token", "x" * 20, cwd=tmp_path)
        assert ran.returncode == 2
        assert "401" in ran.stderr
        token = urlsplit(address).query.removeprefix("token=")
        ran = run("runtime", "--connect", base, "--token", token, "--name", "local", cwd=tmp_path)
        assert ran.returncode == 2
        assert "--name" in ran.stderr


def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "perdure", "runtime", "--connect", f"http://127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--name", "mine"],
        cwd=tmp_path,
        env=environment() | {"PERDURE_TOKEN": TOKEN},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            assert "tries again" in process.stderr.readline()
            (tmp_path / "perdure.toml").write_text(f'token = "{TOKEN}"')
            with serving(tmp_path, "--port", str(port)):
                for line in process.stderr:
                    if "attached to" in line:
                        break
                process.send_signal(signal.SIGTERM)
                assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
