"""Stores: one module each; `open_store` picks one by the scheme of a URL."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

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
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownSchemeError(url, SCHEMES)
    match scheme:
        case "memory":
            if rest.strip("/"):
                raise ConfigurationError(f"{url!r}: a memory store has no path; write memory://")
            from perdure.stores.memory import MemoryStore

            return MemoryStore()
        case "jsonl":
            from perdure.stores.jsonl import JsonlStore

            return JsonlStore(_path(url))
        case "sqlite":
            try:
                from perdure.stores.sqlite import SqliteStore
            except ModuleNotFoundError as error:
                if error.name != "apsw":
                    raise
                raise MissingExtraError("the SQLite store (apsw)", "all") from error

            return SqliteStore(_path(url))
        case _:
            raise UnknownSchemeError(url, SCHEMES)


def _path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigurationError(
            f"{url!r} names a host, {parts.netloc!r}: write {parts.scheme}:///relative/path or "
            f"{parts.scheme}:////absolute/path"
        )
    path = unquote(parts.path[1:])
    if not path or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{url!r} has no path of its own: write {parts.scheme}:///relative/path or "
            f"{parts.scheme}:////absolute/path"
        )
    return path
