"""The tokens that a server starts with: the one that was set, or is kept in its data folder."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
from pathlib import Path

from perdure.errors import ConfigurationError
from perdure.server.access.keyring import Keyring
from perdure.server.access.secret_file import write_secret
from perdure.server.config import SAFE_TOKEN_CHARS, Settings
from perdure.stores.disk import Disk

_log = logging.getLogger("perdure.server")

_TOKEN = re.compile(r"[!-~]{16,512}")


def load_keyring(settings: Settings, own_token: str | None) -> Keyring:
    """The tokens that count: the server's own, and those of the tokens file.

    Raises:
        ConfigurationError: the file is not in order, or there would be no token at all.

    """
    keyring = Keyring(own_token, settings.tokens_path)
    keyring.load()
    if not keyring.count:
        raise ConfigurationError(
            f"{str(settings.tokens_path)!r} has no token, so nobody could come in: make one with "
            "perdure token add"
        )
    return keyring


def load_token(settings: Settings) -> str | None:
    """The server's own token: the one that was set, or the one in the data folder.

    At first start one is made, and kept in a file that only its owner can read. Beyond loopback
    nobody comes in with a token that nobody chose: there is none unless it was set.

    Raises:
        ConfigurationError: the file is there and is no token, or cannot be read or written.

    """
    if settings.token is not None:
        if len(settings.token) < SAFE_TOKEN_CHARS:
            _log.warning("the token that is set has fewer than %d characters", SAFE_TOKEN_CHARS)
        return settings.token
    if not settings.is_loopback:
        return None
    path = Path(settings.data) / "token"
    try:
        Disk().make_folder(os.path.abspath(settings.data))
        if not os.path.lexists(path):  # else a full or read-only disk is no obstacle
            with contextlib.suppress(FileExistsError):
                # By a link: two first starts at once agree on one token.
                write_secret(path, secrets.token_urlsafe(32) + "\n", put=os.link)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), 0o600)
            token = file.read(1024).strip()
    except OSError as error:
        raise ConfigurationError(
            f"the token cannot be kept in {str(path)!r}: {error.strerror}; choose another folder "
            "with --data, or set PERDURE_TOKEN"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{str(path)!r} holds no token (16 to 512 visible characters); delete it to get a new "
            "one"
        )
    return token
