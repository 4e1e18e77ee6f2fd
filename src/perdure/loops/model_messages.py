"""Messages to and from the model layer, with everything that a provider sent in between.

A stored answer keeps the provider's own data beside each part, and that of the message (usage,
model, finish reason, ids) on the message. It goes back, unchanged, to the interface that it came
from, and to no other: another one gets the text and the calls, and nobody else's reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from perdure.entry import (
    File,
    Json,
    Message,
    OpaquePart,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from perdure.loops.tool import parse_arguments
from perdure.view import excerpt_result

if TYPE_CHECKING:
    from pydantic_ai.models import Model

LAYER = "pydantic_ai"
_SIGNED = frozenset({"anthropic", "bedrock", "google", "google-cloud"})
_SHOWN_TYPES = ("image/", "audio/", "video/", "text/")
_SHOWN_DOCUMENTS = frozenset({"application/pdf", "application/json", "application/xml"})


def interface_of(model: Model) -> str:
    """The interface that a model speaks, as answers remember it."""
    return f"{model.system}/{type(model).__name__}"


def from_response(
    response: ModelResponse, interface: str, context_window: int | None = None
) -> tuple[tuple[Part, ...], Json]:
    """The parts of an answer, in their order, and the provider's data of the whole message.

    `context_window` is that of the model, in tokens, where it is known.
    """
    (fields,) = ModelMessagesTypeAdapter.dump_python([response], mode="json", exclude_none=True)
    dumps = fields.pop("parts")
    parts = [_part(part, dump) for part, dump in zip(response.parts, dumps, strict=True)]
    fields.pop("kind")
    fields["usage"] = {name: value for name, value in fields["usage"].items() if value}
    known: dict[str, Json] = {"layer": LAYER, "interface": interface, **fields}
    if context_window is not None:
        known["context_window"] = context_window
    return _unique_calls(parts), known


def _part(part: object, dump: dict[str, Any]) -> Part:
    rest = {name: value for name, value in dump.items() if value not in ("", None)}
    match part:
        case TextPart():
            return Text(part.content, provider=_without(rest, "content", "part_kind"))
        case ThinkingPart():
            return Reasoning(part.content, provider=_without(rest, "content", "part_kind"))
        case ToolCallPart():
            return ToolCall(
                part.tool_call_id,
                part.tool_name,
                parse_arguments(part.args),
                provider=_without(rest, "args", "tool_name", "tool_call_id", "part_kind"),
            )
        case FilePart():
            content = _without(dump["content"], "data")
            kept = {**dump, "content": content}
            return File(part.content.media_type, part.content.data, provider=kept)
        case _:  # a call that the provider made itself, its result, a summary of its own
            return Reasoning("", provider=dump)


def _without(fields: dict[str, Any], *names: str) -> Json:
    return {name: value for name, value in fields.items() if name not in names} or None


def _unique_calls(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Some servers number the calls of each message alike; within a message an id is one call's."""
    seen: set[str] = set()
    unique: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            call_id, number = part.call_id, 1
            while call_id in seen:
                number += 1
                call_id = f"{part.call_id}-{number}"
            seen.add(call_id)
            part = part if call_id == part.call_id else replace(part, call_id=call_id)
        unique.append(part)
    return tuple(unique)


def to_history(messages: Iterable[Message], model: Model) -> list[ModelMessage]:
    """The messages as the model layer wants them: requests and answers in turn. O(messages)."""
    interface, signed = interface_of(model), model.system in _SIGNED
    history: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    for message in messages:
        if message.role != "assistant":
            asked += request_parts(message)
            continue
        if asked:
            history.append(ModelRequest(parts=asked))
            asked = []
        if (answer := _response(message, interface, signed=signed)) is not None:
            history.append(answer)
    if asked:
        history.append(ModelRequest(parts=asked))
    return history


def request_parts(message: Message) -> list[ModelRequestPart]:
    """A message that is no assistant's, as parts of a request."""
    if message.role == "system":
        return [SystemPromptPart(message.text)] if message.text else []
    results = [_tool_return(result) for result in message.tool_results]
    content = _content(part for part in message.parts if not isinstance(part, ToolResult))
    if len(content) == 1 and isinstance(content[0], str):
        return [*results, UserPromptPart(content[0])]
    return [*results, UserPromptPart(content)] if content else list(results)


def _tool_return(result: ToolResult) -> ToolReturnPart[Any]:
    return ToolReturnPart(
        tool_name=result.name or "tool",
        content=content_of(result),
        tool_call_id=result.call_id,
        outcome="failed" if result.is_error else "success",
    )


def content_of(result: ToolResult) -> Any:
    """What a model is shown of a result: text, or text and files."""
    result = excerpt_result(result)
    content = _content(result.parts)
    return result.text if all(isinstance(item, str) for item in content) else content


def from_tool_part(part: object, call: ToolCall) -> ToolResult | None:
    """The result that a tool of an agent gave; None where the part is no result."""
    if not isinstance(part, ToolReturnPart):
        return None
    said, others = part.model_response_str_and_user_content(wrap_if_error=False)
    parts: list[Text | File] = [Text(said)] if said else []
    for item in others:
        if isinstance(item, BinaryContent):
            parts.append(File(item.media_type, item.data))
        elif isinstance(item, str):
            parts.append(Text(item))
        elif (url := getattr(item, "url", None)) is not None:
            parts.append(File(getattr(item, "media_type", "application/octet-stream"), url=url))
    is_error = part.outcome != "success"
    return ToolResult(call.call_id, tuple(parts), name=call.name, is_error=is_error)


def _content(parts: Iterable[Part]) -> list[UserContent]:
    content: list[UserContent] = []
    for part in parts:
        match part:
            case Text() if part.text:
                content.append(part.text)
            case File():
                content.append(_file(part))
            case OpaquePart():
                content.append(_note(part))
            case _:
                pass
    return content


def _note(part: OpaquePart) -> str:
    return f"[a part of the type {part.type!r} is here, which cannot be shown to you]"


def _file(part: File) -> UserContent:
    kind = part.media_type.partition(";")[0].strip().lower()
    if not kind.startswith(_SHOWN_TYPES) and kind not in _SHOWN_DOCUMENTS:
        size = "" if part.data is None else f", {len(part.data)} bytes"
        where = "" if part.url is None else f" at {part.url}"
        return f"[the file {part.name or ''} ({kind}{size}){where} cannot be shown to you]"
    if part.url is None:
        return BinaryContent(part.data or b"", media_type=kind)
    match kind.partition("/")[0]:
        case "image":
            return ImageUrl(part.url, media_type=kind)
        case "audio":
            return AudioUrl(part.url, media_type=kind)
        case "video":
            return VideoUrl(part.url, media_type=kind)
        case _:
            return DocumentUrl(part.url, media_type=kind)


def _response(message: Message, interface: str, *, signed: bool) -> ModelResponse | None:
    fields = message.provider if isinstance(message.provider, dict) else {}
    own = fields.get("layer") == LAYER and fields.get("interface") == interface
    parts = [
        dump for part in message.parts if (dump := _response_part(part, own=own, signed=signed))
    ]
    if not parts:
        return None
    known = _without(fields, "layer", "interface", "context_window") if own else {}
    try:
        return _load({**known, "parts": parts})
    except ValidationError:  # written by another version of the layer: the text and calls do
        plain = [_response_part(part, own=False, signed=signed) for part in message.parts]
        return _load({"parts": [part for part in plain if part]})


def _load(fields: dict[str, Any]) -> ModelResponse:
    (answer,) = ModelMessagesTypeAdapter.validate_python([{**fields, "kind": "response"}])
    return cast("ModelResponse", answer)


def _response_part(part: Part, *, own: bool, signed: bool) -> dict[str, Any] | None:
    fields = part.provider if own and not isinstance(part, OpaquePart) else None
    known: dict[str, Any] = fields if isinstance(fields, dict) else {}
    match part:
        case Text() if part.text:
            return {**known, "part_kind": "text", "content": part.text}
        case Reasoning() if "part_kind" in known:
            return known
        case Reasoning() if own and (known.get("signature") or not signed):
            return {**known, "part_kind": "thinking", "content": part.text}
        case ToolCall():
            return {
                **known,
                "part_kind": "tool-call",
                "tool_name": part.name,
                "args": part.arguments,
                "tool_call_id": part.call_id,
            }
        case File() if "part_kind" in known and part.data is not None:
            content = BinaryContent(part.data, media_type=part.media_type)
            return {**known, "content": {**known["content"], "data": content.base64}}
        case File():
            return {"part_kind": "text", "content": f"[a file: {part.name or part.media_type}]"}
        case OpaquePart():
            return {"part_kind": "text", "content": _note(part)}
        case _:
            return None
