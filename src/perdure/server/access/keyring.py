"""The tokens that count now: the server's own, and those of the file, read again when it changes.

A file that is broken while the server runs leaves the tokens that counted before; a file that is
gone leaves none of its tokens. Whether a token is known takes the same time whatever it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perdure import clock
from perdure.errors import ConfigurationError
from perdure.server.access.principal import OWNER, Grant
from perdure.server.access.token_file import TokenEntry, hash_of, hash_of_cookie, read_tokens

log = logging.getLogger("perdure.server")

LOOK_S = 1.0
"""How often it is looked whether the file changed, and what has expired."""

_Stamp = tuple[int, int, int, int]


class Keyring:
    """Tells tokens and cookies. `problem` is why the file as it is does not count, None else."""

    def __init__(self, own_token: str | None, path: Path | None = None) -> None:
        """Nothing of the file counts before `load`."""
        self.problem: str | None = None
        self._path = path
        self._own: dict[str, Grant] = {}
        if own_token is not None:
            self._own[hash_of(own_token)] = Grant(OWNER, OWNER, "admin")
        self._stamp: _Stamp | None = None
        self._by_hash: Mapping[str, Grant] = self._own
        self._by_id: Mapping[str, Grant] = {}
        self._take(())

    @property
    def count(self) -> int:
        """How many tokens count."""
        return len(self._by_hash)

    def of_token(self, token: str) -> Grant | None:
        """What the token grants now."""
        return self._valid(self._by_hash.get(hash_of(token)))

    def of_cookie(self, cookie: str) -> Grant | None:
        """What the token grants now whose cookie this is."""
        return self._valid(self._by_hash.get(hash_of_cookie(cookie)))

    def is_valid(self, grant: Grant) -> bool:
        """Whether the token still grants just that."""
        return self._valid(self._by_id.get(grant.token_id)) == grant

    def _valid(self, grant: Grant | None) -> Grant | None:
        return None if grant is None or grant.has_expired() else grant

    def load(self) -> None:
        """Reads the file, if there is one.

        Raises:
            ConfigurationError: it is not in order.

        """
        self._stamp = self._look()
        if self._path is not None and self._stamp is not None:
            try:
                self._take(read_tokens(self._path))
            except FileNotFoundError:
                self._stamp = None

    def _look(self) -> _Stamp | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _take(self, entries: Sequence[TokenEntry]) -> None:
        self._by_hash = {**{entry.sha256: entry.grant for entry in entries}, **self._own}
        self._by_id = {grant.token_id: grant for grant in self._by_hash.values()}

    async def watch(self, on_look: Callable[[], None]) -> None:
        """Keeps up with the file until it is cancelled; calls `on_look` after each look."""
        while True:
            await clock.sleep(LOOK_S)
            try:
                await self.refresh()
                on_look()
            except Exception:  # the outermost frame: else nothing would be revoked any more
                log.exception("the tokens file could not be followed; it is looked at again")

    async def refresh(self) -> None:
        """Takes what the file says now, if it changed."""
        stamp = await asyncio.to_thread(self._look)
        if self._path is None or stamp == self._stamp:
            return
        try:
            entries = () if stamp is None else await asyncio.to_thread(read_tokens, self._path)
        except FileNotFoundError:
            entries = ()
        except ConfigurationError as error:
            if not isinstance(error.__cause__, OSError):
                self._stamp = stamp  # else it may be read at the next look, just as it is
            if self.problem is None or self._stamp == stamp:
                log.error("%s; what it said before counts", error)
            self.problem = "the tokens file is not in order; what it said before counts"
            return
        self._stamp = stamp
        self.problem = None
        self._take(entries)
        log.info("the tokens file changed; tokens that count: %d", len(entries))
