"""Who gets in: the token, its cookie, Host names, origins; and who may not even start."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from perdure.errors import ConfigurationError
from perdure.server import create_app
from perdure.server.config import Settings
from perdure.server.own_token import load_token
from tests.server.live import TOKEN, running
from tests.server.test_app_refusals import check, serving


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client that has shown nothing yet."""
    async with serving(hosts=("box.example",), origins=("https://page.example",)) as (found, _):
        del found.headers["authorization"]
        yield found


BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/stream?session=s", "/v1/sessions/s", "/x"])
async def test_without_the_token_everything_is_401(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    check(answer, 401, "unauthorised")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header", [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer ", ""]
)
async def test_another_token_is_401(client: httpx.AsyncClient, header: str) -> None:
    answer = await client.get("/v1/sessions", headers={"Authorization": header})
    check(answer, 401, "unauthorised")


async def test_the_token_as_bearer_gets_in(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/sessions", headers=BEARER)).status_code == 200
    other = {"Authorization": f"bearer {TOKEN}"}
    assert (await client.get("/v1/sessions", headers=other)).status_code == 200


async def test_the_printed_address_gives_a_cookie_and_leads_to_a_clean_one(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.get(f"/?token={TOKEN}&session=a%2Fb")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/?session=a%2Fb"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {x.strip() for x in cookie.split(";")}
    assert TOKEN not in str(answer.headers)
    assert (await client.get("/v1/sessions")).status_code == 200


@pytest.mark.parametrize(
    ("proxies", "sent", "is_secure"),
    [
        (["127.0.0.1"], "https", True),
        (["127.0.0.0/8", "::1"], "https", True),
        (["127.0.0.1"], "http", False),
        (["127.0.0.1"], None, False),
        (["10.0.0.1"], "https", False),
        ([], "https", False),
    ],
)
async def test_a_cookie_that_came_by_tls_through_a_proxy_is_for_tls_only(
    proxies: list[str], sent: str | None, is_secure: bool
) -> None:
    async with running(settings={"proxies": tuple(proxies)}) as server:
        headers = {} if sent is None else {"X-Forwarded-Proto": sent}
        answer = await server.client.get(f"/?token={TOKEN}", headers=headers)
        attributes = {each.strip() for each in answer.headers["set-cookie"].split(";")}
        assert ("Secure" in attributes) is is_secure
        assert answer.headers["location"] == "/"


def test_a_proxy_without_an_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="which is no address"):
        Settings(proxies=("proxy.example",)).check()


async def test_a_wrong_token_in_the_address_gives_no_cookie(client: httpx.AsyncClient) -> None:
    for wrong in ("x", "", "é"):
        answer = await client.get("/", params={"token": wrong})
        check(answer, 401, "unauthorised")
        assert "set-cookie" not in answer.headers


async def test_a_made_up_cookie_is_401(client: httpx.AsyncClient) -> None:
    name = (await client.get(f"/?token={TOKEN}")).headers["set-cookie"].partition("=")[0]
    client.cookies.clear()
    for value in (TOKEN, "x", ""):
        answer = await client.get("/v1/sessions", headers={"Cookie": f"{name}={value}"})
        check(answer, 401, "unauthorised")


async def test_the_page_and_the_liveness_answer_need_no_token(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1/health", "/openapi.json"):
        assert (await client.get(path)).status_code == 200
    assert (await client.get("/v1/health")).json()["status"] == "ok"


@pytest.mark.parametrize(
    "path", ["/assets%2F..%2Fv1/sessions", "/assets/../v1/sessions", "/v1/health%2F..%2Fsessions"]
)
async def test_no_spelling_of_a_public_path_opens_another(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code in {401, 404}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5", "", "a@b",
     "localhost:80:80", "evil.example#localhost", "[::2]"],
)  # fmt: skip
async def test_another_host_name_is_refused(client: httpx.AsyncClient, host: str) -> None:
    for path in ("/", "/v1/health", "/v1/sessions"):
        answer = await client.get(path, headers={**BEARER, "Host": host})
        check(answer, 421, "host_not_allowed")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8377", "127.0.0.1:1", "[::1]:80", "[::1]", "box.example",
     "localhost."],
)  # fmt: skip
async def test_the_allowed_host_names_are_answered(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/v1/sessions", headers={**BEARER, "Host": host})).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "http://localhost:3000", "null", "http://localhost.evil.example",
     "http://evil.example/localhost", "", "localhost"],
)  # fmt: skip
async def test_another_origin_is_refused_on_everything(
    client: httpx.AsyncClient, origin: str
) -> None:
    headers = {**BEARER, "Origin": origin}
    for method, path in (("GET", "/v1/health"), ("POST", "/v1/sessions"), ("GET", "/")):
        answer = await client.request(method, path, headers=headers)
        check(answer, 403, "foreign_origin")
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["http://localhost", "http://localhost:80", "https://page.example"]
)
async def test_its_own_origin_and_those_that_were_set_are_answered(
    client: httpx.AsyncClient, origin: str
) -> None:
    headers = {**BEARER, "Origin": origin, "Host": "localhost"}
    assert (await client.get("/v1/sessions", headers=headers)).status_code == 200


async def test_every_answer_has_the_safe_headers(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1/health", "/v1/sessions", "/nothing"):
        answer = await client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "data"))
    token = load_token(settings)
    assert token is not None
    assert len(token) >= 40
    assert load_token(settings) == token
    path = tmp_path / "data" / "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_a_token_that_is_there_is_read_on_a_full_disk(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path))
    token = load_token(settings)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no byte can be written
    try:
        with pytest.raises(ConfigurationError):
            load_token(Settings(data=str(tmp_path / "new")))
        assert load_token(settings) == token
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_every_folder_that_the_data_needs_is_its_owner_s_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        load_token(Settings(data=str(tmp_path / "a" / "b" / "c")))
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in tmp_path.rglob("*")
        if path.is_dir()
    }
    assert modes == {"a": 0o700, "b": 0o700, "c": 0o700}


@pytest.mark.parametrize("content", ["", "short", "with a space in the middle", "é" * 20])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(ConfigurationError, match="holds no token"):
        load_token(Settings(data=str(tmp_path)))


def test_a_link_in_the_token_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(TOKEN)
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="cannot be kept"):
        load_token(Settings(data=str(tmp_path)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
def test_beyond_loopback_it_does_not_start_without_a_token_of_one_s_own(host: str) -> None:
    with pytest.raises(ConfigurationError, match="PERDURE_TOKEN"):
        Settings(host=host).check()
    Settings(host=host, token=TOKEN).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.1.2.3"])
def test_on_loopback_it_starts_without(host: str) -> None:
    settings = Settings(host=host)
    settings.check()
    assert settings.is_loopback


async def test_mounted_elsewhere_it_lets_in_and_keeps_out_the_same() -> None:
    async with serving() as (_, service):
        app = create_app(service.settings, store=service.store, loops=service.loops)
        app.state.service = service
        outer = httpx.ASGITransport(Starlette(routes=[Mount("/sub", app)]))
        async with httpx.AsyncClient(transport=outer, base_url="http://localhost") as client:
            assert (await client.get("/sub/")).status_code == 200
            assert (await client.get("/sub/v1/health")).status_code == 200
            check(await client.get("/sub/v1/sessions"), 401, "unauthorised")
            opened = await client.get(f"/sub/?token={TOKEN}")
            assert (opened.status_code, opened.headers["location"]) == (303, "/sub/")
            assert "Path=/sub/" in opened.headers["set-cookie"]
            assert (await client.get("/sub/v1/sessions")).status_code == 200
            assert (await client.get("/sub/v1/sessions/a%2Fb")).status_code == 404
