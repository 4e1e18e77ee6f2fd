"""The tables of `perdure.toml` that name runtimes and MCP servers: `[runtimes.NAME]`, `[mcp.NAME]`.

Every machine that runs tools reads its own file: the server for its runtimes, and `perdure runtime`
for the MCP servers of its machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from perdure.errors import ConfigurationError
from perdure.runtimes.local import EXCERPT_CHARS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"([!-~]([ -~\t]*[!-~])?)?")

Kind = Literal["in-process", "subprocess", "remote"]
ToolName = Literal[
    "run_command", "read_file", "write_file", "edit_file", "list_files", "search_files"
]
Seconds = Annotated[float, Meta(gt=0, le=86400 * 365)]
T = TypeVar("T", bound=Struct)


class RuntimeTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A runtime that the server knows.

    `workspace` None is the setting of that name; a remote runtime has its own. `idle_after_s` is
    how long one that the server starts goes on when nobody uses it; `lost_after_s` how long it may
    be silent before it is lost; `attach_within_s` how long a turn waits for a remote one that is
    not attached. `tools` None is every tool of a workspace; of a remote runtime the keys from
    `tools` on are read where it is started, and the others by the server.
    """

    kind: Kind = "in-process"
    workspace: str | None = None
    idle_after_s: Seconds = 600.0
    lost_after_s: Annotated[float, Meta(ge=0.1, le=3600)] = 15.0
    attach_within_s: Annotated[float, Meta(ge=0, le=3600)] = 15.0
    tools: tuple[ToolName, ...] | None = None
    excerpt_chars: Annotated[int, Meta(ge=0)] | None = EXCERPT_CHARS
    command_timeout_s: Seconds = 600.0
    max_output_bytes: Annotated[int, Meta(ge=1, le=64 << 20)] = 64 << 20


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server whose tools a runtime has: a program that is started, or an address.

    `runtimes` None is every runtime that this machine starts. `env` is added to a few harmless
    variables of the environment, and nothing else of it is passed on.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str | None = None
    headers: Mapping[str, str] = {}
    runtimes: tuple[str, ...] | None = None
    start_within_s: Seconds = 30.0
    timeout_s: Seconds = 600.0


def parse_runtimes(table: object, place: str) -> dict[str, RuntimeTable]:
    """The runtimes of a table `[runtimes]`.

    Raises:
        ConfigurationError: names the place, the key, and what is allowed.

    """
    found = _parse(table, "runtimes", RuntimeTable, place)
    for name, runtime in found.items():
        if runtime.kind == "remote" and runtime.workspace is not None:
            raise ConfigurationError(
                f"[runtimes.{name}] in {place}: a remote runtime names its workspace itself "
                "(perdure runtime --workspace DIR); leave it out here"
            )
    return found


def parse_mcp(table: object, place: str) -> dict[str, McpServer]:
    """The MCP servers of a table `[mcp]`.

    Raises:
        ConfigurationError: names the place, the key, and what is allowed.

    """
    found = _parse(table, "mcp", McpServer, place)
    for name, server in found.items():
        if (server.command is None) == (server.url is None):
            raise ConfigurationError(
                f"[mcp.{name}] in {place} has either a command, to start it, or a url"
            )
        if server.command is None and (server.args or server.env):
            raise ConfigurationError(f"[mcp.{name}] in {place}: args and env go with a command")
        if server.url is None and server.headers:
            raise ConfigurationError(f"[mcp.{name}] in {place}: headers go with a url")
        for header, value in server.headers.items():
            if not (_HEADER.fullmatch(header) and _HEADER_VALUE.fullmatch(value)):
                raise ConfigurationError(
                    f"[mcp.{name}] in {place}: the header {header!r} cannot be sent; its name and "
                    "its value are printable characters of ASCII"
                )
    return found


def _parse(table: object, kind: str, struct: type[T], place: str) -> dict[str, T]:
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{kind} in {place} is made of tables: [{kind}.NAME]")
    found: dict[str, T] = {}
    for name, values in table.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"[{kind}.{name}] in {place}: a name is up to 64 letters, digits, '.', '_' and '-'"
            )
        found[name] = _convert(values, struct, f"[{kind}.{name}] in {place}")
    return found


def _convert(values: Any, struct: type[T], where: str) -> T:
    try:
        return msgspec.convert(values, struct)
    except msgspec.ValidationError as error:
        known = ", ".join(struct.__struct_fields__)
        raise ConfigurationError(f"{where} is not valid: {error}. It may have {known}") from error
