"""Routines through the real HTTP application: made, changed, run, and whose they are."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from perdure.stores.memory import MemoryStore
from tests.server.live import Running, running, until

DAILY = {"routine_id": "r", "text": "hello", "cron": "0 9 * * *", "zone": "Europe/Berlin"}


async def ended(server: Running, routine_id: str = "r") -> list[dict[str, Any]]:
    """The runs, once none is open."""
    for _ in range(500):
        answer = await server.client.get(f"/v1/routines/{routine_id}/runs")
        runs: list[dict[str, Any]] = answer.json()["runs"]
        if all(run["status"] not in {"claimed", "started"} for run in runs):
            return runs
        await asyncio.sleep(0.01)
    raise AssertionError(runs)


async def test_a_routine_is_made_looked_at_listed_changed_and_deleted() -> None:
    async with running() as server:
        http = server.client
        made = await http.post("/v1/routines", json=DAILY)
        assert made.status_code == 201
        look = made.json()
        assert (look["status"], look["session_id"], look["new_session"]) == ("enabled", "r", False)
        assert look["says"] == "At 09:00 every day (Europe/Berlin)"
        assert look["parts"] == [{"type": "text", "text": "hello"}]
        assert len(look["next_due"]) == 5
        assert (await http.post("/v1/routines", json=DAILY)).status_code == 200
        other = await http.post("/v1/routines", json=DAILY | {"text": "else"})
        assert (other.status_code, other.json()["code"]) == (409, "routine_exists")
        assert (await http.get("/v1/routines/r")).json() == look
        assert (await http.get("/v1/routines")).json() == {"routines": [look], "next": None}
        assert (await http.get("/v1/sessions/r")).status_code == 200

        changed = await http.patch("/v1/routines/r", json={"cron": "30 8 * * *", "jitter_s": 60})
        assert (changed.json()["cron"], changed.json()["jitter_s"]) == ("30 8 * * *", 60)
        assert changed.json()["says"] == "At 08:30 every day (Europe/Berlin)"
        at = (await http.patch("/v1/routines/r", json={"at": "2099-07-01T09:00:00"})).json()
        assert (at["at"], at["zone"]) == ("2099-07-01T07:00:00Z", "Europe/Berlin")
        utc = (await http.patch("/v1/routines/r", json={"cron": "0 9 * * *", "zone": "UTC"})).json()
        assert utc["says"] == "At 09:00 every day (UTC)"
        paused = (await http.patch("/v1/routines/r", json={"status": "paused"})).json()
        assert (paused["status"], paused["next_due"]) == ("paused", [])
        assert (await http.patch("/v1/routines/r", json={"status": "enabled"})).json()["next_due"]

        assert (await http.delete("/v1/routines/r")).status_code == 204
        for method, path in (
            ("GET", "/v1/routines/r"),
            ("DELETE", "/v1/routines/r"),
            ("GET", "/v1/routines/r/runs"),
            ("POST", "/v1/routines/r/run"),
            ("PATCH", "/v1/routines/r"),
        ):
            gone = await http.request(method, path)
            assert (gone.status_code, gone.json()["code"]) == (404, "routine_not_found")


async def test_a_run_is_in_its_session_its_history_and_its_stream() -> None:
    async with running() as server:
        await server.client.post("/v1/routines", json=DAILY)
        async with server.stream(("session", "r"), ("after", "0")) as events:
            asked = await server.client.post(
                "/v1/routines/r/run", headers={"Idempotency-Key": "once"}
            )
            assert asked.status_code == 202
            seen = await until(events, "entry", type="turn_ended")
        started = next(each.data for each in seen if each.data.get("type") == "turn_started")
        assert started["source"] == "routine"
        (run,) = await ended(server)
        assert (run["status"], run["turn_id"]) == ("succeeded", started["turn_id"])
        again = await server.client.post("/v1/routines/r/run", headers={"Idempotency-Key": "once"})
        assert again.json()["run_id"] == run["run_id"]
        assert len(await ended(server)) == 1


async def test_the_timer_of_a_real_server_fires() -> None:
    async with running() as server:
        body = {"routine_id": "r", "text": "hello", "every_s": 1}
        assert (await server.client.post("/v1/routines", json=body)).status_code == 201
        for _ in range(400):
            runs = (await server.client.get("/v1/routines/r/runs")).json()["runs"]
            if sum(run["status"] == "succeeded" for run in runs) >= 2:
                break
            await asyncio.sleep(0.02)
        assert [run["cause"] for run in runs] == ["due"] * len(runs)
        await server.client.patch("/v1/routines/r", json={"status": "paused"})
        turns = (await server.client.get("/v1/sessions/r/entries?limit=500")).json()["entries"]
        started = [each["message_id"] for each in turns if each["type"] == "turn_started"]
        assert len(started) == len(set(started)) >= 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": "* * * * *", "zone": "Nowhere"}, "zone"),
        ({}, "schedule"),
        ({"cron": "* * * * *", "every_s": 60}, "schedule"),
        ({"at": "1960-01-01T00:00:00Z"}, "at"),
    ],
)
async def test_a_preview_says_what_is_wrong(body: dict[str, Any], field: str) -> None:
    async with running() as server:
        answer = await server.client.post("/v1/routines/preview", json=body)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (422, "invalid_routine")
        assert problem["field"] == field
        made = await server.client.post("/v1/routines", json={**body, "text": "hello"})
        assert made.json()["field"] == field


async def test_a_preview_shows_the_next_five_in_utc_and_by_local_clocks() -> None:
    async with running() as server:
        body = {"cron": "30 9 * * *", "zone": "Asia/Kathmandu"}
        found = (await server.client.post("/v1/routines/preview", json=body)).json()
        assert [each[10:] for each in found["due"]] == ["T03:45:00Z"] * 5
        assert [each[10:] for each in found["local"]] == ["T09:30:00+05:45"] * 5
        assert (await server.client.get("/v1/routines")).json()["routines"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"every_s": 0.5},
        {"every_s": "60"},
        {"jitter_s": -1},
        {"resends": 11},
        {"overlap": "both"},
        {"unknown": 1},
        {"status": "stopped"},
    ],
)
async def test_a_body_of_another_shape_is_refused(body: dict[str, Any]) -> None:
    async with running() as server:
        answer = await server.client.post("/v1/routines", json=DAILY | body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body")


async def test_routines_outlive_their_server() -> None:
    store = MemoryStore()
    async with running(store=store) as server:
        await server.client.post("/v1/routines", json=DAILY)
        await server.client.post("/v1/routines/r/run")
        runs = await ended(server)
    async with running(store=store) as server:
        assert (await server.client.get("/v1/routines/r/runs")).json()["runs"] == runs
        assert server.service.registry.live_actors == 0


async def test_a_server_that_closes_takes_no_routine() -> None:
    async with running() as server:
        await server.client.post("/v1/routines", json=DAILY)
        server.service.registry.refuse_commands()
        for path in ("/v1/routines", "/v1/routines/r/run"):
            answer = await server.client.post(path, json=DAILY if path[-1] == "s" else {})
            assert (answer.status_code, answer.json()["code"]) == (503, "server_closing")


async def test_a_routine_of_somebody_else_is_not_there(tmp_path: Any) -> None:
    from perdure.server.access.token_file import add_token

    path = tmp_path / "tokens.toml"
    tokens = {name: add_token(path, name, "user")[0] for name in ("ann", "bob")}
    async with running(settings={"tokens": str(path)}) as server:

        def client(name: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {tokens[name]}"}
            return httpx.AsyncClient(base_url=server.base, headers=headers)

        async with client("ann") as ann, client("bob") as bob:
            assert (await ann.post("/v1/routines", json=DAILY)).json()["owner"] == "ann"
            assert (await ann.get("/v1/sessions/r")).json()["owner"] == "ann"
            assert (await bob.get("/v1/routines")).json()["routines"] == []
            assert len((await ann.get("/v1/routines")).json()["routines"]) == 1
            assert len((await server.client.get("/v1/routines")).json()["routines"]) == 1
            for method, place in (
                ("GET", ""),
                ("PATCH", ""),
                ("DELETE", ""),
                ("GET", "/runs"),
                ("POST", "/run"),
            ):
                hidden = await bob.request(method, f"/v1/routines/r{place}")
                absent = await bob.request(method, f"/v1/routines/x{place}")
                assert hidden.status_code == absent.status_code == 404
                assert hidden.json()["detail"].replace("'r'", "'x'") == absent.json()["detail"]
            # Nor does a routine reach into another's sessions.
            await ann.post("/v1/sessions", json={"session_id": "secret"})
            mine = {"text": "hello", "cron": "0 9 * * *"}
            into = await bob.post("/v1/routines", json=mine | {"session_id": "secret"})
            assert (into.status_code, into.json()["code"]) == (409, "session_exists")
            fork = mine | {"fork_of": "secret", "new_session": True}
            assert (await bob.post("/v1/routines", json=fork)).status_code == 404
            taken = await bob.post("/v1/routines", json=DAILY)
            assert (taken.status_code, taken.json()["code"]) == (409, "routine_exists")
            await bob.post("/v1/routines", json=mine | {"routine_id": "b"})
            into = await bob.patch("/v1/routines/b", json={"session_id": "secret"})
            assert into.status_code == 409
            assert (await ann.get("/v1/sessions/secret/entries")).json()["last_seq"] <= 1
