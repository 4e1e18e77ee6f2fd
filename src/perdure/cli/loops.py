"""`perdure loops`: what can answer on this machine, and how to enable what cannot yet."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perdure.cli.terminal import Terminal, one_line
from perdure.loops.vendor import vendors
from perdure.server.config import load_settings
from perdure.server.named_loop import NamedLoops
from perdure.server.plugin_setting import installed_plugins


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("loops", help="list what can answer here, and how to enable the rest")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Prints the loops that have a name here, and the vendors; starts and sends nothing.

    Raises:
        ConfigurationError: `perdure.toml` or the environment is not valid.

    """
    settings = load_settings()
    loops = NamedLoops(settings, installed_plugins(settings))
    looks, known = loops.looks(), vendors()
    if options.json:
        found = {"default": loops.default, "loops": looks, "vendors": known}
        terminal.say(json.dumps(msgspec.to_builtins(found), ensure_ascii=terminal.is_terminal))
        return 0
    default = (" (default)", "")
    rows = [
        (look.name + default[not look.is_default], look.kind, look.missing or "ready")
        for look in looks
    ]
    _table(terminal, ("LOOP", "KIND", "STATE"), rows)
    terminal.say("")
    _table(
        terminal,
        ("VENDOR", "LOOP", "STATE"),
        [(each.name, each.loop, each.how or "ready") for each in known],
    )
    return 0


def _table(terminal: Terminal, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(2)]
    for first, second, third in lines:
        terminal.say(f"{first:<{widths[0]}}  {second:<{widths[1]}}  {third}".rstrip())
