"""`perdure runtime`: a workspace of this machine, as a runtime of a server elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import tomllib
from pathlib import Path
from typing import Any

from perdure.cli.terminal import Terminal
from perdure.clock import new_id
from perdure.errors import ConfigurationError, MissingExtraError
from perdure.runtimes.command_tool import CommandLimits
from perdure.runtimes.local import open_local
from perdure.runtimes.source import sources_of
from perdure.runtimes.table import RuntimeTable, parse_mcp, parse_runtimes

_FILE = "perdure.toml"
_TOKEN = "PERDURE_TOKEN"
_OPTIONAL = {"mcp", "mcp_types", "websockets", "anyio", "pydantic"}

_EPILOG = f"""\
It dials in, and again whenever the connection is lost, until it is told to end. In {_FILE} of this
folder, the MCP servers of [mcp.NAME] are its tools too, and a table [runtimes.NAME] of its name
says which tools it has, and what bounds them. The token can be in {_TOKEN} instead, where other
users of the machine cannot read it."""


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser(
        "runtime", help="run the tools of a server's sessions here", epilog=_EPILOG
    )
    verb.add_argument("--workspace", metavar="FOLDER", default=".", help="where tools run (.)")
    verb.add_argument("--connect", metavar="URL", required=True, help="the server's address")
    verb.add_argument("--token", metavar="T", help=f"a token that may dial in (or {_TOKEN})")
    verb.add_argument(
        "--name", metavar="NAME", help="what sessions call it; else the name of this machine"
    )
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serves until SIGTERM or Ctrl-C; its commands end with it.

    Raises:
        ConfigurationError: the workspace, the token or the name will not do.
        MissingExtraError: what it is built on is not installed.

    """
    token = options.token or os.environ.pop(_TOKEN, None)
    if not token:
        raise ConfigurationError(
            f"a runtime needs a token of the server: --token, or {_TOKEN} in the environment"
        )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(options, token))
    return 0


async def _serve(options: argparse.Namespace, token: str) -> None:
    try:
        from perdure.runtimes.dial import dial
        from perdure.runtimes.serving import Serving
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OPTIONAL:
            raise
        raise MissingExtraError("perdure runtime", "runtimes") from error
    name, life = options.name or _machine(), new_id()
    tables = await asyncio.to_thread(_tables)
    servers = parse_mcp(tables.get("mcp"), _FILE)
    table = parse_runtimes(tables.get("runtimes"), _FILE).get(name, RuntimeTable())
    runtime = await open_local(
        options.workspace,
        name=name,
        life=life,
        sources=sources_of(servers, options.workspace),
        chosen=table.tools,
        limits=CommandLimits(
            timeout_s=table.command_timeout_s, max_output_bytes=table.max_output_bytes
        ),
        excerpt_chars=table.excerpt_chars,
    )
    serving = Serving(runtime)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await dial(
            serving,
            options.connect,
            token=token,
            name=name,
            life=life,
            workspace=str(runtime.folder),
            say=_say,
        )
    except asyncio.CancelledError:
        task.uncancel()
    finally:
        await serving.close()


def _say(line: str) -> None:
    sys.stderr.write(f"perdure: {line}\n")
    sys.stderr.flush()


def _tables() -> dict[str, Any]:
    try:
        return tomllib.loads(Path(_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{_FILE} cannot be read: {error}") from error


def _machine() -> str:
    """The machine's name, as a runtime may be called."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])
    return plain.lstrip("._-")[:64] or "remote"
