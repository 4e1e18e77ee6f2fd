"""The hooks of a server: those of its files, then those of its plugins, and what is amiss is said.

A file that is malformed stops the start. What of it has no effect is a warning in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from perdure.errors import ConfigurationError
from perdure.plugin import Plugins
from perdure.server.hook.file import read_hook_file
from perdure.server.hook.function import Function
from perdure.server.hook.handler import Handler
from perdure.server.hook.hooks import Hooks

log = logging.getLogger(__name__)


def load_hooks(files: Sequence[Path], plugins: Plugins, *, folder: Path) -> Hooks:
    """The hooks of these files and plugins; commands run in `folder`, the workspace.

    Raises:
        ConfigurationError: a file or a plugin's matcher is malformed; names it, and the place.

    """
    handlers: list[Handler] = []
    for path in files:
        file = read_hook_file(path)
        handlers += file.commands
        log.info("%s: %d hooks", path, len(file.commands))
        for what in file.unsupported:
            log.warning("%s: %s", path, what)
    for plugin in plugins.sound.values():
        try:
            handlers += [Function(plugin.name, hook) for hook in plugin.hooks]
        except ConfigurationError as error:
            raise ConfigurationError(f"a hook of the plugin {plugin}: {error}") from error
        log.info("plugin %s", plugin)
    return Hooks(handlers, folder=folder)
