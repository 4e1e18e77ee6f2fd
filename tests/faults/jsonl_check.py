"""Holds what a JSON-lines folder shows against what was acknowledged, and goes on from there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.codec import StoredEntry
from perdure.errors import JournalCorruptError, SessionNotFoundError
from perdure.store import Receipt, new_session
from perdure.stores.jsonl_file import Append, Folder, JournalFile
from perdure.stores.jsonl_name import SUFFIX, name_of
from perdure.testing.store_cases import messages, raws
from tests.faults.power import Image
from tests.faults.record import Asked, Known


def lay(image: Image, root: Path) -> None:
    """Makes the empty folder `root` look like the image."""
    for folder in sorted(image.folders):
        (root / folder).mkdir()
    for path, data in image.files.items():
        (root / path).write_bytes(data)


def check_folder(folder: Path, known: Known, *, may_be_damaged: bool) -> int:
    """Reads, retries and appends as a new process would; returns how many sessions are damaged."""
    return sum(
        _check_session(folder, session_id, known, may_be_damaged)
        for session_id in known.session_ids()
    )


def _check_session(folder: Path, session_id: str, known: Known, may_be_damaged: bool) -> bool:
    file = JournalFile(Folder(str(folder), durable=False), session_id)
    uncertain = known.asked_of(session_id)
    found: Sequence[StoredEntry] | None
    try:
        found = file.read()
    except SessionNotFoundError:
        found = None
    except JournalCorruptError:
        assert may_be_damaged, "a lost power made a session unrecoverable"
        _stays_damaged(folder, file, session_id)
        return True
    if may_be_damaged and not known.acknowledged.get(session_id) and _is_foreign(found):
        return True
    known.check(session_id, found)
    if found is None:
        creation = next(asked for asked in uncertain if asked.creates)
        file.create(new_session(session_id, None), creation.entries)
        found = file.read()
        assert raws(found) == creation.raws
    for asked in uncertain:
        if not asked.creates:
            found = _append(file, found, asked)
    more = messages(2, "after")
    _append(file, found, Asked(session_id, tuple(more), creates=False))
    file.verify()
    file.close()
    return False


def _is_foreign(found: Sequence[StoredEntry] | None) -> bool:
    """Whether a first line lost its sum to other text, and so reads as another program's line."""
    return found is not None and len(found) == 1 and b"what this block held" in found[0].raw


def _append(file: JournalFile, found: Sequence[StoredEntry], asked: Asked) -> Sequence[StoredEntry]:
    """Appends a batch that may be there: afterwards it is, once."""
    before = raws(found)
    is_there = asked.raws[0] in before
    (outcome,) = file.write([Append(asked.entries, None, None)])
    assert isinstance(outcome, Receipt)
    now = file.read()
    assert raws(now) == (before if is_there else [*before, *asked.raws])
    assert list(now[outcome.first_seq - 1 : outcome.last_seq]) == list(outcome.entries)
    return now


def _stays_damaged(folder: Path, file: JournalFile, session_id: str) -> None:
    """Every verb says so, and none touches it."""
    path = os.path.join(folder, name_of(session_id) + SUFFIX)
    before = Path(path).read_bytes()
    for verb in (file.read, file.verify, lambda: file.write([Append(messages(1), None, None)])):
        with pytest.raises(JournalCorruptError) as damage:
            verb()
        assert path in damage.value.place
    assert Path(path).read_bytes() == before
