"""The loops of this machine by name, as `perdure serve` runs them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from perdure.errors import ConfigurationError, MissingExtraError, PerdureError
from perdure.loop import LoopFactory, as_factory
from perdure.loops import default_loop_name, loop_by_name
from perdure.loops.agents import SCHEME
from perdure.loops.configured import ImportKind, make_configured, parse_loops
from perdure.loops.named import is_module
from perdure.loops.vendor import missing_agent, missing_for_model
from perdure.plugin import Plugins
from perdure.server.config import FILE_NAME, Settings

MOST_KEPT = 1_000
"""How many factories are kept; beyond, the oldest is made anew when it is needed."""

Origin = Literal["configuration", "application", "plugin", "setting", "built-in"]


class LoopLook(Struct, frozen=True):
    """A loop that a session may choose by its name.

    `kind` is that of its table, else `model`, `acp`, `shell` or `import`. `missing` is what is
    plainly not there, which does not say that everything else is; nothing is imported or sent to
    find out.
    """

    name: str
    kind: str
    origin: Origin
    is_default: bool
    missing: str | None


class NamedLoops:
    """Loops that run their tools in the settings' workspace; each is made once.

    A session may choose the default, the loops of `[loops.NAME]` and those `registered` by the
    application, any loop of a plugin, and those that the setting `loops` names; and, unless
    `offered_loops` is `named`, `shell` and any `provider:model`. Who may send does not choose what
    is imported.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: Plugins | None = None,
        registered: Mapping[str, LoopFactory] | None = None,
    ) -> None:
        self._plugins = plugins
        self._workspace = Path(settings.workspace)
        self._kinds = parse_loops(settings.tables.get("loops", {}), FILE_NAME)
        self._registered = {
            name: as_factory(given, f"the loop {name!r}")
            for name, given in (registered or {}).items()
        }
        if both := sorted({*self._kinds} & {*self._registered}):
            raise ConfigurationError(
                f"the application and [loops.{both[0]}] in {FILE_NAME} have the loop {both[0]!r}"
            )
        self._default = settings.loop or default_loop_name(os.environ)
        self._named = {self._default, *settings.loops}
        self._only_named = settings.offered_loops == "named"
        self._factories: dict[str, LoopFactory] = {**self._registered}

    @property
    def default(self) -> str:
        """The name of the loop of sessions that chose none."""
        return self._default

    async def prepare(self, name: str, /) -> None:
        """Imports what this loop needs in a thread; `factory(name)` is quick after it.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        if name not in self._factories:
            await asyncio.to_thread(self._import, name)

    def _import(self, name: str) -> None:
        factory = self.factory(name)
        if self._is_ours(name):
            with suppress(PerdureError):  # it imports a library; the run says what is amiss
                factory()

    def _is_ours(self, name: str) -> bool:
        """Whether the factory is one of Perdure's; anybody else's is called for a run only."""
        if (kind := self._kinds.get(name)) is not None:
            return not isinstance(kind, ImportKind)
        return name == "shell" or (":" in name and not is_module(name))

    def factory(self, name: str, /) -> LoopFactory:
        """The factory of this name.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        if name in self._factories:
            return self._factories[name]
        made = self._factories[name] = self._make(name)
        if len(self._factories) > MOST_KEPT:  # users can name any number of models
            oldest = next(each for each in self._factories if each not in self._registered)
            del self._factories[oldest]
        return made

    def _make(self, name: str) -> LoopFactory:
        kind = self._kinds.get(name)
        if kind is not None:
            try:
                return make_configured(kind, name, self._workspace)
            except MissingExtraError:
                raise
            except ConfigurationError as error:
                raise ConfigurationError(f"[loops.{name}] in {FILE_NAME}: {error}") from error
        is_named = name in self._named or self._plugin_has(name)
        if not is_named and (self._only_named or is_module(name)):
            raise ConfigurationError(
                f"the loop {name!r} is not one that this server offers; {self._offer()}; whoever "
                "runs it can name it in the setting loops, or in a table [loops.NAME]"
            )
        try:
            return loop_by_name(name, workspace=self._workspace, plugins=self._plugins)
        except ConfigurationError as error:
            if ":" in name or not (self._kinds or self._registered):
                raise
            raise ConfigurationError(f"{error}; {self._offer()}") from error

    def _plugin_has(self, name: str) -> bool:
        return ":" not in name and self._plugins is not None and name in self._plugins.loop_names

    def _offer(self) -> str:
        return "it offers " + ", ".join(look.name for look in self.looks())

    def looks(self) -> list[LoopLook]:
        """The loops that have a name here; `provider:model` names any number of others."""
        looks = [self._look(name, kind.kind, "configuration") for name, kind in self._kinds.items()]
        looks += [self._look(name, "import", "application") for name in self._registered]
        if self._plugins is not None:
            looks += [self._look(name, "import", "plugin") for name in self._plugins.loop_names]
        known = {look.name for look in looks}
        named = sorted(self._named - known)
        looks += [self._look(n, _kind_of(n), "setting") for n in named if n != "shell"]
        if not self._only_named or "shell" in named:
            looks.append(self._look("shell", "shell", "built-in"))
        return looks

    def _look(self, name: str, kind: str, origin: Origin) -> LoopLook:
        missing = None
        if (configured := self._kinds.get(name)) is not None:
            missing = configured.missing()
        elif kind == "model":
            missing = missing_for_model(name)
        elif kind == "acp":
            missing = missing_agent(name.partition(":")[2])
        return LoopLook(name, kind, origin, name == self._default, missing)


def _kind_of(name: str) -> str:
    if name.partition(":")[0] == SCHEME:
        return "acp"
    return "import" if is_module(name) else "model"
