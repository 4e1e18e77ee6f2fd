"""Files of JSON lines in a test, written by hand."""

from __future__ import annotations

from pathlib import Path

from perdure.codec import Entry
from perdure.stores.jsonl import JsonlStore

HEADER = (
    b'{"type":"session_init","id":"s","parent_id":null,'
    b'"created_at":"2026-01-01T00:00:00Z","incarnation":"%s","format":1}\n' % (b"0" * 32)
)


def foreign(entry_id: str, rest: str = "") -> bytes:
    line = f'{{"type":"odd", "id": "{entry_id}","created_at":"2026-01-01T00:00:00Z"{rest}}}\n'
    return line.encode()


def write(folder: Path, data: bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(data)
    return path


async def make(folder: Path, *batches: list[Entry]) -> Path:
    async with JsonlStore(folder) as store:
        await store.create_session("s")
        for batch in batches:
            await store.append_entries("s", batch)
    return folder / "s.jsonl"
