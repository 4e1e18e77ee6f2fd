"""The outermost frame: arguments in, an exit status out, every error one line on standard error.

0: done. 1: it could not be done, or damage was found. 2: the command was not a valid one. 130 and
141: interrupted from the keyboard, and nobody reads the output any more, as shells count them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import perdure
from perdure.cli import (
    chat,
    export,
    import_file,
    loops,
    ls,
    routine,
    runtime,
    salvage,
    serve,
    show,
    token,
    verify,
    workflow,
)
from perdure.cli.place import DEFAULT_STORE
from perdure.cli.terminal import Terminal, one_line
from perdure.errors import (
    ConfigurationError,
    InvalidSessionIdError,
    MissingExtraError,
    PerdureError,
    UnknownSchemeError,
)

FAILED, USAGE, INTERRUPTED, UNREAD = 1, 2, 130, 141

_USAGE_ERRORS = (ConfigurationError, InvalidSessionIdError, MissingExtraError, UnknownSchemeError)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every other error."""
        self.exit(USAGE, f"perdure: {one_line(message)}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    top = _Parser(
        prog="perdure",
        description="Conversations of AI agents that survive anything.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A store is a URL: sqlite:///file.db, jsonl:///folder. Without --store it is\n"
        f"PERDURE_STORE, else that of perdure.toml, else\n{DEFAULT_STORE}.",
    )
    top.add_argument("--version", action="version", version=f"perdure {perdure.__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=_Parser)
    verbs_of = (serve, runtime, loops, token, chat, ls, show, export, import_file, verify, salvage)
    for module in (*verbs_of, routine, workflow):
        module.add_to(verbs)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; raises nothing but SystemExit, for usage."""
    _open_streams()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        _forgive(stream)
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace, Terminal], int] = options.run
    terminal = Terminal(sys.stdout)
    try:
        if (folder := os.getcwd()) not in sys.path:
            sys.path.append(folder)  # where a loop of one's own is looked for last
        status = run(options, terminal)
        sys.stdout.flush()
    except PerdureError as error:
        _complain(str(error))
        return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED
    except BrokenPipeError:
        _let_go(sys.stdout)
        return UNREAD
    except OSError as error:
        _complain(str(error))
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    return status


def _open_streams() -> None:
    """A stream that was closed before the start is empty; no file of a store gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _forgive(stream: object) -> None:
    """Text that the terminal's encoding cannot show, or that is none, must not end a command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")


def _complain(message: str) -> None:
    sys.stderr.write(f"perdure: {one_line(message)}\n")


def _let_go(stream: object) -> None:
    """Nobody reads: what is still buffered goes nowhere, and Python's own exit stays silent."""
    fileno = getattr(stream, "fileno", None)
    if fileno is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, fileno())
        os.close(nowhere)
