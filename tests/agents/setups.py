"""How each real agent is pointed at the mock, with a dummy key and a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.agents.install import node_path

KEY = "dummy"


@dataclass(frozen=True)
class Setup:
    """One agent: its table in `perdure.toml`, and how a model makes it run a command."""

    name: str
    kind: str
    table: Mapping[str, Any]
    env: Mapping[str, str]
    tool: str
    arguments: Callable[[str], Mapping[str, Any]]
    files: Mapping[str, str] = field(default_factory=dict)
    reloads: bool = True
    """Whether it takes its session up again; else a fresh one is told our transcript."""


def setups(bin_folder: Path, home: Path, base: str) -> dict[str, Setup]:
    """The agents, by name; `base` is the provider mock's address."""
    common = {
        "HOME": str(home),
        "PATH": f"{bin_folder}:{node_path()}",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local/state"),
    }
    made = (_claude(base), _claude_stream(base), _codex(home, base), _opencode(base), _gemini(base))
    return {each.name: replace(each, env={**common, **each.env}) for each in made}


def _claude(base: str) -> Setup:
    env = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": base,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # it may run as root, as in a container of continuous integration
    }
    return Setup("claude", "acp", {"agent": "claude", "mode": "default"}, env, "Bash", _described)


def _claude_stream(base: str) -> Setup:
    table = {"arguments": ["--permission-mode=default"]}
    return Setup("claude-stream", "claude-stream", table, _claude(base).env, "Bash", _described)


def _codex(home: Path, base: str) -> Setup:
    config = "\n".join(
        (
            'model = "gpt-5"',
            'model_provider = "mock"',
            'approval_policy = "on-request"',
            'sandbox_mode = "read-only"',
            "[model_providers.mock]",
            'name = "mock"',
            f'base_url = "{base}/v1"',
            'wire_api = "responses"',
            'env_key = "OPENAI_API_KEY"',
        )
    )
    env = {
        "OPENAI_API_KEY": KEY,
        "CODEX_HOME": str(home / ".codex"),
        "INITIAL_AGENT_MODE": "workspace-write",
        "NO_BROWSER": "1",
    }
    return Setup(
        "codex",
        "acp",
        {"agent": "codex"},
        env,
        "exec_command",
        lambda command: {
            "cmd": command,
            "sandbox_permissions": "require_escalated",
            "justification": "a test",
        },
        {".codex/config.toml": config},
    )


def _opencode(base: str) -> Setup:
    config = {
        "model": "anthropic/claude-sonnet-4-5",
        "small_model": "anthropic/claude-sonnet-4-5",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"edit": "ask", "bash": "ask"},
        "provider": {"anthropic": {"options": {"apiKey": KEY, "baseURL": f"{base}/v1"}}},
    }
    env = {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }
    return Setup("opencode", "acp", {"agent": "opencode"}, env, "bash", _described)


def _gemini(base: str) -> Setup:
    env = {
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": base,
        "GEMINI_MODEL": "gemini-2.5-pro",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }
    return Setup(
        "gemini",
        "acp",
        {"agent": "gemini", "auth": "gemini-api-key"},
        env,
        "run_shell_command",
        _described,
        reloads=False,  # it says that it can, and answers most session/load with an internal error
    )


def _described(command: str) -> Mapping[str, Any]:
    return {"command": command, "description": "A test"}
