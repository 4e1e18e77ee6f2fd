"""Loops: one module per kind of inner agent, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from perdure.loops.named import default_loop_name, loop_by_name

if TYPE_CHECKING:
    from perdure.loops.acp import Acp
    from perdure.loops.claude_stream import ClaudeStream
    from perdure.loops.current import current_call
    from perdure.loops.model import Model
    from perdure.loops.openai_agents import OpenAIAgent
    from perdure.loops.pydantic_agent import PydanticAgent
    from perdure.loops.shell import Shell
    from perdure.loops.tool import ToolContext

__all__ = [
    "Acp",
    "ClaudeStream",
    "Model",
    "OpenAIAgent",
    "PydanticAgent",
    "Shell",
    "ToolContext",
    "current_call",
    "default_loop_name",
    "loop_by_name",
]

_HOMES = {
    "Acp": "perdure.loops.acp",
    "ClaudeStream": "perdure.loops.claude_stream",
    "Model": "perdure.loops.model",
    "OpenAIAgent": "perdure.loops.openai_agents",
    "PydanticAgent": "perdure.loops.pydantic_agent",
    "Shell": "perdure.loops.shell",
    "ToolContext": "perdure.loops.tool",
    "current_call": "perdure.loops.current",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
