"""The file of tokens: whose each token is, its role, and a hash that tells it.

The file does not have the tokens, and they cannot be made from it: neither what a program sends nor
the cookie of a browser (decision 013). It is written whole or not at all, with the mode 0600.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from perdure import clock
from perdure.errors import ConfigurationError
from perdure.server.access.principal import OWNER, Grant, Role
from perdure.server.access.secret_file import write_secret
from perdure.stores.disk import Disk

MAX_FILE_BYTES = 4 * 1024 * 1024
PREFIX = "perdure_"
"""What a token begins with, so that whoever scans for secrets knows it as one."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}\Z")]
"""A principal's name."""

_HEAD = """\
# The tokens of a Perdure server. `perdure token add` and `perdure token revoke` write this file,
# and a server that runs reads it again when it changes. It has hashes, and none of the tokens.
"""


class TokenEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token, as the file has it."""

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
    principal: Name
    role: Role
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created_at: Annotated[datetime, Meta(tz=True)]
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None

    @property
    def grant(self) -> Grant:
        """What it grants."""
        return Grant(self.id, self.principal, self.role, self.expires_at)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[TokenEntry, ...] = ()


def cookie_of(token: str) -> str:
    """The cookie that a browser gets for the token; the token cannot be told from it."""
    return hmac.digest(token.encode(), b"perdure cookie", "sha256").hex()


def hash_of_cookie(cookie: str) -> str:
    """By what the file tells a token, from its cookie."""
    return hashlib.sha256(cookie.encode()).hexdigest()


def hash_of(token: str) -> str:
    """By what the file tells a token."""
    return hash_of_cookie(cookie_of(token))


def read_tokens(path: Path) -> tuple[TokenEntry, ...]:
    """The tokens of the file.

    Raises:
        FileNotFoundError: there is none.
        ConfigurationError: it cannot be read, or is none; the text names the place.

    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _broken(path, f"it cannot be read: {error.strerror}") from error
    if mode & 0o022:
        raise _broken(path, "others than its owner may write it; chmod 600 it")
    if len(raw) > MAX_FILE_BYTES:
        raise _broken(path, f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        found = msgspec.convert(tomllib.loads(raw.decode()), _File).tokens
    except (ValueError, RecursionError) as error:  # no text, no TOML, or no tokens
        raise _broken(path, str(error)) from error
    for names, what in (([e.id for e in found], "id"), ([e.sha256 for e in found], "sha256")):
        doubled, count = Counter(names).most_common(1)[0] if names else ("", 0)
        if count > 1:
            raise _broken(path, f"two tokens have the {what} {doubled!r}")
    if any(entry.principal == OWNER for entry in found):
        raise _broken(path, f"{OWNER!r} is the principal of the server's own token: choose another")
    return found


def _broken(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"the tokens file {str(path)!r} is not in order: {why}")


def add_token(
    path: Path, principal: str, role: Role, *, expires_at: datetime | None = None
) -> tuple[str, TokenEntry]:
    """Makes a token, and the file if there is none; durable on return.

    The token itself is nowhere but in the answer.

    Raises:
        ConfigurationError: the name or the file is not in order; nothing was changed.

    """
    try:
        msgspec.convert(principal, Name)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{principal!r} is no name of a principal: 1 to 64 letters, digits and ._@+- that "
            "begin with a letter or a digit"
        ) from error
    if principal == OWNER:
        raise ConfigurationError(
            f"{OWNER!r} is the principal of the server's own token: choose another name"
        )
    token = PREFIX + secrets.token_urlsafe(32)
    entry = TokenEntry(
        id=secrets.token_hex(4),
        principal=principal,
        role=role,
        sha256=hash_of(token),
        created_at=clock.now().replace(microsecond=0),
        expires_at=expires_at,
    )
    edit_tokens(path, lambda entries: (*entries, entry))
    return token, entry


def revoke_tokens(path: Path, named: str) -> tuple[TokenEntry, ...]:
    """Takes out the token of this id, or all tokens of this principal; durable on return.

    Raises:
        ConfigurationError: there is none, or the file is not in order; nothing was changed.

    """
    gone: list[TokenEntry] = []

    def without(entries: Sequence[TokenEntry]) -> Sequence[TokenEntry]:
        by_id = [each for each in entries if each.id == named]
        gone.extend(by_id or [each for each in entries if each.principal == named])
        if not gone:
            raise ConfigurationError(
                f"no token in {str(path)!r} has the id or the principal {named!r}; perdure token "
                "ls shows them"
            )
        return [each for each in entries if each not in gone]

    edit_tokens(path, without)
    return tuple(gone)


def edit_tokens(path: Path, change: Callable[[Sequence[TokenEntry]], Sequence[TokenEntry]]) -> None:
    """Reads, changes and writes the file as one step, against others who do so on this machine.

    Raises:
        ConfigurationError: nothing was changed.

    """
    path = Path(os.path.realpath(path))
    try:
        Disk().make_folder(str(path.parent))
        with _locked(path.parent) as folder:
            try:
                entries: Sequence[TokenEntry] = read_tokens(path)
            except FileNotFoundError:
                entries = ()
            write_secret(path, _text_of(change(entries)), put=os.replace)
            os.fsync(folder)
    except OSError as error:
        raise ConfigurationError(
            f"the tokens file {str(path)!r} cannot be written: {error.strerror}; nothing was "
            "changed"
        ) from error


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _text_of(entries: Sequence[TokenEntry]) -> str:
    """TOML; every value is of letters that need no escape."""
    shown = [_HEAD]
    for entry in entries:
        lines = ["", "[[tokens]]"]
        lines += [f'{name} = "{getattr(entry, name)}"' for name in ("id", "principal", "role")]
        lines.append(f'sha256 = "{entry.sha256}"')
        lines.append(f"created_at = {_time_of(entry.created_at)}")
        if entry.expires_at is not None:
            lines.append(f"expires_at = {_time_of(entry.expires_at)}")
        shown.append("\n".join(lines) + "\n")
    return "".join(shown)


def _time_of(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
