"""Messages to and from the items of the OpenAI Agents SDK, with all that a provider sent.

Every item of an answer is kept beside the part that shows it, reasoning and ids included, and goes
back as it came. An answer of another layer gives its text and its calls, and nobody's reasoning.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.entry import File, Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from perdure.loops.tool import parse_arguments
from perdure.view import excerpt_result

LAYER = "openai_agents"
Item = dict[str, Any]


def from_items(items: Sequence[Item]) -> tuple[Part, ...]:
    """The parts of an answer, in the order of its items."""
    parts: list[Part] = []
    for item in items:
        match item.get("type"):
            case "message":
                parts += _texts(item)
            case "function_call":
                arguments = parse_arguments(item["arguments"])
                call = ToolCall(item["call_id"], item["name"], arguments, provider={"item": item})
                parts.append(call)
            case "reasoning":
                said = "\n\n".join(each.get("text", "") for each in item.get("summary") or ())
                parts.append(Reasoning(said, provider={"item": item}))
            case _:  # a call that the provider made itself, its result, a compaction of its own
                parts.append(Reasoning("", provider={"item": item}))
    return tuple(parts)


def _texts(item: Item) -> list[Text]:
    """A part for each content of a message; the first one carries the rest of the item."""
    contents = item.get("content") or []
    bare = [{k: v for k, v in each.items() if k not in ("text", "refusal")} for each in contents]
    rest: Json = {"item": {**item, "content": bare}}
    said = [each.get("text") or each.get("refusal") or "" for each in contents] or [""]
    return [Text(text, provider=rest if not n else {"of": n}) for n, text in enumerate(said)]


def to_items(messages: Iterable[Message]) -> list[Item]:
    """The conversation as the input of a run. O(messages)."""
    items: list[Item] = []
    for message in messages:
        if message.role == "assistant":
            items += _answer(message)
        else:
            items += [_output(result) for result in message.tool_results]
            others = [part for part in message.parts if not isinstance(part, ToolResult)]
            if content := _contents(others):
                role = "system" if message.role == "system" else "user"
                items.append({"role": role, "content": content})
    return items


def _answer(message: Message) -> list[Item]:
    provider = message.provider if isinstance(message.provider, dict) else {}
    own = provider.get("layer") == LAYER
    items: list[Item] = []
    texts: list[Text] = []
    for part in message.parts:
        item = _item_of(part) if own else None
        match part:
            case Text():
                texts.append(part)
                continue
            case ToolCall():
                items += _said(texts, own=own)
                items.append(item or _call(part))
            case Reasoning() if item is not None:
                items += _said(texts, own=own)
                items.append(item)
            case File():
                texts.append(Text(f"[a file: {part.name or part.media_type}]"))
                continue
            case _:
                continue
        texts = []
    return [*items, *_said(texts, own=own)]


def _item_of(part: Part) -> Item | None:
    provider = getattr(part, "provider", None)
    item = provider.get("item") if isinstance(provider, dict) else None
    return dict(item) if isinstance(item, dict) else None


def _said(texts: Sequence[Text], *, own: bool) -> list[Item]:
    """Texts that follow each other, as the messages that they were, or as one."""
    items: list[Item] = []
    plain: list[str] = []
    for part in texts:
        item = _item_of(part) if own else None
        if item is not None:
            items.append(item | {"content": [dict(each) for each in item["content"]]})
        place = part.provider.get("of", 0) if isinstance(part.provider, dict) else 0
        if own and items and isinstance(place, int) and place < len(items[-1]["content"]):
            content = items[-1]["content"][place]
            content["refusal" if content.get("type") == "refusal" else "text"] = part.text
        elif part.text:
            plain.append(part.text)
    if plain:
        items.append({"role": "assistant", "content": "\n\n".join(plain)})
    return items


def _call(part: ToolCall) -> Item:
    arguments = part.arguments
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {
        "type": "function_call",
        "call_id": part.call_id,
        "name": part.name,
        "arguments": raw,
    }


def _output(result: ToolResult) -> Item:
    shown = excerpt_result(result)
    contents = _contents(shown.parts)
    only_text = all(each["type"] == "input_text" for each in contents)
    output = "".join(each["text"] for each in contents) if only_text else contents
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _contents(parts: Iterable[Part]) -> list[Item]:
    contents: list[Item] = []
    for part in parts:
        match part:
            case Text() if part.text:
                contents.append({"type": "input_text", "text": part.text})
            case File():
                contents.append(_file(part))
            case _:
                pass
    return contents


def _file(part: File) -> Item:
    kind = part.media_type.partition(";")[0].strip().lower()
    data = base64.b64encode(part.data or b"").decode()
    url = part.url or f"data:{kind};base64,{data}"
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": url}


def parts_of_output(output: object) -> tuple[Text | File, ...]:
    """What a tool gave, as parts: text, and images that it gave as data."""
    if isinstance(output, str):
        return (Text(output),) if output else ()
    found: list[Text | File] = []
    for each in output if isinstance(output, list | tuple) else [output]:
        dump = each.model_dump() if hasattr(each, "model_dump") else each
        if not isinstance(dump, Mapping):
            found.append(Text(str(each)))
        elif isinstance(url := dump.get("image_url"), str):
            found.append(_image(url))
        elif isinstance(dump.get("text"), str) and dump.get("type") in ("text", "input_text"):
            found.append(Text(dump["text"]))
        else:
            found.append(Text(str(each)))
    return tuple(found)


def _image(url: str) -> File:
    head, comma, data = url.partition(";base64,")
    if comma and head.startswith("data:"):
        return File(head.removeprefix("data:"), base64.b64decode(data))
    return File("image/*", url=url)
