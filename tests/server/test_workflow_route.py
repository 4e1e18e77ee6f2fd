"""Workflows through the real HTTP application: started, told what to do, and whose they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from perdure.testing import scripted_by_message
from tests.server.live import running
from tests.server.people import People, people
from tests.server.test_access_stream import stream
from tests.server.test_changes import changed

STEPS = [{"id": "a", "prompt": "hello"}, {"id": "b", "prompt": "and {{ steps.a.output }}"}]
BODY = {"workflow_id": "w", "workflow": {"name": "w", "steps": STEPS}}
HELD = {"workflow_id": "w", "workflow": {"name": "w", "steps": [STEPS[0] | {"approve": True}]}}
YAML = "name: w\ninputs: {who: {default: you}}\nsteps:\n- id: a\n  prompt: hi {{ inputs.who }}\n"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[People]:
    async with people(tmp_path, heartbeat_s=0.5) as found:
        yield found


async def over(client: httpx.AsyncClient, workflow_id: str = "w") -> dict[str, Any]:
    """The workflow, once it is over."""
    for _ in range(500):
        look: dict[str, Any] = (await client.get(f"/v1/workflows/{workflow_id}")).json()
        if look["ended_at"] is not None:
            return look
        await asyncio.sleep(0.01)
    raise AssertionError(look)


async def test_a_workflow_is_started_followed_listed_and_deleted() -> None:
    async with running(scripted_by_message) as server:
        http = server.client
        made = await http.post("/v1/workflows", json=BODY)
        assert (made.status_code, made.json()["status"]) == (201, "running")
        look = await over(http)
        assert (look["status"], [step["status"] for step in look["steps"]]) == (
            "completed",
            ["completed", "completed"],
        )
        assert look["steps"][1]["attempts"][0]["output"] == "and hello"
        assert (await http.post("/v1/workflows", json=BODY)).status_code == 200
        other = BODY | {"workflow": {"name": "x", "steps": STEPS}}
        refused = await http.post("/v1/workflows", json=other)
        assert (refused.status_code, refused.json()["code"]) == (409, "workflow_exists")
        (brief,) = (await http.get("/v1/workflows")).json()["workflows"]
        assert (brief["workflow_id"], brief["done"], brief["steps"]) == ("w", 2, 2)
        session_id = look["steps"][0]["attempts"][0]["session_id"]
        assert (await http.delete("/v1/workflows/w")).status_code == 204
        gone = await http.get("/v1/workflows/w")
        assert (gone.status_code, gone.json()["code"]) == (404, "workflow_not_found")
        assert (await http.get(f"/v1/sessions/{session_id}")).status_code == 200


async def test_yaml_is_taken_as_it_is_and_inside_json() -> None:
    async with running(scripted_by_message) as server:
        http = server.client
        headers = {"content-type": "application/yaml; charset=utf-8"}
        made = await http.post("/v1/workflows", content=YAML, headers=headers)
        assert made.status_code == 201
        assert made.json()["source"] == YAML
        look = await over(http, made.json()["workflow_id"])
        assert look["steps"][0]["attempts"][0]["output"] == "hi you"
        body = {"yaml": YAML, "inputs": {"who": "all"}, "workflow_id": "w"}
        await http.post("/v1/workflows", json=body)
        assert (await over(http))["steps"][0]["attempts"][0]["output"] == "hi all"
        broken = await http.post("/v1/workflows", content=b"name: \xff", headers=headers)
        assert (broken.status_code, broken.json()["code"]) == (400, "invalid_text")


async def test_what_is_wrong_is_a_problem_with_all_lines_and_fields() -> None:
    wrong = "name: w\nsteps:\n- id: a\n  prompt: '{{ b }}'\n  runtime: nowhere\n"
    wrong += "- id: c\n  prompt: ''\n"
    async with running(scripted_by_message) as server:
        for place in ("/v1/workflows", "/v1/workflows/check"):
            answer = await server.client.post(place, json={"yaml": wrong})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (422, "invalid_workflow")
            assert (problem["line"], problem["field"]) == (4, "steps[0].prompt")
        unknown = wrong.replace("{{ b }}", "x").replace("''", "x")
        problem = (await server.client.post("/v1/workflows", json={"yaml": unknown})).json()
        assert (problem["line"], problem["field"]) == (5, "steps[0].runtime")
        value = {"workflow": {"name": "w", "steps": [{"id": "a"}]}}
        problem = (await server.client.post("/v1/workflows", json=value)).json()
        assert (problem["code"], problem["field"]) == ("invalid_workflow", "steps[0].prompt")
        for body in ({}, {"yaml": YAML, "workflow": value}, {"yaml": 5}):
            answer = await server.client.post("/v1/workflows", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body")
        assert (await server.client.get("/v1/workflows")).json()["workflows"] == []
        plan = (await server.client.post("/v1/workflows/check", json=BODY)).json()
        assert plan["steps"][1] == {"step": "b", "needs": ["a"], "undoes": []}


async def test_it_is_paused_approved_and_cancelled() -> None:
    async with running(scripted_by_message) as server:
        http = server.client
        await http.post("/v1/workflows", json=HELD)
        paused = await http.post("/v1/workflows/w/pause", json={"why": "lunch"})
        assert (paused.json()["status"], paused.json()["why"]) == ("paused", "lunch")
        assert (await http.post("/v1/workflows/w/resume")).json()["status"] == "waiting"
        answer = await http.post("/v1/workflows/w/steps/a/approve", json={"reason": "fine"})
        assert answer.status_code == 202
        assert (await over(http))["steps"][0]["answers"][0]["by"] == "owner"
        for verb in ("pause", "resume", "cancel"):
            late = await http.post(f"/v1/workflows/w/{verb}")
            assert (late.status_code, late.json()["code"]) == (409, "workflow_conflict")
        again = await http.post("/v1/workflows/w/steps/a/retry")
        assert again.status_code == 202
        assert (await http.post("/v1/workflows/w/cancel")).status_code == 202
        assert (await over(http))["status"] == "cancelled"


async def test_what_is_not_yours_is_not_there(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    assert (await anna.post("/v1/workflows", json=HELD)).status_code == 201
    verbs = [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")]
    verbs += [("POST", "/cancel"), ("POST", "/steps/a/retry"), ("POST", "/steps/a/approve")]
    for method, path in verbs:
        foreign = await bob.request(method, f"/v1/workflows/w{path}")
        missing = await bob.request(method, f"/v1/workflows/x{path}")
        assert (foreign.status_code, foreign.json()["code"]) == (404, "workflow_not_found"), path
        assert foreign.text.replace("'w'", "'x'").split("request")[0] == (
            missing.text.split("request")[0]
        ).replace('"workflow_id":"x"', '"workflow_id":"w"')
    skip = await bob.post("/v1/workflows/w/steps/a/skip", json={"reason": "mine"})
    assert skip.status_code == 404
    assert (await bob.get("/v1/workflows")).json()["workflows"] == []
    assert (await bob.post("/v1/workflows", json=HELD)).status_code == 409
    await anna.post("/v1/workflows/w/steps/a/approve")
    look = await over(anna)
    session_id = look["steps"][0]["attempts"][0]["session_id"]
    assert (await anna.get(f"/v1/sessions/{session_id}")).json()["owner"] == "anna"
    assert (await bob.get(f"/v1/sessions/{session_id}")).status_code == 404
    assert len((await here.admin.get("/v1/workflows")).json()["workflows"]) == 1


async def test_who_may_only_look_starts_and_changes_nothing(here: People) -> None:
    viewer = await here.come("anna", "viewer")
    assert (await viewer.post("/v1/workflows/check", json=BODY)).status_code == 200
    assert (await viewer.post("/v1/workflows", json=BODY)).status_code == 403
    assert (await viewer.get("/v1/workflows")).status_code == 200


async def test_every_change_is_told_to_its_owner_and_to_nobody_else(here: People) -> None:
    anna, bob = await here.come("anna"), await here.come("bob")
    async with stream(anna, "listing=1") as hers, stream(bob, "listing=1") as his:
        await anna.post("/v1/workflows", json=HELD)
        assert await changed(hers) == {"kind": "workflow", "id": "w"}
        await anna.post("/v1/workflows/w/steps/a/approve")
        while (await anna.get("/v1/workflows/w")).json()["status"] != "completed":
            assert await changed(hers) == {"kind": "workflow", "id": "w"}
        await anna.delete("/v1/workflows/w")
        while (await anna.get("/v1/workflows/w")).status_code != 404:
            assert await changed(hers) == {"kind": "workflow", "id": "w"}
        await bob.post("/v1/workflows", json=HELD | {"workflow_id": "b"})
        assert await changed(his) == {"kind": "workflow", "id": "b"}


async def test_names_of_any_kind_lead_to_their_workflow() -> None:
    async with running(scripted_by_message) as server:
        for name in ("a b", "ä/ö", "%2f", "x?y#z"):
            made = await server.client.post("/v1/workflows", json=BODY | {"workflow_id": name})
            assert made.status_code == 201, made.text
            place = f"/v1/workflows/{quote(name, safe='')}"
            assert (await server.client.get(place)).json()["workflow_id"] == name
        for name in ("", ".", "..", "a\nb", "x" * 201):
            made = await server.client.post("/v1/workflows", json=BODY | {"workflow_id": name})
            assert (made.status_code, made.json()["code"]) == (422, "invalid_workflow")
