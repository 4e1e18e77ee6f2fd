"""The MCP servers of a configuration as a runtime's further sources of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.errors import MissingExtraError
from perdure.runtimes.local import ToolSource
from perdure.runtimes.table import McpServer


def sources_of(servers: Mapping[str, McpServer], workspace: str | Path) -> Sequence[ToolSource]:
    """MCP servers as a runtime's sources of tools; none is started before it is needed.

    Raises:
        MissingExtraError: what speaks MCP is not installed.

    """
    if not servers:
        return ()
    try:
        from perdure.runtimes.mcp_source import McpSource
    except ModuleNotFoundError as error:
        raise MissingExtraError("an MCP server", "runtimes") from error
    return [McpSource(name, server, workspace) for name, server in servers.items()]
