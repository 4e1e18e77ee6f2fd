"""What a crash leaves at the end of a file of lines, and what is damage: told apart, enumerated."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import JournalCorruptError
from perdure.stores.jsonl import JsonlStore
from perdure.testing.store_cases import messages, placed, raws

LAST = [placed("z", None, "größer → 🙂"), placed("z2", "z", "ü")]


async def make(folder: Path) -> tuple[bytes, bytes]:
    """A file of two batches, and the bytes of a third that was written and never acknowledged."""
    async with JsonlStore(folder, durable=False) as store:
        await store.create_session("s", entries=messages(2))
        await store.append_entries("s", messages(1, "b"))
        sound = (folder / "s.jsonl").read_bytes()
        await store.append_entries("s", LAST)
    whole = (folder / "s.jsonl").read_bytes()
    return sound, whole[len(sound) :]


def tails(last: bytes) -> dict[str, bytes]:
    """Every tail that a crash may leave of the last batch, but the whole of it."""
    first, second = last.splitlines(keepends=True)
    half = last.index("→".encode()) + 1
    return {
        "no newline": first.rstrip(b"\n"),
        "one line of two": first,
        "half a character": last[:half],
        "half a character and zeros": last[:half] + bytes(600),
        "zeros": bytes(4096),
        "zeros and a newline": bytes(100) + b"\n",
        "zeros and garbage": bytes(512) + b"\xfe\xffgarbage\n\n",
        "zeros, then the rest of it": bytes(len(first)) + second,
        "a zero byte in it": last.replace(b"z2", b"z\x00", 1),
        "a zero byte for its newline": last[:-1] + b"\x00",
        "an empty line": b"\n",
        "half of its second line": first + second[: len(second) // 2],
        "only the second line": second[5:],
        **{f"{cut} bytes": last[:cut] for cut in range(1, len(last) - 1, 11)},
    }


async def test_a_torn_tail_is_reported_cut_and_kept(tmp_path: Path) -> None:
    sound, last = await make(tmp_path / "whole")
    for n, (name, tail) in enumerate(tails(last).items()):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        path = folder / "s.jsonl"
        path.write_bytes(sound + tail)
        async with JsonlStore(folder, durable=False) as store:
            assert len(await store.load_entries("s")) == 3, name
            verified = await store.verify_session("s")
            assert verified.torn == f"{path}, byte {len(sound)}: {len(tail)} bytes", name
            assert path.read_bytes() == sound + tail, name
            await store.append_entries("s", LAST, expected_seq=3)
            assert raws(await store.load_entries("s"))[3:] == raws(LAST), name
            assert (await store.verify_session("s")).torn is None
        assert (folder / "s.torn-1").read_bytes() == tail, name
        assert path.read_bytes() == sound + last, name


async def test_a_whole_batch_without_its_newline_is_kept(tmp_path: Path) -> None:
    sound, last = await make(tmp_path)
    path = tmp_path / "s.jsonl"
    path.write_bytes(sound + last[:-1])
    async with JsonlStore(tmp_path) as store:
        assert raws(await store.load_entries("s"))[3:] == raws(LAST)
        assert (await store.verify_session("s")).torn is None
        assert (await store.append_entries("s", LAST)).first_seq == 4
        assert (await store.append_entries("s", messages(1, "c"))).first_seq == 6
        await store.verify_session("s")
    assert path.read_bytes().startswith(sound + last)


def damages(sound: bytes, last: bytes) -> dict[str, tuple[bytes, int, int]]:
    """Files with damage, and its line and byte."""
    lines = sound.splitlines(keepends=True)
    starts = [len(b"".join(lines[:n])) for n in range(len(lines) + 1)]
    second = last.index(b"\n") + 1
    return {
        "an empty file": (b"", 1, 0),
        "half a header": (lines[0][:-20], 1, 0),
        "half a header and zeros": (lines[0][:40] + bytes(400), 1, 0),
        "a header of zeros": (bytes(len(lines[0])) + sound[starts[1] :], 1, 0),
        "zeros for an entry": (
            sound[: starts[1]] + bytes(starts[2] - starts[1] - 1) + sound[starts[2] - 1 :],
            *(2, starts[1]),
        ),
        "half a character amid": (
            (sound + last).replace("→".encode(), "→".encode()[:1] + b'"', 1)
            + sound[starts[3] :].replace(b"[1,2]", b""),
            *(5, len(sound)),
        ),
        "a missing newline": (
            sound[: starts[2] - 1] + sound[starts[2] :],
            *(2, starts[1]),
        ),
        "a batch that ends early": (
            sound + last[:second] + sound[starts[3] :],
            *(6, len(sound) + second),
        ),
        "garbage before an entry": (
            sound[: starts[3]] + b"garbage\n" + sound[starts[3] :],
            *(4, starts[3]),
        ),
        "zeros before an entry": (
            sound[: starts[3]] + bytes(50) + b"\n" + sound[starts[3] :],
            *(4, starts[3]),
        ),
        "other bytes in the last batch": (
            sound + last.replace("größer".encode(), b"kleine" + b"xx", 1),
            *(5, len(sound)),
        ),
    }


async def test_damage_is_no_torn_tail_and_names_its_place(tmp_path: Path) -> None:
    sound, last = await make(tmp_path / "whole")
    for n, (name, (data, line, byte)) in enumerate(damages(sound, last).items()):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        path = folder / "s.jsonl"
        path.write_bytes(data)
        async with JsonlStore(folder, durable=False) as store:
            for verb in (
                store.load_entries("s"),
                store.append_entries("s", LAST),
                store.verify_session("s"),
            ):
                with pytest.raises(JournalCorruptError) as damage:
                    await verb
                assert damage.value.place == f"{path}, line {line}, byte {byte}", name
        assert path.read_bytes() == data, name
        assert [entry.name for entry in folder.iterdir()] == ["s.jsonl"], name
