"""The page's own files: what `make page` built, or a page that says so."""

from __future__ import annotations

import mimetypes
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from perdure.server.problem import Refused

FOLDER = Path(__file__).parent.with_name("static")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

NOT_BUILT = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Perdure</title></head>
<body><h1>Perdure is running</h1>
<p>Its page is not built yet: run <code>make page</code>, then load this address again.
The sessions are on the API and the command line as well.</p></body></html>
"""


REFUSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Perdure</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" type="image/svg+xml" href="{root}/assets/icon.svg">
<link rel="stylesheet" href="{root}/assets/plain.css"></head>
<body><main><h1>That address does not sign you in</h1>
<p>Its token is none of the server that runs here: it may be of another server, or it has
expired or been revoked. Nothing was changed.</p>
<ol><li>Is the server yours? The first line of what <code>perdure serve</code> prints is an
address with the right token. Open that one.</li>
<li>Did somebody give you the address? Ask them for another one; <code>perdure token add</code>
makes it.</li>
<li>If you are signed in in this browser already, <a href="{root}/">go to Perdure</a>.</li></ol>
</main></body></html>
"""
"""What a person sees whose address has a wrong token."""


def wants_html(accept: str) -> bool:
    """Whether a browser asks for something to show, and not a program for an answer."""
    return "text/html" in accept.lower()


def refusal_page(error: Refused, root: str) -> Response:
    """The refusal of an address as a page that says what to do."""
    headers = {"cache-control": "no-store", "content-security-policy": POLICY}
    content = REFUSED.format(root=root)
    return Response(content, error.status, media_type="text/html", headers=headers)


async def get_page(request: Request) -> Response:
    """The page."""
    try:
        content = (FOLDER / "index.html").read_bytes()
    except FileNotFoundError:
        content = NOT_BUILT
    headers = {"cache-control": "no-cache", "content-security-policy": POLICY}
    return Response(content, media_type="text/html", headers=headers)


async def get_asset(request: Request) -> Response:
    """One file of the page; its name changes with its content."""
    name = request.path_params["name"]
    try:
        if not _NAME.fullmatch(name):
            raise FileNotFoundError
        content = (FOLDER / "assets" / name).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise Refused(404, "not_found", f"the page has no file {name!r}") from None
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    # A worker lives under the policy of its own script.
    headers = {
        "cache-control": "public, max-age=31536000, immutable",
        "content-security-policy": POLICY,
    }
    if "-" not in name:
        headers["cache-control"] = "no-cache"
    return Response(content, media_type=media_type, headers=headers)
