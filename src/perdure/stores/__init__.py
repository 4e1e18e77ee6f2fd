"""Stores: one module each; `open_store` picks one by the scheme of a URL."""

from __future__ import annotations

import re

from perdure.errors import ConfigurationError, MissingExtraError, UnknownSchemeError
from perdure.plugin import Plugins
from perdure.store import SessionStore

SCHEMES = ("memory://", "jsonl:///folder", "sqlite:///file.db")


def open_store(url: str, *, plugins: Plugins | None = None) -> SessionStore:
    """The store of a URL; a path has three slashes where it is relative, four where absolute.

    Nothing is read or written before the first verb; the store's module is imported here. A scheme
    that is none of Perdure's is looked for in `plugins`, which without it are all that there are.

    Raises:
        UnknownSchemeError: no store serves this scheme; the error lists those that do.
        ConfigurationError: the URL has no path, or something that is none.
        MissingExtraError: the store needs a package that is not installed.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a store's URL is a string, not {url!r}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownSchemeError(shown_url(url), SCHEMES)
    scheme = scheme.lower()
    match scheme:
        case "memory":
            if rest.strip("/"):
                raise ConfigurationError(
                    f"{shown_url(url)!r}: a memory store has no path; write memory://"
                )
            from perdure.stores.memory import MemoryStore

            return MemoryStore()
        case "jsonl":
            from perdure.stores.jsonl import JsonlStore

            return JsonlStore(_path(url, scheme, rest))
        case "sqlite":
            try:
                from perdure.stores.sqlite import SqliteStore
            except ModuleNotFoundError as error:
                if error.name != "apsw":
                    raise
                raise MissingExtraError("the SQLite store (apsw)", "all") from error

            return SqliteStore(_path(url, scheme, rest))
        case _:
            return _of_plugin(url, scheme, Plugins() if plugins is None else plugins)


def _of_plugin(url: str, scheme: str, plugins: Plugins) -> SessionStore:
    opener = plugins.store(scheme)
    if opener is not None:
        return opener(url)
    plugins.check()  # it may be a broken one that has it
    raise UnknownSchemeError(shown_url(url), (*SCHEMES, *plugins.schemes))


_PASSWORD = re.compile(r"^([^/?#@:]*):.*@")
_SECRET = re.compile(r"(?i)(?<=[?&])([^=&#]*(?:pass|token|secret|key|cred)[^=&#]*)=[^&#]*")


def shown_url(url: object) -> str:
    """The URL without what is secret in it, for a log or an error: passwords, keys, tokens."""
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        scheme, rest = "", scheme
    return scheme + separator + _SECRET.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", rest))


def _path(url: str, scheme: str, rest: str) -> str:
    from urllib.parse import unquote

    shown = shown_url(url)
    spelling = f"write {scheme}:///relative/path or {scheme}:////absolute/path"
    host, slash, path = rest.partition("/")
    if host or not slash:
        named = "names a host" if host else "has no path"
        raise ConfigurationError(f"{shown!r} {named}: {spelling}")
    path = unquote(path)
    if not path.strip("/") or "\x00" in path:
        raise ConfigurationError(f"{shown!r} has no path of its own: {spelling}")
    if "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"{shown!r} has a query or a fragment, which a path has not: write ? as %3F and # as "
            "%23"
        )
    return path
