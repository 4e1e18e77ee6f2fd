"""A small MCP server, for tests: `python mcp_program.py stdio`, or `http PORT`.

It notes each call's key in the file `calls` of its folder, and its own process id in `server-pid`.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any, Any]
NAMES = ("echo", "meta", "hang", "die", "image", "refuse", "run_command", "a.b c", "spawn", "big")


async def list_tools(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """Half of them a page."""
    half = len(NAMES) // 2
    is_second = params is not None and params.cursor == "second"
    names = NAMES[half:] if is_second else NAMES[:half]
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [
        types.Tool(name=name, description=f"It is {name}.", input_schema=schema) for name in names
    ]
    return types.ListToolsResult(tools=tools, next_cursor=None if is_second else "second")


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    """What each of them does."""
    meta: dict[str, Any] = dict(context.meta or {})
    note(f"{params.name} {meta.get('perdure/idempotency_key')}\n")
    text = str((params.arguments or {}).get("text", ""))
    match params.name:
        case "meta":
            text = "/".join(str(meta.get(f"perdure/{n}")) for n in ("session_id", "turn_id"))
        case "hang":
            try:
                await anyio.sleep_forever()
            finally:
                note("", "was-cancelled")
        case "die":
            os._exit(3)
        case "image":
            image = types.ImageContent(
                data=base64.b64encode(b"\x89PNG").decode(), mime_type="image/png"
            )
            return types.CallToolResult(content=[image])
        case "refuse":
            return types.CallToolResult(content=[types.TextContent(text="no")], is_error=True)
        case "spawn":
            text = str(spawn())
        case "big":
            text = "x" * (4 << 20)
        case "echo":
            await context.session.report_progress(1, message="half way")
    return types.CallToolResult(content=[types.TextContent(text=text)])


def note(line: str, file: str = "calls") -> None:
    """Adds a line to a file of this folder."""
    with Path(file).open("a", encoding="utf-8") as opened:
        opened.write(line)


def spawn() -> int:
    """Leaves a process behind."""
    with open(os.devnull, "r+b") as nothing:
        return subprocess.Popen(["sleep", "600"], stdin=nothing, stdout=nothing).pid


def make() -> Server[Any]:
    """The server."""
    return Server("small", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    """Serves its standard input and output."""
    server = make()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def serve_http(port: int) -> None:
    """Serves streamable HTTP, for who has the header."""
    import uvicorn
    from starlette.types import Receive, Scope, Send

    inner = make().streamable_http_app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (b"x-key", b"open") not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await inner(scope, receive, send)

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    Path("server-pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio)
    else:
        serve_http(int(sys.argv[2]))
