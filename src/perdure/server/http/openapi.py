"""The OpenAPI document, made from the table of operations."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from perdure.server.http.operation import OPERATIONS
from perdure.server.http.shape import Operation
from perdure.server.problem import CODES, MEDIA_TYPE
from perdure.server.service import version

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_NUMBERS = {"seq", "n", "m"}
_ANY_REFUSAL = (403, 421, 500, 503)
_ANY_REFUSAL_WITH_TOKEN = (401, 429)

_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"enum": sorted(CODES), "description": "stable"},
    },
    "additionalProperties": True,
}


def make_document() -> dict[str, Any]:
    """The document."""
    kinds = [kind for each in OPERATIONS if (kind := each.body) is not None]
    for each in OPERATIONS:
        kinds += [kind for shape in each.answers.values() if (kind := _kind(shape)) is not None]
    kinds = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method.lower()] = _describe(each, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": version()},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _kind(shape: object) -> type | None:
    found = shape[0] if isinstance(shape, tuple) else shape
    return found if isinstance(found, type) else None


def _describe(operation: Operation, by_kind: dict[type, dict[str, Any]]) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer"} if name in _NUMBERS else {"type": "string"},
        }
        for name in _PARAMETER.findall(operation.path)
    ]
    for place, given in (("query", operation.query), ("header", operation.headers)):
        parameters += [{"name": name, "in": place, "schema": given[name]} for name in given]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.says,
        "parameters": parameters,
        "responses": _responses(operation, by_kind),
    }
    if operation.is_public:
        described["security"] = []
    if operation.body is not None:
        required = any(field.required for field in msgspec.structs.fields(operation.body))
        described["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": by_kind[operation.body]}},
        }
    return described


def _responses(operation: Operation, by_kind: dict[type, dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, shape in operation.answers.items():
        responses[str(status)] = answer = {"description": operation.says}
        if shape is not None:
            schema = _schema(shape, by_kind)
            answer["content"] = {operation.media_type: {"schema": schema}}  # type: ignore[assignment]  # a JSON object
    refusals = {*operation.refusals, *_ANY_REFUSAL}
    if 413 in refusals:  # it reads a body, which may also be too slow
        refusals.add(408)
    if not operation.is_public:
        refusals.update(_ANY_REFUSAL_WITH_TOKEN)
    for status in sorted(refusals):
        schema = {"$ref": _REFERENCE.format(name="Problem")}
        responses[str(status)] = {
            "description": "A problem document",
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
    return responses


def _schema(shape: object, by_kind: dict[type, dict[str, Any]]) -> object:
    match shape:
        case (type() as kind, "listing"):
            return {
                "type": "object",
                "required": ["sessions", "next"],
                "properties": {
                    "sessions": {"type": "array", "items": by_kind[kind]},
                    "next": {"type": ["string", "null"]},
                },
            }
        case type():
            return by_kind[shape]
        case _:
            return shape
