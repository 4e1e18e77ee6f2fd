"""The command-line agents that are known by name: their commands, and how to come by them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from perdure.errors import ConfigurationError
from perdure.loop import LoopFactory

SCHEME = "acp"
"""`acp:NAME` is the loop of a known agent."""

CLAUDE_CODE = "npm install -g @anthropic-ai/claude-code"
"""How to come by Claude Code's own command line."""


class KnownAgent(Struct, frozen=True):
    """An agent that speaks the Agent Client Protocol when it is started with `command`.

    `key` is the environment variable with the key of its usual provider; an agent that its user has
    logged in with its own command line needs none.
    """

    title: str
    command: tuple[str, ...]
    install: str
    key: str


AGENTS: Mapping[str, KnownAgent] = MappingProxyType(
    {
        "claude": KnownAgent(
            "Claude Code",
            ("claude-agent-acp",),
            "npm install -g @agentclientprotocol/claude-agent-acp",
            "ANTHROPIC_API_KEY",
        ),
        "codex": KnownAgent(
            "Codex",
            ("codex-acp",),
            "npm install -g @agentclientprotocol/codex-acp",
            "OPENAI_API_KEY",
        ),
        "opencode": KnownAgent(
            "opencode", ("opencode", "acp"), "npm install -g opencode-ai", "ANTHROPIC_API_KEY"
        ),
        "gemini": KnownAgent(
            "Gemini CLI",
            ("gemini", "--acp"),
            "npm install -g @google/gemini-cli",
            "GEMINI_API_KEY",
        ),
    }
)


def agent_named(name: str) -> KnownAgent:
    """The agent of this name.

    Raises:
        ConfigurationError: none is known by it.

    """
    if name not in AGENTS:
        raise ConfigurationError(
            f"no command-line agent is known by the name {name!r}; known are {', '.join(AGENTS)}, "
            "and any other that speaks the Agent Client Protocol with a command of yours"
        )
    return AGENTS[name]


def agent_loop(name: str, workspace: Path) -> LoopFactory:
    """The loop of a known agent, `acp:NAME`.

    Raises:
        ConfigurationError: none is known by this name.

    """
    from perdure.loops.acp import Acp

    agent = agent_named(name)
    return Acp(agent.command, workspace, install=agent.install)
