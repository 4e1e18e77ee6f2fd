"""What an operator relies on: readiness, grace, metrics, traces, and a log that machines read."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure.errors import StoreUnavailableError
from perdure.fact import TurnEnded
from perdure.server.telemetry.logs import JsonFormatter
from perdure.store import LookPage
from perdure.stores.memory import MemoryStore
from perdure.testing.scripted_loop import Fail, Say, ScriptedLoop
from tests.server.live import Running, running, until
from tests.serving import ServerProcess


class RefusingStore(MemoryStore):
    """Refuses to be read while it is told to."""

    refuses = False

    async def list_sessions(
        self, *, limit: int = 50, after: str | None = None, owner: str | None = None
    ) -> LookPage:
        if self.refuses:
            raise StoreUnavailableError("the disk is gone")
        return await super().list_sessions(limit=limit, after=after, owner=owner)


async def ready(server: Running) -> tuple[int, Any]:
    async with httpx.AsyncClient(base_url=server.base) as nobody:
        answer = await nobody.get("/v1/ready")
        return answer.status_code, answer.json()


async def test_it_is_not_ready_while_its_store_refuses() -> None:
    store = RefusingStore()
    async with running(store=store) as server:
        assert await ready(server) == (200, {"status": "ready"})
        store.refuses = True
        status, problem = await ready(server)
        assert (status, problem["code"]) == (503, "not_ready")
        assert "the disk is gone" in problem["detail"]
        store.refuses = False
        assert (await ready(server))[0] == 200


async def reasons(store: MemoryStore) -> list[str]:
    views = [each.view for each in await store.load_entries("s")]
    return [view.reason for view in views if isinstance(view, TurnEnded)]


async def test_a_turn_gets_its_grace_and_streams_are_told_to_come_back() -> None:
    store = MemoryStore()
    loop = ScriptedLoop([Say("x" * 50, delta_chars=1, delay_s=0.01)])
    async with running(loop, store=store, settings={"grace_s": 30}) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.raw_stream(("session", "s"), ("after", "0")) as chunks:
            await server.send("s", "hi")
            shown = b""
            while b"event: delta" not in shown:
                shown += await anext(chunks)
            draining = asyncio.create_task(server.service.drain())
            await asyncio.sleep(0)
            assert (await ready(server))[0] == 503
            refused = await server.client.post("/v1/sessions/s/messages", json={"text": "more"})
            assert (refused.status_code, refused.json()["code"]) == (503, "server_closing")
            async for chunk in chunks:
                shown += chunk
            await draining
    assert await reasons(store) == ["completed"]
    assert b'"reason":"completed"' in shown
    assert shown.endswith(b"\nretry: 1000\n\n")


async def test_a_turn_that_takes_longer_than_the_grace_is_interrupted() -> None:
    store = MemoryStore()
    loop = ScriptedLoop([Say("shown", cut="hang")])
    async with running(loop, store=store, settings={"grace_s": 0.05}) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            await until(events, "delta")
    assert await reasons(store) == ["interrupted"]


async def test_metrics_count_turns_requests_and_viewers() -> None:
    async with running() as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            await until(events, "status", status="idle", last_seq=5)
            answer = await server.client.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain")
            lines = answer.text.split("\n")
        assert 'perdure_turns_total{reason="completed"} 1.0' in lines
        assert "perdure_turn_seconds_count 1.0" in lines
        assert "perdure_turns_running 0.0" in lines
        assert "perdure_viewers 1.0" in lines
        assert "perdure_watched_sessions 1.0" in lines
        assert "perdure_live_actors 1.0" in lines
        assert 'perdure_http_requests_total{method="POST",status="202"} 1.0' in lines
        async with httpx.AsyncClient(base_url=server.base) as nobody:
            assert (await nobody.get("/metrics")).status_code == 401


@pytest.fixture(scope="module")
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


async def test_a_turn_is_a_span_by_the_genai_conventions(spans: InMemorySpanExporter) -> None:
    loop = ScriptedLoop([Say("one")], [Fail("broken")])
    async with running(loop) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.stream(("session", "s"), ("after", "0")) as events:
            for _ in range(2):
                await server.send("s", "hi")
                await until(events, "entry", type="turn_ended")
                await server.service.observer.until_rest()
    ended = [span for span in spans.get_finished_spans() if span.name == "invoke_agent scripted"]
    assert [dict(span.attributes or {})["perdure.turn.reason"] for span in ended] == [
        "completed",
        "failed",
    ]
    first = dict(ended[0].attributes or {})
    assert first["gen_ai.operation.name"] == "invoke_agent"
    assert first["gen_ai.conversation.id"] == "s"
    assert ended[1].status.status_code is trace.StatusCode.ERROR


def test_a_record_is_one_line_of_json() -> None:
    try:
        raise ValueError("line\nbreak")
    except ValueError:
        caught = sys.exc_info()
    record = logging.LogRecord("perdure", logging.ERROR, "f", 1, "said %s", ("é\n",), caught)
    record.session_id = "s"
    line = JsonFormatter().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["message"], said["session_id"], said["level"]) == ("said é\n", "s", "error")
    assert "ValueError" in said["exception"]


def test_a_server_s_log_names_session_and_turn(tmp_path: Path) -> None:
    loop = "perdure.testing.scripted_loop:scripted_by_message"
    with ServerProcess(tmp_path, loop=loop, options=["--log-format", "json"]) as server:
        with httpx.Client(base_url=server.base, headers=server.headers, timeout=20) as client:
            client.post("/v1/sessions", json={"session_id": "s"})
            sent = client.post("/v1/sessions/s/messages", json={"text": "hi"}).json()
            while client.get("/v1/sessions/s").json()["status"] == "running":
                pass
        assert server.stop() == 0
        lines = [json.loads(x) for x in (tmp_path / "server.log").read_text().splitlines()]
    turns = [line for line in lines if line.get("turn_id") == sent["turn_id"]]
    assert [line.get("reason", "started") for line in turns] == ["started", "completed"]
    assert {line["session_id"] for line in turns} == {"s"}


def test_sigterm_lets_a_running_turn_end(tmp_path: Path) -> None:
    loop = "perdure.testing.scripted_loop:scripted_by_message"
    say = {"do": "say", "text": "x" * 60, "delta_chars": 1, "delay_s": 0.01}
    with ServerProcess(tmp_path, loop=loop, options=["--grace-s", "30"]) as server:
        with httpx.Client(base_url=server.base, headers=server.headers, timeout=20) as client:
            client.post("/v1/sessions", json={"session_id": "s"})
            client.post("/v1/sessions/s/messages", json={"text": json.dumps([say])})
            assert client.get("/v1/sessions/s").json()["status"] == "running"
        assert server.stop() == 0
        server.start()
        look = httpx.get(f"{server.base}/v1/sessions/s", headers=server.headers).json()
        assert look["last_turn"]["reason"] == "completed"


async def test_without_the_extras_it_serves_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("prometheus_client", "opentelemetry"):
        monkeypatch.setitem(sys.modules, name, None)
    async with running() as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        await server.send("s", "hi")
        answer = await server.client.get("/metrics")
        assert (answer.status_code, answer.json()["code"]) == (422, "missing_extra")
        assert "metrics" in answer.json()["detail"]
