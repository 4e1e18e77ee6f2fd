"""The live server against its own OpenAPI document, with requests made up from it.

No request makes the server fail, every answer is one that the document has, and every refusal is
a problem document with a documented code. `PERDURE_SCHEMA_ROUNDS` makes up more of them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perdure.codec import encode
from perdure.server.http.openapi import make_document
from perdure.server.http.operation import OPERATIONS
from perdure.server.problem import CODES, MEDIA_TYPE
from tests.serving import ServerProcess

ROUNDS = int(os.environ.get("PERDURE_SCHEMA_ROUNDS", "50"))
LOOP = "perdure.testing.scripted_loop:scripted_by_message"
ROUTINE = {"routine_id": "r", "text": "hello", "cron": "0 9 * * *", "overlap": "queue"}
WORKFLOW = {
    "workflow_id": "w",
    "workflow": {
        "name": "w",
        "retry": {"attempts": 1},
        "steps": [
            {"id": "a", "prompt": "hello", "approve": True},
            {"id": "b", "after": [], "prompt": '{"do": "fail"}'},
        ],
    },
}
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(json.loads(encode(make_document())))
FOUND = [each.ok() for each in SCHEMA.get_all_operations() if isinstance(each, Ok)]
BY_NAME = {each.definition.raw["operationId"]: each for each in FOUND}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("schema"), loop=LOOP) as server:
        yield server


def aim(case: Case[Any]) -> None:
    """Points most requests at a session that is there, so that they get further than a 404."""
    found = case.path_parameters
    number = zlib.crc32(repr((found, case.query, case.body)).encode())
    if "session_id" in found and number % 4:
        found["session_id"] = "s"
    if "routine_id" in found and number % 4:
        found["routine_id"] = "r"
    if "workflow_id" in found and number % 4:
        found["workflow_id"] = "w"
    if "step" in found and number % 4:
        found["step"] = "ab"[number % 2]
    if "seq" in found and number % 3:
        found["seq"] = number % 5
    for name in ("n", "m"):
        if name in found and number % 2:
            found[name] = 0


def check_refusal(status: int, media_type: str, content: bytes) -> None:
    problem = json.loads(content)
    assert media_type == MEDIA_TYPE
    assert problem["code"] in CODES
    assert problem["status"] == status
    assert problem["detail"]
    assert problem["type"] == f"urn:perdure:problem:{problem['code']}"


@pytest.mark.parametrize("name", [each.name for each in OPERATIONS if each.handler is not None])
def test_every_answer_is_one_that_the_document_has(name: str, server: ServerProcess) -> None:
    @given(case=BY_NAME[name].as_strategy())
    @settings(
        max_examples=ROUNDS,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def play(case: Case[Any]) -> None:
        client.post("/v1/sessions", json={"session_id": "s"})
        client.post("/v1/routines", json=ROUTINE)
        client.post("/v1/workflows", json=WORKFLOW)
        aim(case)
        answer = case.call(base_url=server.base, headers=server.headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            (media_type,) = answer.headers["content-type"]
            check_refusal(answer.status_code, media_type, answer.content)

    with httpx.Client(base_url=server.base, headers=server.headers, timeout=20) as client:
        client.post("/v1/sessions", json={"session_id": "s"})
        client.post("/v1/sessions/s/messages", json={"text": "hello"})
        play()
        assert client.get("/v1/health").status_code == 200


def test_every_refusal_of_a_stream_is_a_problem_too(server: ServerProcess) -> None:
    @given(case=BY_NAME["stream"].as_strategy())
    @settings(
        max_examples=ROUNDS * 2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def play(case: Case[Any]) -> None:
        sent = case.as_transport_kwargs(base_url=server.base, headers=server.headers)
        with client.stream(
            "GET", sent["url"], params=sent["params"], headers=dict(sent["headers"])
        ) as answer:
            statuses.add(answer.status_code)
            if answer.status_code >= 400:
                media_type = answer.headers["content-type"]
                check_refusal(answer.status_code, media_type, answer.read())
            else:
                assert answer.headers["content-type"].startswith("text/event-stream")

    statuses: set[int] = set()
    with httpx.Client(timeout=20) as client:
        play()
    assert statuses <= {200, 404, 422}
    assert len(statuses) > 1
