"""Which of the installed plugins a server has: all, less those that `[plugins]` disables."""

from __future__ import annotations

from msgspec import Struct

from perdure.plugin import Plugins
from perdure.server.config import Settings


class PluginTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[plugins]` of perdure.toml: the plugins to do without, by name."""

    disabled: tuple[str, ...] = ()


def installed_plugins(settings: Settings) -> Plugins:
    """The plugins, none of them loaded yet.

    Raises:
        ConfigurationError: the table is malformed.

    """
    return Plugins(disabled=settings.read_table("plugins", PluginTable).disabled)
