"""The file of tokens: what it holds, who may change it, and that a server keeps up with it."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from perdure import clock
from perdure.errors import ConfigurationError
from perdure.server import create_app
from perdure.server.access.keyring import Keyring
from perdure.server.access.principal import RIGHTS, ROLES, Role
from perdure.server.access.token_file import (
    add_token,
    cookie_of,
    edit_tokens,
    read_tokens,
    revoke_tokens,
)
from perdure.server.config import Settings
from perdure.server.http.operation import OPERATIONS
from perdure.server.own_token import load_keyring, load_token
from perdure.stores.memory import MemoryStore
from perdure.testing import ManualClock
from tests.server.live import TOKEN
from tests.server.people import People, make, people
from tests.server.test_app_refusals import check


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path) as found:
        yield found


# The file


def test_a_token_is_in_no_file_and_its_cookie_neither(tmp_path: Path) -> None:
    path = tmp_path / "data" / "tokens.toml"
    token, entry = add_token(path, "anna", "user")
    assert token.startswith("perdure_")
    assert len(token) >= 50
    content = path.read_text()
    assert token not in content
    assert cookie_of(token) not in content
    assert read_tokens(path) == (entry,)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["tokens.toml"]


def test_tokens_come_and_go_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    tomorrow = clock.now().replace(microsecond=0) + timedelta(days=1)
    kept = [add_token(path, "anna", role, expires_at=tomorrow)[1] for role in ROLES]
    _, gone = add_token(path, "bob", "user")
    assert revoke_tokens(path, gone.id) == (gone,)
    assert list(read_tokens(path)) == kept
    assert revoke_tokens(path, kept[0].id) == (kept[0],)
    assert list(revoke_tokens(path, "anna")) == kept[1:]
    assert read_tokens(path) == ()
    with pytest.raises(ConfigurationError, match="perdure token ls"):
        revoke_tokens(path, "anna")


async def test_two_who_add_at_once_both_do(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    made = await asyncio.gather(
        *(asyncio.to_thread(add_token, path, f"p{n}", "user") for n in range(20))
    )
    assert {entry.id for _, entry in made} == {entry.id for entry in read_tokens(path)}
    assert os.listdir(tmp_path) == ["tokens.toml"]


@pytest.mark.parametrize("name", ["", "owner", "a b", "-a", "é", "a\n", 'a"b', "a" * 65, "../x"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError):
        add_token(tmp_path / "tokens.toml", name, "user")
    assert list(tmp_path.iterdir()) == []


GOOD = """
[[tokens]]
id = "00000000"
principal = "anna"
role = "user"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
created_at = 2026-01-01T00:00:00Z
"""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[[tokens]", "line 1"),
        ("tokens = 1", "array"),
        (GOOD.replace("user", "king"), "king"),
        (GOOD.replace("sha256", "sha512"), "sha512"),
        (GOOD.replace('role = "user"', ""), "role"),
        (GOOD.replace("anna", "owner"), "server's own token"),
        (GOOD.replace("anna", "an na"), "principal"),
        (GOOD.replace("00:00Z", "00:00"), "created_at"),
        (GOOD.replace("0" * 64, "0" * 63), "sha256"),
        (GOOD + GOOD.replace("00000000\"\np", "00000001\"\np"), "two tokens have the sha256"),
        (GOOD + GOOD, "two tokens have the id"),
        ("x = 1", "x"),
        ("#" * (4 * 1024 * 1024 + 1), "more than"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_in_order_is_refused_and_says_where(
    tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=says):
        read_tokens(path)
    with pytest.raises(ConfigurationError, match="tokens file"):
        add_token(path, "bob", "user")
    assert path.read_text() == content


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(GOOD)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_tokens(path)


def test_a_mounted_secret_is_a_link_and_is_read(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "t").touch(mode=0o600)
    (tmp_path / "..data" / "t").write_text(GOOD)
    (tmp_path / "t").symlink_to("..data/t")
    assert len(read_tokens(tmp_path / "t")) == 1
    add_token(tmp_path / "t", "bob", "user")
    assert (tmp_path / "t").is_symlink()
    assert len(read_tokens(tmp_path / "..data" / "t")) == 2


# Roles


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_may_is_what_the_table_says(here: People, role: Role) -> None:
    client = await here.come("anna", role)
    for operation in OPERATIONS:
        if operation.handler is None:
            continue
        path = operation.path.replace("{session_id}", "nowhere")
        answer = await client.request(operation.method, path, json={})
        if operation.is_public or operation.needs in RIGHTS[role]:
            assert answer.status_code not in {401, 403}, operation
        else:
            assert check(answer, 403, "not_allowed")["detail"].count(role) >= 1
    stream = await client.head("/v1/stream?listing=1")
    assert stream.status_code == (403 if role == "runtime" else 200)
    metrics = await client.get("/metrics")
    assert (metrics.status_code == 403) == (role in {"user", "runtime"})


async def test_a_viewer_reads_what_its_principal_has_and_changes_nothing(here: People) -> None:
    anna, viewer = await here.come("anna"), await here.come("anna", "viewer")
    bob = await here.come("bob")
    await make(anna, "hers", "hello")
    await make(bob, "his", "hello")
    assert (await viewer.get("/v1/sessions/hers/entries")).status_code == 200
    check(await viewer.get("/v1/sessions/his/entries"), 404, "session_not_found")
    answers = [
        (await viewer.post(f"/v1/sessions/{each}/messages", json={"text": "x"})).text
        for each in ("hers", "his", "nowhere")
    ]
    assert len(set(answers)) == 1
    check(await viewer.post("/v1/sessions", json={}), 403, "not_allowed")


# Keeping up


async def until_status(client: httpx.AsyncClient, status: int) -> None:
    for _ in range(100):
        if (await client.get("/v1/sessions")).status_code == status:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(status)


async def looked(here: People) -> None:
    """The server has looked at the file since."""
    await here.server.access.keyring.refresh()


@pytest.mark.parametrize("role", sorted(set(ROLES) - {"runtime"}))
async def test_who_asks_is_told_who_they_are_and_what_they_may(here: People, role: Role) -> None:
    told = (await (await here.come("anna", role)).get("/v1/me")).json()
    assert told == {"principal": "anna", "role": role, "rights": sorted(RIGHTS[role])}


async def test_a_token_counts_as_soon_as_it_is_in_the_file_and_as_long(here: People) -> None:
    token, entry = add_token(here.path, "anna", "user")
    anna = await here.with_token(token)
    await until_status(anna, 200)
    revoke_tokens(here.path, entry.id)
    await until_status(anna, 401)


async def test_a_revocation_that_could_not_be_read_is_read_at_the_next_look(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.toml"
    anna, _ = add_token(path, "anna", "user")
    bob, _ = add_token(path, "bob", "user")
    keyring = Keyring(None, path)
    keyring.load()
    await keyring.refresh()  # its thread is there
    revoke_tokens(path, "anna")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))  # nothing can be opened
    try:
        for _ in range(3):
            await keyring.refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert keyring.of_token(anna) is not None
    assert keyring.problem is not None
    assert caplog.text.count("what it said before counts") == 1
    await keyring.refresh()
    assert keyring.problem is None
    assert keyring.of_token(anna) is None
    assert keyring.of_token(bob) is not None


async def test_a_look_that_fails_is_not_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    anna, _ = add_token(path, "anna", "user")
    keyring = Keyring(None, path)
    keyring.load()
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("this connection cannot be ended")

    manual = ManualClock()
    with clock.use(manual):
        watching = asyncio.create_task(keyring.watch(look))
        try:
            revoke_tokens(path, "anna")
            for _ in range(100):
                await manual.advance(1.0)
                await asyncio.sleep(0.01)
                if looks > 1:
                    break
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    assert looks > 1
    assert keyring.of_token(anna) is None


def test_a_file_that_is_nested_without_end_is_not_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("tokens = " + "[" * 100_000)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="not in order"):
        read_tokens(path)


async def test_the_cookie_of_a_token_is_void_with_it(here: People) -> None:
    await here.come("anna")
    browser = await here.with_token(None)
    opened = await browser.get(f"/?token={here.tokens['anna']}")
    assert opened.status_code == 303
    assert here.tokens["anna"] not in str(opened.headers)
    await make(browser, "hers")
    assert (await browser.get("/v1/sessions/hers")).json()["owner"] == "anna"
    revoke_tokens(here.path, "anna")
    await looked(here)
    check(await browser.get("/v1/sessions/hers"), 401, "unauthorised")
    check(await browser.get(f"/?token={here.tokens['anna']}"), 401, "unauthorised")
    assert (await here.admin.get("/v1/sessions/hers")).status_code == 200


async def test_the_token_that_was_opened_last_is_the_browser_s(here: People) -> None:
    await here.come("anna")
    await here.come("bob")
    browser = await here.with_token(None)
    for name in ("anna", "bob"):
        assert (await browser.get(f"/?token={here.tokens[name]}")).status_code == 303
    assert len(browser.cookies) == 1
    await make(browser, "s")
    assert (await here.admin.get("/v1/sessions/s")).json()["owner"] == "bob"


async def test_a_hash_from_the_file_opens_nothing(here: People) -> None:
    await here.come("anna")
    browser = await here.with_token(None)
    await browser.get(f"/?token={here.tokens['anna']}")
    ((name, _),) = browser.cookies.items()
    (entry,) = read_tokens(here.path)
    nobody = await here.with_token(entry.sha256)
    check(await nobody.get("/v1/sessions"), 401, "unauthorised")
    nobody = await here.with_token(None)
    for value in (entry.sha256, here.tokens["anna"]):
        answer = await nobody.get("/v1/sessions", headers={"Cookie": f"{name}={value}"})
        check(answer, 401, "unauthorised")


async def test_a_file_that_breaks_leaves_what_it_said_before(
    here: People, caplog: pytest.LogCaptureFixture
) -> None:
    anna = await here.come("anna")
    good = here.path.read_text()
    here.path.write_text(good + "[[")
    await looked(here)
    assert (await anna.get("/v1/sessions")).status_code == 200
    ready = await anna.get("/v1/ready")
    assert ready.status_code == 200
    assert "what it said before counts" in ready.json()["warnings"][0]
    assert str(here.path) not in ready.text  # nobody has to show a token to read this
    assert str(here.path) in caplog.text
    lines = len(caplog.records)
    await looked(here)
    assert len(caplog.records) == lines  # once for each change
    here.path.write_text(good.replace('role = "user"', 'role = "viewer"'))
    await looked(here)
    assert (await anna.get("/v1/ready")).json() == {"status": "ready"}
    check(await anna.post("/v1/sessions", json={}), 403, "not_allowed")


async def test_a_file_that_is_removed_revokes_its_tokens(here: People) -> None:
    anna = await here.come("anna")
    here.path.unlink()
    await looked(here)
    check(await anna.get("/v1/sessions"), 401, "unauthorised")
    assert (await here.admin.get("/v1/sessions")).status_code == 200
    anna = await here.come("anna")
    assert (await anna.get("/v1/sessions")).status_code == 200


async def test_an_expired_token_counts_no_more(tmp_path: Path) -> None:
    manual = ManualClock()
    with clock.use(manual):
        expires_at = clock.now() + timedelta(hours=1)
        token, _ = add_token(tmp_path / "t", "anna", "user", expires_at=expires_at)
        keyring = Keyring(None, tmp_path / "t")
        keyring.load()
        grant = keyring.of_token(token)
        assert grant is not None
        assert keyring.is_valid(grant)
        await manual.advance(3600)
        assert keyring.of_token(token) is None
        assert keyring.of_cookie(cookie_of(token)) is None
        assert not keyring.is_valid(grant)


# Starting


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_beyond_loopback_it_starts_with_a_tokens_file(tmp_path: Path, host: str) -> None:
    path = tmp_path / "tokens.toml"
    settings = Settings(host=host, data=str(tmp_path))
    with pytest.raises(ConfigurationError, match="perdure token"):
        settings.check()
    add_token(path, "anna", "admin")
    settings.check()
    assert load_token(settings) is None  # nobody comes in with a token that nobody chose
    assert load_keyring(settings, None).count == 1
    create_app(settings, store=MemoryStore())
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.toml"]


def test_beyond_loopback_an_empty_file_starts_nothing(tmp_path: Path) -> None:
    edit_tokens(tmp_path / "tokens.toml", lambda entries: ())
    with pytest.raises(ConfigurationError, match="perdure token add"):
        create_app(Settings(host="0.0.0.0", data=str(tmp_path)), store=MemoryStore())


def test_a_file_that_is_named_and_not_there_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="perdure token add"):
        Settings(tokens=str(tmp_path / "nowhere")).check()


def test_a_file_that_is_broken_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokens.toml").write_text("[")
    with pytest.raises(ConfigurationError, match="not in order"):
        create_app(Settings(token=TOKEN, data=str(tmp_path)), store=MemoryStore())


async def test_the_server_s_own_token_and_those_of_the_file_count_together(here: People) -> None:
    anna = await here.come("anna")
    for client in (here.admin, anna):
        assert (await client.get("/v1/sessions")).status_code == 200
    nobody: httpx.AsyncClient = await here.with_token(None)
    check(await nobody.get("/v1/sessions"), 401, "unauthorised")
