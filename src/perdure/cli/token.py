"""`perdure token`: makes, shows and revokes the tokens that let several people in.

A server that runs takes a change up by itself. A token is shown once, when it is made.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from perdure import clock
from perdure.cli.terminal import Terminal
from perdure.codec import encode
from perdure.errors import ConfigurationError
from perdure.server.access.principal import ROLES
from perdure.server.access.token_file import add_token, read_tokens, revoke_tokens
from perdure.server.config import load_settings

MAX_DAYS = 36_500


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("token", help="make, show and revoke the tokens of a server's people")
    kinds = verb.add_subparsers(metavar="WHAT", required=True, parser_class=type(verb))
    add = kinds.add_parser("add", help="make a token and print it, this once")
    add.add_argument("principal", metavar="NAME", help="whose it is; one may have several")
    add.add_argument(
        "--role",
        choices=ROLES,
        default="user",
        help="admin: everything; user (without --role): their own sessions; viewer: reads those; "
        "runtime: dials in as a runtime, and nothing else",
    )
    add.add_argument("--days", type=float, metavar="NUMBER", help="it expires after so many days")
    add.set_defaults(run=run_add)
    ls = kinds.add_parser("ls", help="show whose tokens there are, and not the tokens")
    ls.add_argument("--json", action="store_true", help="one object a line")
    ls.set_defaults(run=run_ls)
    revoke = kinds.add_parser("revoke", help="revoke a token by its id, or all of a principal")
    revoke.add_argument("named", metavar="ID|NAME", help="as perdure token ls shows it")
    revoke.set_defaults(run=run_revoke)
    for each in (add, ls, revoke):
        each.add_argument(
            "--tokens",
            metavar="FILE",
            help="the file (PERDURE_TOKENS, else perdure.toml, else tokens.toml beside the data)",
        )


def _path(options: argparse.Namespace) -> Path:
    return load_settings({"tokens": options.tokens}).tokens_path


def run_add(options: argparse.Namespace, terminal: Terminal) -> int:
    """Makes a token; it alone is on standard output."""
    expires_at = None
    if options.days is not None:
        if not 0 < options.days <= MAX_DAYS:
            raise ConfigurationError(f"--days is more than 0 and at most {MAX_DAYS}")
        expires_at = clock.now() + timedelta(days=options.days)
    path = _path(options)
    token, entry = add_token(path, options.principal, options.role, expires_at=expires_at)
    terminal.say(token)
    sys.stderr.write(
        f"perdure: {entry.principal} has the token {entry.id} with the role {entry.role}, in "
        f"{path}. It is shown this once: send it to nobody but {entry.principal}\n"
    )
    return 0


def run_ls(options: argparse.Namespace, terminal: Terminal) -> int:
    """Shows the tokens that there are."""
    try:
        entries = read_tokens(_path(options))
    except FileNotFoundError:
        entries = ()
    rows = [("ID", "PRINCIPAL", "ROLE", "CREATED", "EXPIRES")]
    for entry in entries:
        if options.json:
            shown = {
                name: getattr(entry, name)
                for name in ("id", "principal", "role", "created_at", "expires_at")
            }
            terminal.say(encode(shown).decode())
            continue
        expires = "never" if entry.expires_at is None else f"{entry.expires_at:%Y-%m-%d %H:%M}"
        if entry.grant.has_expired():
            expires += " (expired)"
        created = f"{entry.created_at:%Y-%m-%d %H:%M}"
        rows.append((entry.id, entry.principal, entry.role, created, expires))
    if entries and not options.json:
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
        for row in rows:
            terminal.say("  ".join(map(str.ljust, row, widths)).rstrip())
    return 0


def run_revoke(options: argparse.Namespace, terminal: Terminal) -> int:
    """Revokes; a server that runs ends the token's streams within a second."""
    for entry in revoke_tokens(_path(options), options.named):
        terminal.say(f"{entry.id}  {entry.principal}  {entry.role}  revoked")
    return 0
