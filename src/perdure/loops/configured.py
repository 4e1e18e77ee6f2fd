"""Loops that a configuration names: `[loops.NAME]` tables, each with a `kind`.

A kind is a class here with the keys that its table may have and `make`, which gives the factory.
Parsing imports nothing; making imports what the kind needs and what its table names. A further
kind is a further class in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from perdure.errors import ConfigurationError
from perdure.loop import LoopFactory, as_factory
from perdure.loops.approving import approving
from perdure.loops.imported import import_named, is_importable

NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
TAKEN = frozenset({"shell"})

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Attribute = Annotated[str, Meta(pattern=r"^[\w.]+:[\w.]+\Z")]


class Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every kind of loop may have.

    `approve` are patterns of tools whose calls wait for a person (`run_*`), beside the server's.
    """

    approve: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Its name in a table."""
        tag = self.__struct_config__.tag
        assert isinstance(tag, str)
        return tag

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """The factory; each kind makes its own.

        Raises:
            ConfigurationError, MissingExtraError: something that it names is not there.

        """
        raise NotImplementedError

    def missing(self) -> str | None:
        """What is plainly not there on this machine; cheap, and imports nothing of anybody's."""
        return None


class ModelKind(Kind, frozen=True, kw_only=True, tag="model"):
    """A model of a provider, with tools of yours; see `loops.Model` for what each key means.

    `tools` are `module:attribute`s: functions, or lists of functions. `api_key_env` names the
    environment variable that has the key, where it is another one than the provider's own.
    """

    model: str
    system: str | None = None
    tools: tuple[Attribute, ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    settings: Mapping[str, Any] = {}
    fallbacks: tuple[str, ...] = ()
    max_retries: Annotated[int, Meta(ge=0)] = 4
    max_steps: Positive = 100
    max_run_tokens: Positive | None = None
    max_run_s: Seconds | None = None
    limit_chars: Positive | None = 50_000
    context_window: Positive | None = None

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """A `Model`."""
        from perdure.loops.model import Model
        from perdure.loops.vendor import key_from

        tools: list[Any] = []
        for each in self.tools:
            found = import_named(each)
            tools += found if isinstance(found, list | tuple) else [found]
        return Model(
            self.model,
            tools=tools,
            system=self.system,
            base_url=self.base_url,
            api_key=key_from(self.api_key_env),
            settings=self.settings,
            fallbacks=self.fallbacks,
            max_retries=self.max_retries,
            max_steps=self.max_steps,
            max_run_tokens=self.max_run_tokens,
            max_run_s=self.max_run_s,
            limit_chars=self.limit_chars,
            context_window=self.context_window,
        )

    def missing(self) -> str | None:
        """A key, or a library."""
        from perdure.loops.vendor import missing_for_model, missing_key

        if self.api_key_env is not None:
            return missing_key(self.api_key_env)
        return None if self.base_url is not None else missing_for_model(self.model)


class _AgentKind(Kind, frozen=True, kw_only=True):
    agent: Attribute
    offers_tools: bool = True

    def missing(self) -> str | None:
        """The module."""
        return is_importable(self.agent)


class PydanticAiKind(_AgentKind, frozen=True, kw_only=True, tag="pydantic-ai"):
    """An agent of pydantic-ai, a `module:attribute`; `deps` is one too, called if it can be."""

    deps: Attribute | None = None

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """A `PydanticAgent`."""
        from perdure.loops.pydantic_agent import PydanticAgent

        deps = None if self.deps is None else import_named(self.deps)
        return PydanticAgent(
            import_named(self.agent),
            deps=None if callable(deps) else deps,
            make_deps=deps if callable(deps) else None,
            offers_tools=self.offers_tools,
        )


class OpenAiAgentsKind(_AgentKind, frozen=True, kw_only=True, tag="openai-agents"):
    """An agent of the OpenAI Agents SDK; `context` is a `module:attribute`, called if it can be."""

    context: Attribute | None = None
    context_window: Positive | None = None

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """An `OpenAIAgent`."""
        from perdure.loops.openai_agents import OpenAIAgent

        context = None if self.context is None else import_named(self.context)
        return OpenAIAgent(
            import_named(self.agent),
            context=None if callable(context) else context,
            make_context=context if callable(context) else None,
            offers_tools=self.offers_tools,
            context_window=self.context_window,
        )


class AcpKind(Kind, frozen=True, kw_only=True, tag="acp"):
    """A command-line agent over the Agent Client Protocol; see `loops.Acp` for each key.

    `agent` is one that is known by name, `command` what to run instead. `env` is added to the
    server's environment; `workspace` None is the server's.
    """

    agent: str | None = None
    command: tuple[str, ...] = ()
    workspace: str | None = None
    env: Mapping[str, str] = {}
    auth: str | None = None
    mode: str | None = None
    asks_people: bool = True
    start_within_s: Seconds = 120.0
    grace_s: Seconds = 2.0
    limit_chars: Positive | None = 50_000

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """An `Acp`."""
        from perdure.loops.acp import Acp
        from perdure.loops.agents import agent_named

        known = None if self.agent is None else agent_named(self.agent)
        return Acp(
            self.command or (known.command if known is not None else ()),
            self.workspace or workspace,
            env=self.env,
            auth=self.auth,
            mode=self.mode,
            asks_people=self.asks_people,
            start_within_s=self.start_within_s,
            grace_s=self.grace_s,
            limit_chars=self.limit_chars,
            install=known.install if known is not None else None,
        )

    def missing(self) -> str | None:
        """The library, or the command."""
        from perdure.loops.vendor import missing_agent

        return missing_agent(self.agent, self.command, self.env)


class ClaudeStreamKind(Kind, frozen=True, kw_only=True, tag="claude-stream"):
    """Claude Code through its own stream of JSON; see `loops.ClaudeStream` for each key."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)] = ("claude",)
    arguments: tuple[str, ...] = ()
    workspace: str | None = None
    env: Mapping[str, str] = {}
    asks_people: bool = True
    start_within_s: Seconds = 120.0
    grace_s: Seconds = 2.0
    limit_chars: Positive | None = 50_000

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """A `ClaudeStream`."""
        from perdure.loops.claude_stream import ClaudeStream

        return ClaudeStream(
            self.workspace or workspace,
            command=self.command,
            arguments=self.arguments,
            env=self.env,
            asks_people=self.asks_people,
            start_within_s=self.start_within_s,
            grace_s=self.grace_s,
            limit_chars=self.limit_chars,
        )

    def missing(self) -> str | None:
        """The command."""
        from perdure.loops.agents import CLAUDE_CODE
        from perdure.loops.vendor import missing_command

        return missing_command(self.command[0], CLAUDE_CODE, self.env)


class ShellKind(Kind, frozen=True, kw_only=True, tag="shell"):
    """Runs the messages of users as commands; `workspace` None is the server's."""

    workspace: str | None = None
    timeout_s: Seconds | None = None

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """A `Shell`."""
        from perdure.loops.shell import Shell

        return Shell(self.workspace or workspace, timeout_s=self.timeout_s)


class ImportKind(Kind, frozen=True, kw_only=True, tag="import"):
    """A loop factory of yours, a `module:attribute`."""

    factory: Attribute

    def make(self, name: str, workspace: Path) -> LoopFactory:
        """What it names."""
        return as_factory(import_named(self.factory), repr(self.factory))

    def missing(self) -> str | None:
        """The module."""
        return is_importable(self.factory)


KINDS: tuple[type[Kind], ...] = (
    ModelKind,
    PydanticAiKind,
    OpenAiAgentsKind,
    AcpKind,
    ClaudeStreamKind,
    ShellKind,
    ImportKind,
)


def parse_loops(table: object, place: str) -> dict[str, Kind]:
    """The loops of a table `[loops]`; imports nothing.

    Raises:
        ConfigurationError: names the place, the key, and what is allowed.

    """
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"loops in {place} is made of tables: [loops.NAME]")
    return {name: _parse(name, values, place) for name, values in table.items()}


def _parse(name: object, values: object, place: str) -> Kind:
    where = f"[loops.{name}] in {place}"
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in TAKEN:
        raise ConfigurationError(
            f"{where}: a name is up to 64 lowercase letters, digits, '_' and '-', beginning with a "
            f"letter, and not {' or '.join(sorted(TAKEN))}"
        )
    kinds = {str(each.__struct_config__.tag): each for each in KINDS}
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if kind not in kinds:
        raise ConfigurationError(f"{where} has a kind, which is one of {', '.join(kinds)}")
    try:
        found: Kind = msgspec.convert(values, reduce(or_, KINDS))
    except msgspec.ValidationError as error:
        keys = ", ".join(kinds[str(kind)].__struct_fields__)
        raise ConfigurationError(f"{where} is not valid: {error}; its keys are {keys}") from error
    return found


def make_configured(kind: Kind, name: str, workspace: Path) -> LoopFactory:
    """The factory of a table, with its own patterns of approval around it.

    Raises:
        ConfigurationError, MissingExtraError: something that it names is not there.

    """
    factory = kind.make(name, workspace)
    return approving(factory, kind.approve) if kind.approve else factory
