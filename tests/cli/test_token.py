"""`perdure token`: a token is shown once, and afterwards only whose it is."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.terminal import run
from tests.serving import ServerProcess


def test_a_token_is_alone_on_standard_output(tmp_path: Path) -> None:
    made = run("token", "add", "anna", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (token,) = made.stdout.splitlines()
    assert token.startswith("perdure_")
    assert token not in made.stderr
    assert made.stderr.count("\n") == 1
    assert "anna" in made.stderr
    listed = run("token", "ls", cwd=tmp_path)
    assert "anna" in listed.stdout
    assert "user" in listed.stdout
    assert "never" in listed.stdout
    assert token not in listed.stdout + (tmp_path / "perdure-data" / "tokens.toml").read_text()


def test_tokens_are_listed_as_json_and_revoked_by_id_or_name(tmp_path: Path) -> None:
    assert run("token", "ls", cwd=tmp_path).stdout == ""
    assert not (tmp_path / "perdure-data").exists()  # looking makes nothing
    run("token", "add", "anna", "--role", "viewer", "--days", "0.5", cwd=tmp_path)
    run("token", "add", "anna", cwd=tmp_path)
    run("token", "add", "bob", "--role", "admin", cwd=tmp_path)
    lines = run("token", "ls", "--json", cwd=tmp_path).stdout.splitlines()
    first, second, third = map(json.loads, lines)
    assert set(first) == {"id", "principal", "role", "created_at", "expires_at"}
    assert (first["role"], second["role"], third["role"]) == ("viewer", "user", "admin")
    assert first["expires_at"] > first["created_at"]
    assert second["expires_at"] is None
    revoked = run("token", "revoke", third["id"], cwd=tmp_path)
    assert (revoked.returncode, revoked.stdout.split()[:2]) == (0, [third["id"], "bob"])
    assert len(run("token", "revoke", "anna", cwd=tmp_path).stdout.splitlines()) == 2
    assert run("token", "ls", "--json", cwd=tmp_path).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "owner"], "the server's own token"),
        (["add", "a b"], "no name of a principal"),
        (["add", "anna", "--role", "king"], "invalid choice"),
        (["add", "anna", "--days", "0"], "more than 0"),
        (["add", "anna", "--days", "nan"], "more than 0"),
        (["add"], "NAME"),
        (["revoke", "nobody"], "perdure token ls"),
        ([], "WHAT"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    ran = run("token", *arguments, cwd=tmp_path)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "perdure-data" / "tokens.toml").exists()


def test_a_server_that_runs_takes_a_token_up_and_its_sessions_outlive_a_restart(
    tmp_path: Path,
) -> None:
    file = str(tmp_path / "hers.jsonl")
    server = ServerProcess(tmp_path, loop="perdure.testing.scripted_loop:scripted_by_message")
    made = run(
        "token", "add", "anna", "--tokens", str(tmp_path / "data" / "tokens.toml"), cwd=tmp_path
    )
    bearer = {"Authorization": f"Bearer {made.stdout.strip()}"}
    with server, httpx.Client(base_url=server.base, headers=bearer) as anna:
        answer = anna.post("/v1/sessions", json={"session_id": "hers"})
        assert (answer.status_code, answer.json()["owner"]) == (201, "anna")
        anna.post("/v1/sessions/hers/messages", json={"text": "hello"})
        httpx.post(f"{server.base}/v1/sessions", json={"session_id": "s"}, headers=server.headers)
    with server, httpx.Client(base_url=server.base, headers=bearer) as anna:
        (look,) = anna.get("/v1/sessions").json()["sessions"]
        assert (look["session_id"], look["owner"]) == ("hers", "anna")
        assert anna.get("/v1/sessions/s").status_code == 404
        (first, *_) = anna.get("/v1/sessions/hers/entries?after=0").json()["entries"]
        assert (first["type"], first["principal"]) == ("session_owned", "anna")
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    exported = run("export", "hers", file, "--store", store, cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    for verb in (["verify"], ["import", file, "--as", "copy"], ["verify"]):
        ran = run(*verb, "--store", store, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
    with server, httpx.Client(base_url=server.base, headers=bearer) as anna:
        ids = [look["session_id"] for look in anna.get("/v1/sessions").json()["sessions"]]
        assert ids == ["copy", "hers"]
