"""Results and tools as MCP spells them, and back."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types

from perdure.codec import clean_text, encode
from perdure.entry import File, Json, ResultPart, Text, ToolResult
from perdure.loop import ToolSpec
from perdure.runtimes.contract import CallOrigin

SESSION, TURN, CALL, KEY = (
    "perdure/session_id",
    "perdure/turn_id",
    "perdure/call_id",
    "perdure/idempotency_key",
)
"""What the metadata of a tool's call says of it."""

_PROVIDER, _LIMIT = "perdure/provider", "perdure/limit_chars"
_FULL_NAME = "perdure/full_name"
MCP = "mcp__"
"""What the full name of an MCP server's tool begins with."""
_FILE_URI = "perdure:file"


def to_meta(call_id: str, origin: CallOrigin) -> dict[str, Any]:
    """The metadata of a call; what is not known is left out."""
    told = {SESSION: origin.session_id, TURN: origin.turn_id, CALL: call_id, KEY: origin.key}
    return {name: value for name, value in told.items() if value}


def from_meta(meta: Mapping[str, Any] | None) -> tuple[str, CallOrigin]:
    """The call's id and origin; what the metadata does not say is empty."""
    call_id, session_id, turn_id, key = (
        value if isinstance(value := (meta or {}).get(name), str) else ""
        for name in (CALL, SESSION, TURN, KEY)
    )
    return call_id, CallOrigin(session_id, turn_id, key)


def to_mcp_result(result: ToolResult) -> types.CallToolResult:
    """A result as MCP sends it; what is only ours is in its metadata."""
    meta: dict[str, Any] = {_LIMIT: result.limit_chars}
    if result.provider is not None:
        meta[_PROVIDER] = result.provider
    content = [_to_block(part) for part in result.parts]
    return types.CallToolResult(content=content, is_error=result.is_error, _meta=meta)


def from_mcp_result(result: types.CallToolResult, call_id: str, name: str) -> ToolResult:
    """A result of one of our own runtimes."""
    meta = result.meta or {}
    limit = meta.get(_LIMIT)
    return ToolResult(
        call_id,
        parts_of(result),
        name=name,
        is_error=result.is_error,
        limit_chars=limit if isinstance(limit, int) else None,
        provider=meta.get(_PROVIDER),
    )


def parts_of(result: types.CallToolResult) -> tuple[ResultPart, ...]:
    """What a result holds; one that has structure and no content is given as JSON."""
    if not result.content and result.structured_content is not None:
        return (Text(encode(result.structured_content).decode()),)
    return tuple(_from_block(block) for block in result.content)


def to_mcp_tools(specs: Sequence[ToolSpec]) -> list[types.Tool]:
    """Tools as MCP lists them."""
    return [
        types.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=spec.schema,
            _meta=None if spec.full_name is None else {_FULL_NAME: spec.full_name},
        )
        for spec in specs
    ]


def from_mcp_tool(tool: types.Tool) -> ToolSpec:
    """A tool as a model is told of it."""
    described = tool.description or tool.title or tool.name
    told = (tool.meta or {}).get(_FULL_NAME)
    full_name = clean_text(told) if isinstance(told, str) and told.startswith(MCP) else None
    return ToolSpec(clean_text(tool.name), clean_text(described), tool.input_schema, full_name)


def _to_block(part: ResultPart) -> types.ContentBlock:
    match part:
        case Text():
            return types.TextContent(text=part.text)
        case File(data=None):
            return types.ResourceLink(
                uri=part.url or "", name=part.name or "", mime_type=part.media_type
            )
        case File() if part.media_type.startswith("image/"):
            meta = {"name": part.name} if part.name is not None else None
            return types.ImageContent(
                data=_base64(part.data), mime_type=part.media_type, _meta=meta
            )
        case File():
            blob = types.BlobResourceContents(
                uri=f"{_FILE_URI}:{part.name or ''}",
                blob=_base64(part.data),
                mime_type=part.media_type,
            )
            return types.EmbeddedResource(resource=blob)


def _from_block(block: types.ContentBlock) -> ResultPart:
    match block:
        case types.TextContent():
            return Text(clean_text(block.text))
        case types.ImageContent() | types.AudioContent():
            name = (block.meta or {}).get("name")
            return _file(block.mime_type, block.data, name if isinstance(name, str) else None)
        case types.ResourceLink():
            media_type = block.mime_type or "application/octet-stream"
            return File(media_type, url=str(block.uri), name=block.name or None)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return Text(clean_text(resource.text))
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            uri = str(resource.uri)
            name = uri.removeprefix(f"{_FILE_URI}:") if uri.startswith(_FILE_URI) else uri
            return _file(resource.mime_type, resource.blob, name or None)
        case _:
            return Text(f"[content that is not known: {block.type}]")


def _file(media_type: str | None, data: str, name: str | None) -> ResultPart:
    try:
        return File(
            media_type or "application/octet-stream",
            data=base64.b64decode(data, validate=True),
            name=name,
        )
    except binascii.Error as error:
        return Text(f"[a file that cannot be decoded: {error}]")


def _base64(data: Json) -> str:
    return base64.b64encode(data).decode()
