"""What a `module:attribute` names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from perdure.errors import ConfigurationError


def import_named(name: str) -> Any:
    """The attribute, its module imported.

    Raises:
        ConfigurationError: there is no such module or attribute, or importing it failed.

    """
    module, _, attribute = name.partition(":")
    try:
        found: object = import_module(module)
    except (Exception, SystemExit) as error:  # the edge of somebody else's module
        raise ConfigurationError(f"{name!r} cannot be imported: {error!r}") from error
    for each in attribute.split("."):
        if not hasattr(found, each):
            raise ConfigurationError(f"{name!r}: the module {module!r} has no {attribute!r}")
        found = getattr(found, each)
    return found


def is_importable(name: str) -> str | None:
    """None, or that there is no such module; its package is looked for and not imported."""
    top = name.partition(":")[0].partition(".")[0]
    try:
        is_there = find_spec(top) is not None
    except (ImportError, ValueError):
        is_there = False
    return None if is_there else f"there is no module {top!r} where this server looks for modules"
