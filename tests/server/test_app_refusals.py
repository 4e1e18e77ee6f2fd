"""Whatever is refused is a problem document with a stable code, and stores nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from perdure.server.config import Settings
from perdure.server.http.app import create_app
from perdure.server.service import Service, open_service
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Say, ScriptedLoop
from tests.server.live import TOKEN, OneLoop


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with serving() as (found, _):
        yield found


class serving:  # noqa: N801
    """The application without a network, on an open service."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(token=TOKEN, **settings)
        self.store = MemoryStore()
        loops = OneLoop(ScriptedLoop([Say("hello")]))
        self.app = create_app(self.settings, store=self.store, loops=loops)
        self._service = open_service(self.settings, self.store, loops)

    async def __aenter__(self) -> tuple[httpx.AsyncClient, Service]:
        service = self.app.state.service = await self._service.__aenter__()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=False),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        return self._client, service

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        await self._service.__aexit__(None, None, None)


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """It is that problem, whole, and shows nothing of the inside."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["type"].endswith(code)
    assert problem["detail"]
    assert problem["title"]
    assert "Traceback" not in answer.text
    return problem


VERBS = (
    ("GET", ""),
    ("DELETE", ""),
    ("GET", "/entries"),
    ("GET", "/entries/1"),
    ("GET", "/entries/1/parts/0"),
    ("GET", "/transcript"),
    ("POST", "/messages"),
    ("POST", "/stop"),
    ("POST", "/resend"),
    ("POST", "/go-on"),
    ("POST", "/reopen"),
    ("DELETE", "/queue/m"),
    ("POST", "/branch"),
    ("POST", "/fork"),
    ("POST", "/compact"),
)
HOSTILE = (
    "",
    "%00",
    "a%0Ab",
    "%7F",
    "%C2%85",
    "%FF",
    "%ED%A0%80",
    "%2E%2E",
    "%2E",
    "%",
    "%zz",
    "a" * 513,
    "%C3%A9" * 257,
)


@pytest.mark.parametrize("encoded", HOSTILE)
@pytest.mark.parametrize(("method", "rest"), VERBS)
async def test_a_hostile_session_id_is_refused_alike_on_every_verb(
    client: httpx.AsyncClient, method: str, rest: str, encoded: str
) -> None:
    answer = await ask(client, method, f"/v1/sessions/{encoded}{rest}", b'{"text":"x"}')
    check(answer, 422, "invalid_session_id")


async def ask(
    client: httpx.AsyncClient, method: str, raw_path: str, body: bytes | None = None
) -> httpx.Response:
    """A request whose path is sent exactly as it is written here."""
    request = client.build_request(method, "/", content=body if method == "POST" else None)
    request.url = _Raw(request.url, raw_path)
    return await client.send(request)


class _Raw(httpx.URL):
    def __init__(self, url: httpx.URL, raw_path: str) -> None:
        super().__init__(url)
        self._raw = raw_path.encode("latin-1")

    @property
    def raw_path(self) -> bytes:
        return self._raw

    @property
    def query(self) -> bytes:
        return self._raw.partition(b"?")[2]

    @property
    def path(self) -> str:
        return self._raw.partition(b"?")[0].decode("latin-1")


@pytest.mark.parametrize("encoded", HOSTILE)
async def test_a_hostile_session_id_is_refused_by_the_stream_too(
    client: httpx.AsyncClient, encoded: str
) -> None:
    path = f"/v1/stream?session={encoded if encoded != '%' and encoded != '%zz' else ''}"
    check(await ask(client, "GET", path), 422, "invalid_session_id")


ODD = ("a/b", "..%2F", "a b", "é🧭", "A", "a", "?x#y", "a%2Fb", "...", "+", "\u2028", "x" * 512)


async def test_each_id_is_its_own_session_whatever_is_in_it(client: httpx.AsyncClient) -> None:
    for session_id in ODD:
        created = await client.post("/v1/sessions", json={"session_id": session_id})
        assert created.status_code == 201, created.text
    from urllib.parse import quote

    for session_id in ODD:
        path = f"/v1/sessions/{quote(session_id, safe='')}"
        assert (await ask(client, "GET", path)).json()["session_id"] == session_id
    listed = (await client.get("/v1/sessions")).json()["sessions"]
    assert [each["session_id"] for each in listed] == list(reversed(ODD))


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/sessions", "/v1/sessions/s/messages", "/v1/stream", "/openapi.json"]
)
async def test_a_verb_that_an_address_does_not_take_is_405(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.patch(path)
    if path == "/v1":
        check(answer, 404, "not_found")
        return
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v1/sessions/s/nothing",
        "/v1/sessions/a/b/entries",
        "/v1/runtimes/nothing",
        "/assets/nothing.js",
        "/assets/..%2Findex.html",
        "/assets/%2e%2e",
        "/V1/health",
        "/v1/health/",
    ],
)
async def test_an_unknown_address_is_404(client: httpx.AsyncClient, path: str) -> None:
    check(await ask(client, "GET", path), 404, "not_found")


@pytest.mark.parametrize(("method", "rest"), VERBS)
async def test_an_unknown_session_is_404_on_every_verb(
    client: httpx.AsyncClient, method: str, rest: str
) -> None:
    body = {"/messages": b'{"text":"x"}', "/branch": b'{"entry_id":null}'}.get(rest, b"{}")
    check(await ask(client, method, f"/v1/sessions/nobody{rest}", body), 404, "session_not_found")
    assert (await client.get("/v1/sessions")).json() == {"sessions": [], "next": None}


BAD_BODIES = (
    (b"", 422, "invalid_body"),
    (b"{", 400, "invalid_json"),
    (b"hello", 400, "invalid_json"),
    (b"\xff", 400, "invalid_json"),
    (b'{"text": NaN}', 400, "invalid_json"),
    (b"[" * 100_000, 400, "invalid_json"),
    (b"[]", 422, "invalid_body"),
    (b"null", 422, "invalid_body"),
    (b"{}", 422, "invalid_body"),
    (b'{"text": 1}', 422, "invalid_body"),
    (b'{"text": "x", "txet": "x"}', 422, "invalid_body"),
    (b'{"text": "x", "parts": []}', 422, "invalid_body"),
    (b'{"text": "x", "if_running": "now"}', 422, "invalid_body"),
    (b'{"text": ""}', 422, "empty_message"),
    (b'{"parts": []}', 422, "empty_message"),
    (b'{"parts": [{"type": "hologram"}]}', 422, "invalid_body"),
    (b'{"parts": [{"type": "tool_result", "call_id": "c"}]}', 422, "invalid_body"),
    (b'{"parts": [{"type": "text"}]}', 422, "invalid_body"),
    (b'{"parts": [{"type": "file", "media_type": "a/b"}]}', 422, "invalid_body"),
    (b'{"parts": [{"type": "file", "media_type": "a/b", "data": "#"}]}', 422, "invalid_body"),
)


@pytest.mark.parametrize(("body", "status", "code"), BAD_BODIES)
async def test_a_bad_message_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, body: bytes, status: int, code: str
) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    check(await client.post("/v1/sessions/s/messages", content=body), status, code)
    assert (await client.get("/v1/sessions/s")).json()["last_seq"] == 0


async def test_a_problem_says_which_field_is_wrong(client: httpx.AsyncClient) -> None:
    body = b'{"parts": [{"type": "text", "text": "x"}, {"type": "hologram"}]}'
    problem = check(await client.post("/v1/sessions/s/messages", content=body), 422, "invalid_body")
    assert "hologram" in problem["detail"]
    assert "$.parts[1].type" in problem["detail"]


@pytest.mark.parametrize("given", [b"\\ud800", b"\\udfff x", b"a\\u0000b"])
async def test_text_that_is_odd_is_accepted_as_text(
    client: httpx.AsyncClient, given: bytes
) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    answer = await client.post("/v1/sessions/s/messages", content=b'{"text":"%b"}' % given)
    assert answer.status_code == 202, answer.text
    page = (await client.get("/v1/sessions/s/entries")).json()["entries"]
    (said,) = (each for each in page if each.get("role") == "user")
    assert said["parts"][0]["text"] == json.loads(b'"%b"' % given).encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16", "replace")


@pytest.mark.parametrize("given", [b"\\ud800", b"a\\udfffb"])
async def test_an_id_that_is_no_text_is_refused_and_not_made_into_another(
    client: httpx.AsyncClient, given: bytes
) -> None:
    body = b'{"session_id":"%b"}' % given
    check(await client.post("/v1/sessions", content=body), 422, "invalid_session_id")
    await client.post("/v1/sessions", json={"session_id": "s"})
    check(await client.post("/v1/sessions/s/fork", content=body), 422, "invalid_session_id")
    listed = (await client.get("/v1/sessions")).json()["sessions"]
    assert [look["session_id"] for look in listed] == ["s"]


@pytest.mark.parametrize("key", [b"", b"a b", b"\xe9", b"x" * 256, b"a\tb"])
async def test_a_bad_idempotency_key_is_refused(client: httpx.AsyncClient, key: bytes) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    answer = await client.post(
        "/v1/sessions/s/messages", json={"text": "x"}, headers={b"Idempotency-Key": key}
    )
    check(answer, 422, "invalid_idempotency_key")


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "", "٣"])
@pytest.mark.parametrize(
    "path", ["/v1/sessions", "/v1/sessions/s/entries", "/v1/sessions/s/transcript"]
)
async def test_a_bad_limit_is_refused(client: httpx.AsyncClient, path: str, limit: str) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    check(await client.get(path, params={"limit": limit}), 422, "invalid_limit")


@pytest.mark.parametrize(
    "query",
    [
        "session=s&after=x",
        "session=s&after=5",
        "session=s&after=-1.abc",
        "session=s&after=1.a b",
        "session=s&after=01.abc",
        "session=s&after=0&after=0",
        "session=s&session=t&after=0",
        "session=s&after=",
        "session=s&after=99999999999999999999.a",
    ],
)
async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, query: str) -> None:
    for session_id in ("s", "t"):
        await client.post("/v1/sessions", json={"session_id": session_id})
    check(await client.get(f"/v1/stream?{query}"), 422, "invalid_cursor")
    header = {"Last-Event-ID": "5"}
    check(await client.get("/v1/stream?session=s", headers=header), 422, "invalid_cursor")
    header = {"Last-Event-ID": "0,0"}
    check(await client.get("/v1/stream?session=s", headers=header), 422, "invalid_cursor")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "no_session"),
        ("after=0", "no_session"),
        ("session=s&session=s", "duplicate_session"),
        ("listing=2", "invalid_listing"),
        ("&".join(f"session={n}" for n in range(201)), "too_many_sessions"),
    ],
)
async def test_a_stream_of_nothing_sensible_is_refused(
    client: httpx.AsyncClient, query: str, code: str
) -> None:
    check(await client.get(f"/v1/stream?{query}"), 422, code)


async def test_pages_refuse_cursors_from_elsewhere(client: httpx.AsyncClient) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    for params in ({"after": "x"}, {"before": "-1"}, {"after": "0.elsewhere"}):
        answer = await client.get("/v1/sessions/s/entries", params=params)
        check(answer, 422, "invalid_cursor")
    check(await client.get("/v1/sessions", params={"after": "x"}), 422, "invalid_cursor")
    answer = await client.get("/v1/sessions/s/transcript", params={"before": "nobody"})
    check(answer, 404, "entry_not_found")


class Endless(httpx.AsyncByteStream):
    """A body without an end, and how much of it was taken."""

    taken = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self.taken += 100
        return b"x" * 100


async def test_a_body_above_the_bound_is_refused_while_it_is_read() -> None:
    async with serving(max_body_bytes=1000) as (client, _):
        await client.post("/v1/sessions", json={"session_id": "s"})
        path, body = "/v1/sessions/s/messages", Endless()
        url = client.base_url.join(path)
        headers = {**client.headers, "Host": "localhost"}
        request = httpx.Request("POST", url, headers=headers, stream=body)
        check(await client.send(request), 413, "body_too_large")
        assert body.taken < 2000
        check(await client.post(path, content=b"x" * 1001), 413, "body_too_large")


async def test_what_nobody_foresaw_is_500_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (client, service):

        async def broken(session_id: str) -> None:
            raise ZeroDivisionError("the secret inside")

        monkeypatch.setattr(service.registry, "look", broken)
        answer = await client.get("/v1/sessions/s")
        check(answer, 500, "internal")
        assert "secret" not in answer.text
        assert "the secret inside" in caplog.text


async def test_a_second_create_answers_200_and_changes_nothing(client: httpx.AsyncClient) -> None:
    first = await client.post("/v1/sessions", json={"session_id": "s"})
    second = await client.post("/v1/sessions", json={"session_id": "s"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()


async def test_a_fork_into_a_taken_id_is_409(client: httpx.AsyncClient) -> None:
    await client.post("/v1/sessions", json={"session_id": "s"})
    answer = await client.post("/v1/sessions/s/fork", json={"session_id": "s"})
    check(answer, 409, "session_exists")


async def test_the_same_key_with_another_body_is_422() -> None:
    async with serving() as (client, service):
        await client.post("/v1/sessions", json={"session_id": "s"})
        key = {"Idempotency-Key": "k"}
        path = "/v1/sessions/s/messages"
        first = await client.post(path, json={"text": "one"}, headers=key)
        again = await client.post(path, json={"text": "one"}, headers=key)
        other = await client.post(path, json={"text": "two"}, headers=key)
        assert first.json()["message_id"] == again.json()["message_id"]
        check(other, 422, "idempotency_conflict")
        said = [
            each
            for each in (await service.registry.entries("s")).entries
            if each.raw.find(b'"role":"user"') > 0
        ]
        assert len(said) == 1
        assert b'"text":"one"' in said[0].raw
