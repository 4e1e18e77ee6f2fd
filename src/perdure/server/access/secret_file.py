"""A file that its owner alone can read: it appears whole, with the mode 0600, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def write_secret(path: Path, text: str, *, put: Callable[[Path, Path], object]) -> None:
    """Writes the text into a draft beside the path, syncs it, and puts it in the path's place.

    `put(draft, path)` is `os.replace`, or `os.link`, which refuses where something is there. The
    folder is not synced. Whatever goes wrong, no draft stays.

    Raises:
        FileExistsError: by `os.link`; what is there was not touched.
        OSError: the path is as it was.

    """
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        put(draft, path)
    finally:
        draft.unlink(missing_ok=True)
