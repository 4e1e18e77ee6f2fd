"""The vendors behind loops: which can be used on this machine, and how to enable the others.

It looks for keys in the environment, libraries and command lines, and starts, imports and sends
nothing. That a key is set does not say that it is good.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from perdure.errors import ConfigurationError
from perdure.loops.agents import AGENTS, SCHEME


class Vendor(Struct, frozen=True):
    """A vendor as it is here. `how` is what to do where it cannot be used, None where it can.

    `loop` is the name of a loop of it, or what to put in its place.
    """

    name: str
    kind: Literal["model", "command"]
    is_usable: bool
    how: str | None
    loop: str


class _Provider(Struct, frozen=True):
    variable: str
    library: str
    extra: str
    model: str


_MODELS = "pip install 'perdure[models]'"
_PROVIDERS = {
    "anthropic": _Provider("ANTHROPIC_API_KEY", "anthropic", _MODELS, "claude-sonnet-5-5"),
    "openai-responses": _Provider("OPENAI_API_KEY", "openai", _MODELS, "gpt-6.1-sol"),
    "google": _Provider(
        "GOOGLE_API_KEY", "google.genai", "pip install 'pydantic-ai-slim[google]'", "MODEL"
    ),
    "groq": _Provider("GROQ_API_KEY", "groq", "pip install 'pydantic-ai-slim[groq]'", "MODEL"),
    "mistral": _Provider(
        "MISTRAL_API_KEY", "mistralai", "pip install 'pydantic-ai-slim[mistral]'", "MODEL"
    ),
    "openrouter": _Provider("OPENROUTER_API_KEY", "openai", _MODELS, "MODEL"),
    "ollama": _Provider("OLLAMA_BASE_URL", "openai", _MODELS, "MODEL"),
}
_SAME = {"openai": "openai-responses", "openai-chat": "openai-responses"}


def vendors() -> list[Vendor]:
    """All that are known, models first."""
    found: list[Vendor] = []
    for name, provider in _PROVIDERS.items():
        how = _missing(provider)
        found.append(Vendor(name, "model", how is None, how, f"{name}:{provider.model}"))
    for name in AGENTS:
        how = missing_agent(name)
        found.append(Vendor(name, "command", how is None, how, f"{SCHEME}:{name}"))
    return found


def missing_agent(
    name: str | None, command: Sequence[str] = (), env: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """What is plainly missing for a command-line agent: the protocol's library, or its command."""
    if find_spec("acp") is None:
        return "pip install 'perdure[acp]'"
    agent = AGENTS.get(name or "")
    program = next(iter(command or (agent.command if agent is not None else ())), None)
    if program is None:
        return f"name one of the agents {', '.join(AGENTS)}, or a command"
    return missing_command(program, agent.install if agent is not None else None, env)


def missing_command(program: str, install: str | None, env: Mapping[str, str]) -> str | None:
    """None if the command is found in the `PATH` of `env`, or else of this process."""
    if shutil.which(program, path=env.get("PATH")) is not None:
        return None
    return f"there is no command {program!r}" + (f": {install}" if install else "")


def missing_for_model(name: str) -> str | None:
    """What is plainly missing for a model `provider:model`; None where nothing is known of it."""
    provider = name.partition(":")[0]
    known = _PROVIDERS.get(_SAME.get(provider, provider))
    return None if known is None else _missing(known)


def missing_key(variable: str) -> str | None:
    """None if the environment variable is set."""
    return None if os.environ.get(variable) else f"set {variable}"


def key_from(variable: str | None) -> str | None:
    """The key that the environment variable has.

    Raises:
        ConfigurationError: it is named, and not set.

    """
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise ConfigurationError(f"a loop's key is in {variable}, which is not set")
    return key


def _missing(provider: _Provider) -> str | None:
    if find_spec("pydantic_ai") is None:
        return _MODELS
    try:
        is_there = find_spec(provider.library) is not None
    except ModuleNotFoundError:  # the package that it would be in
        is_there = False
    return missing_key(provider.variable) if is_there else provider.extra
