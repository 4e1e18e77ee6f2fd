"""Spans, counters and log lines of what happens in a turn, as an operator gets them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure.entry import Text, ToolCall, ToolResult
from perdure.loop import Loop, LoopContext, LoopEvent, MessageEnded, ToolEnded, ToolStarted
from perdure.server.telemetry.logs import JsonFormatter
from perdure.server.telemetry.told import ToldFilter
from perdure.server.telemetry.tracing import Tracing
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from perdure.testing.scripted_loop import Call, Say, ScriptedLoop
from tests.server.live import Running, running, until

ANSWER = {
    "model_name": "m-1",
    "provider_name": "somebody",
    "provider_response_id": "r-1",
    "finish_reason": "stop",
    "usage": {"input_tokens": 11, "output_tokens": 7, "cache_read_tokens": 3, "details": {}},
}
LOOP = ScriptedLoop(
    [
        Say(
            "look",
            calls=[Call("read", result="ok", call_id="c1"), Call("run", fails=True, call_id="c2")],
            provider=ANSWER,
        ),
        Say("done", provider=ANSWER),
    ]
)


async def play(server: Running, session_id: str = "s") -> dict[str, Any]:
    """A turn, from its message to its rest."""
    await server.client.post("/v1/sessions", json={"session_id": session_id})
    async with server.stream(("session", session_id), ("after", "0")) as events:
        sent = await server.send(session_id, "hi")
        await until(events, "entry", type="turn_ended")
        await server.service.observer.until_rest()
    return sent


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    made = Tracing.__init__

    def make(tracing: Tracing, default_loop: str) -> None:
        made(tracing, default_loop)
        tracing._tracer = provider.get_tracer("perdure")

    monkeypatch.setattr(Tracing, "__init__", make)
    yield exporter
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_model_requests_and_tool_calls_are_spans_under_their_turn(
    spans: InMemorySpanExporter,
) -> None:
    async with running(LOOP) as server:
        await play(server)
    found = {span.name: span for span in spans.get_finished_spans()}
    assert set(found) == {
        "invoke_agent scripted",
        "chat m-1",
        "execute_tool read",
        "execute_tool run",
    }
    turn = found.pop("invoke_agent scripted")
    assert turn.context is not None
    for span in found.values():
        assert span.parent is not None
        assert span.parent.span_id == turn.context.span_id
    chats = [span for span in spans.get_finished_spans() if span.name == "chat m-1"]
    assert len(chats) == 2
    told = attributes(chats[0])
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "m-1"
    assert told["gen_ai.provider.name"] == "somebody"
    assert told["gen_ai.usage.input_tokens"] == 11
    assert told["gen_ai.usage.output_tokens"] == 7
    assert told["gen_ai.conversation.id"] == "s"
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    first, second = chats
    assert first.start_time is not None
    assert first.end_time is not None
    assert second.start_time is not None
    assert first.start_time <= first.end_time <= second.start_time
    read, run = attributes(found["execute_tool read"]), attributes(found["execute_tool run"])
    assert (read["gen_ai.tool.name"], read["gen_ai.tool.call.id"]) == ("read", "c1")
    assert "error.type" not in read
    assert run["error.type"] == "tool_error"
    assert "look" not in str([span.to_json() for span in spans.get_finished_spans()])


async def test_a_call_in_flight_when_its_turn_ends_is_a_span_that_failed(
    spans: InMemorySpanExporter,
) -> None:
    loop = ScriptedLoop([Say(calls=[Call("wait", hangs=True)])])
    async with running(loop) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.stream(("session", "s"), ("after", "0")) as events:
            sent = await server.send("s", "hi")
            await until(events, "entry", type="tool_dispatched")
            await server.client.post("/v1/sessions/s/stop", json={"turn_id": sent["turn_id"]})
            await until(events, "entry", type="turn_ended")
    (call,) = [each for each in spans.get_finished_spans() if each.name == "execute_tool wait"]
    assert call.status.status_code is trace.StatusCode.ERROR


async def test_what_a_loop_s_libraries_trace_stands_under_the_turn(
    spans: InMemorySpanExporter,
) -> None:
    seen: list[int] = []

    def make() -> Loop:
        async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
            seen.append(trace.get_current_span().get_span_context().span_id)
            yield MessageEnded((Text("x"),))

        return loop

    async with running(make) as server:
        await play(server)
    (turn,) = spans.get_finished_spans()
    assert turn.context is not None
    assert seen == [turn.context.span_id]


async def metrics(server: Running) -> dict[str, float]:
    answer = await server.client.get("/metrics")
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, value in lines}


async def test_metrics_count_appends_commits_tools_tokens_streams_and_refusals(
    tmp_path: Path,
) -> None:
    async with SqliteStore(tmp_path / "s.db") as store, running(LOOP, store=store) as server:
        await play(server)
        await server.client.get("/v1/sessions/nobody")
        await server.client.get("/v1/sessions/s/entries?limit=x")
        await server.client.put("/v1/sessions/s/queue/none", json={"text": "x"})
        await server.client.patch("/v1/routines/none", json={})
        found = await metrics(server)
        entries = await store.load_entries("s")
    assert found["perdure_appended_entries_total"] == len(entries)
    assert found["perdure_appended_bytes_total"] == sum(len(each.raw) for each in entries)
    assert 0 < found["perdure_append_seconds_count"] <= len(entries)
    assert found["perdure_commit_requests_sum"] >= found["perdure_append_seconds_count"]
    assert found["perdure_commit_seconds_count"] == found["perdure_commit_requests_count"] > 0
    assert found['perdure_tool_calls_total{outcome="ok"}'] == 1
    assert found['perdure_tool_calls_total{outcome="error"}'] == 1
    assert found['perdure_tokens_total{kind="input_tokens"}'] == 22
    assert found['perdure_tokens_total{kind="cache_read.input_tokens"}'] == 6
    assert found["perdure_stream_writes_total"] > 0
    assert found["perdure_stream_bytes_total"] > sum(len(each.raw) for each in entries)
    assert found['perdure_refusals_total{code="session_not_found"}'] == 1
    assert found['perdure_refusals_total{code="invalid_limit"}'] == 1
    assert found['perdure_http_requests_total{method="PUT",status="404"}'] == 1
    assert found['perdure_http_requests_total{method="PATCH",status="404"}'] == 1
    assert found["perdure_appends_refused"] == 0
    assert found["perdure_turns_running"] == 0


async def test_a_store_that_outlives_its_servers_tells_the_one_that_runs(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        for _ in range(3):
            async with running(LOOP, store=store) as server:
                await server.client.post("/v1/sessions", json={})
                for _ in range(500):  # a commit is told soon after its answer
                    if counted := (await metrics(server))["perdure_commit_requests_count"]:
                        break
                    await asyncio.sleep(0.01)
                assert counted > 0
                assert len(store._writer.commit_listeners) == 1
        assert not store._writer.commit_listeners


async def test_a_session_that_another_process_deletes_in_mid_turn_is_no_running_turn() -> None:
    store, go = MemoryStore(), asyncio.Event()

    def make() -> Loop:
        async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
            yield MessageEnded((ToolCall("c", "wait", {}),))
            yield ToolStarted("c")
            await go.wait()
            yield ToolEnded(ToolResult("c", (Text("late"),)))

        return loop

    async with running(make, store=store) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        async with server.stream(("session", "s"), ("after", "0")) as events:
            await server.send("s", "hi")
            await until(events, "entry", type="tool_dispatched")
        assert (await metrics(server))["perdure_turns_running"] == 1
        await store.delete_session("s")
        go.set()
        async with asyncio.timeout(10):
            await server.service.observer.until_rest()
        found = await metrics(server)
        assert found["perdure_turns_running"] == 0
        assert found['perdure_turns_total{reason="interrupted"}'] == 1
        assert found['perdure_append_failures_total{error="SessionDeletedError"}'] == 1


class Lines(logging.Handler):
    """What a server with `log_format` json would write, as it is read back."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.addFilter(ToldFilter())
        self.found: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(json.loads(JsonFormatter().format(record)))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


async def test_what_a_run_logs_tells_its_session_and_turn_and_so_do_its_tasks(
    lines: Lines,
) -> None:
    def make() -> Loop:
        async def later() -> None:
            logging.getLogger("a.library").warning("in a task")

        async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
            logging.getLogger("a.library").warning("in the run")
            await asyncio.create_task(later())
            await asyncio.to_thread(logging.getLogger("a.library").warning, "in a thread")
            yield MessageEnded((Text("x"),))

        return loop

    async with running(make) as server:
        sent = [await play(server, session_id) for session_id in ("s", "t")]
    told = [line for line in lines.found if line["logger"] == "a.library"]
    assert [line["session_id"] for line in told] == ["s"] * 3 + ["t"] * 3
    assert [line["turn_id"] for line in told] == [each["turn_id"] for each in sent for _ in "abc"]
    turns = [line for line in lines.found if line["logger"] == "perdure.turn"]
    assert [line["session_id"] for line in turns] == ["s", "s", "t", "t"]


async def test_a_request_has_an_id_in_its_answer_and_in_its_own_log_lines(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    async with running(store=store) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})

        async def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(server.service.registry, "entries", fail)
        headers = {"x-request-id": "mine-1"}
        answer = await server.client.get("/v1/sessions/s/entries", headers=headers)
        assert (answer.status_code, answer.headers["x-request-id"]) == (500, "mine-1")
        for bad in ("", "a b", "x" * 129, 'a"'):
            again = await server.client.get("/v1/health", headers={"x-request-id": bad})
            assert re.fullmatch(r"[\w-]{8,64}", again.headers["x-request-id"])
    (line,) = [line for line in lines.found if line["logger"] == "perdure.server.http.outer"]
    assert (line["request_id"], line["session_id"]) == ("mine-1", "s")
    assert "ZeroDivisionError" in line["exception"]


async def test_the_log_never_has_the_token(lines: Lines) -> None:
    async with running() as server:
        await play(server)
        token = server.client.headers["authorization"].removeprefix("Bearer ")
        async with httpx.AsyncClient(base_url=server.base) as browser:
            await browser.get("/", params={"token": token})
            await browser.get("/v1/sessions", headers={"authorization": f"Bearer {token}x"})
    told = [line for line in lines.found if line["logger"] != "httpx"]  # which is the test's own
    assert told
    assert token not in json.dumps(told)


async def test_a_loop_that_fails_is_logged_with_its_session_and_turn(lines: Lines) -> None:
    def make() -> Loop:
        async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
            yield MessageEnded((Text("x"),))
            raise ZeroDivisionError("a bug of the loop")

        return loop

    async with running(make) as server:
        sent = await play(server)
    (line,) = [line for line in lines.found if "ZeroDivisionError" in line.get("exception", "")]
    assert (line["session_id"], line["turn_id"]) == ("s", sent["turn_id"])
