"""The loops of this machine by name, as `perdure serve` runs them."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from perdure.errors import ConfigurationError, PerdureError
from perdure.loop import LoopFactory
from perdure.loops import default_loop_name, loop_by_name
from perdure.loops.named import is_module
from perdure.plugin import Plugins
from perdure.server.config import Settings


class NamedLoops:
    """Loops that run their tools in the settings' workspace; each is made once.

    A session may choose the default, `shell`, any `provider:model`, any loop of a plugin, and of
    the loops that have to be imported those that the setting `loops` names: who may send does not
    choose what is imported.
    """

    def __init__(self, settings: Settings, plugins: Plugins | None = None) -> None:
        self._plugins = plugins
        self._workspace = Path(settings.workspace)
        self._default = settings.loop or default_loop_name(os.environ)
        self._importable = {self._default, *settings.loops}
        self._factories: dict[str, LoopFactory] = {}

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
        if not is_module(name):
            with suppress(
                PerdureError
            ):  # a model's library is imported; the run says what is amiss
                factory()

    def factory(self, name: str, /) -> LoopFactory:
        """The factory of this name.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        if name not in self._factories:
            if is_module(name) and name not in self._importable:
                raise ConfigurationError(
                    f"the loop {name!r} is not one that this server offers; whoever runs it can "
                    "name it in the setting loops"
                )
            self._factories[name] = loop_by_name(
                name, workspace=self._workspace, plugins=self._plugins
            )
        return self._factories[name]
