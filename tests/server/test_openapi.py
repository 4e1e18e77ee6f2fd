"""The OpenAPI document says what the routes are: no more, no less."""

from __future__ import annotations

import json

from starlette.routing import Route

from perdure.codec import encode
from perdure.server.http.openapi import make_document
from tests.server.test_app_refusals import serving

METHODS = {"get", "post", "delete", "put", "patch"}


async def test_it_has_exactly_the_routes_of_the_api() -> None:
    async with serving() as (client, service):
        document = (await client.get("/openapi.json")).json()
        assert service.registry is not None
    described = {
        (path, method.upper())
        for path, verbs in document["paths"].items()
        for method in verbs.keys() & METHODS
    }
    app = serving().app
    routed = {
        (route.path_format, method)
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith("/v1/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert described == routed


def test_every_reference_leads_somewhere() -> None:
    document = json.loads(encode(make_document()))
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    names = {each.partition('"')[0] for each in text.split('"#/components/schemas/')[1:]}
    assert names <= set(schemas)
    assert {"SessionLook", "Problem", "SendBody", "Sent"} <= names


async def test_every_described_body_is_what_is_taken() -> None:
    document = make_document()
    async with serving() as (client, _):
        await client.post("/v1/sessions", json={"session_id": "s"})
        for path, verbs in document["paths"].items():
            if "post" not in verbs:
                continue
            assert verbs["post"]["requestBody"]["content"]["application/json"]["schema"]
            answer = await client.post(path.replace("{session_id}", "s"), json={"no such": 1})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body")
            assert "422" in verbs["post"]["responses"]
