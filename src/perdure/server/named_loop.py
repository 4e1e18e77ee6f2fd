"""The loops of this machine by name, as `perdure serve` runs them."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.loop import LoopFactory
from perdure.loops import default_loop_name, loop_by_name
from perdure.server.config import Settings


class NamedLoops:
    """Loops that run their tools in the settings' workspace; each is made once."""

    def __init__(self, settings: Settings) -> None:
        self._workspace = Path(settings.workspace)
        self._default = settings.loop or default_loop_name(os.environ)
        self._factories: dict[str, LoopFactory] = {}

    @property
    def default(self) -> str:
        """The name of the loop of sessions that chose none."""
        return self._default

    def factory(self, name: str, /) -> LoopFactory:
        """The factory of this name.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        if name not in self._factories:
            self._factories[name] = loop_by_name(name, workspace=self._workspace)
        return self._factories[name]
