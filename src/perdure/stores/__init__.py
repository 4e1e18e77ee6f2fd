"""Stores: one module each; `open_store` picks one by the scheme of a URL."""

from __future__ import annotations

from perdure.errors import ConfigurationError, MissingExtraError, UnknownSchemeError
from perdure.store import Store

SCHEMES = ("memory://", "jsonl:///folder", "sqlite:///file.db")


def open_store(url: str) -> Store:
    """The store of a URL; a path has three slashes where it is relative, four where absolute.

    Nothing is read or written before the first verb; the store's module is imported here.

    Raises:
        UnknownSchemeError: no store serves this scheme; the error lists those that do.
        ConfigurationError: the URL has no path, or something that is none.
        MissingExtraError: the store needs a package that is not installed.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"a store's URL is a string, not {url!r}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownSchemeError(url, SCHEMES)
    scheme = scheme.lower()
    match scheme:
        case "memory":
            if rest.strip("/"):
                raise ConfigurationError(f"{url!r}: a memory store has no path; write memory://")
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
            raise UnknownSchemeError(url, SCHEMES)


def _path(url: str, scheme: str, rest: str) -> str:
    from urllib.parse import unquote

    spelling = f"write {scheme}:///relative/path or {scheme}:////absolute/path"
    host, slash, path = rest.partition("/")
    if host or not slash:
        named = f"names a host, {host!r}" if host else "has no path"
        raise ConfigurationError(f"{url!r} {named}: {spelling}")
    path = unquote(path)
    if not path.strip("/") or "\x00" in path:
        raise ConfigurationError(f"{url!r} has no path of its own: {spelling}")
    if "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"{url!r} has a query or a fragment, which a path has not: write ? as %3F and # as %23"
        )
    return path
