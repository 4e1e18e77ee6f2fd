"""A process on a store, to be killed or to be one of many: `tests.faults.child VERB …`."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import apsw

import perdure
from perdure.codec import read_entry
from perdure.errors import AppendConflictError, SessionExistsError
from perdure.stores.jsonl import JsonlStore
from perdure.stores.sqlite import SqliteStore, ledger
from perdure.testing.store_cases import messages
from tests.faults import scenario
from tests.faults.disk import FaultyDisk
from tests.faults.record import Asked, Known, Recorder
from tests.faults.vfs import TracedVfs


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


# Killed at enumerated points


def kill_each(kind: str, root: str, first: str, step: str) -> None:
    """For each n from `first` by `step`: a child is killed at its n-th call, until one is not."""
    at = int(first)
    while True:
        folder = Path(root) / str(at)
        folder.mkdir()
        child = os.fork()
        if child == 0:
            _die_at(kind, folder, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        say(str(at))
        at += int(step)


def _die_at(kind: str, folder: Path, at: int) -> None:
    calls = 0

    def count(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)

    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: str, asked: Asked, first_seq: int = 1) -> None:
        raws = [raw.decode() for raw in asked.raws]
        line = json.dumps([kind, asked.session_id, raws, asked.creates, first_seq])
        os.write(notes, line.encode() + b"\n")

    async def live() -> None:
        if kind == "jsonl":
            disk = FaultyDisk(str(folder), on_call=count)
            async with JsonlStore(folder / "store", disk=disk) as store:
                await scenario.verbs(Recorder(store, note))
            return
        setattr(ledger, "TAIL_LENGTH", 8)  # noqa: B010 - in this process alone
        with TracedVfs(on_step=count):
            async with SqliteStore(folder / "s.db") as store_of_pages:
                await scenario.verbs(Recorder(store_of_pages, note))
                await scenario.deletion(Recorder(store_of_pages, note))

    asyncio.run(live())


def known_from(notes: Path) -> Known:
    """What a killed process had been told."""
    known = Known()
    for line in notes.read_bytes().splitlines():
        kind, session_id, raws, creates, first_seq = json.loads(line)
        entries = tuple(read_entry(raw.encode()) for raw in raws)
        known.note(kind, Asked(session_id, entries, creates), first_seq)
    return known


# One of many


async def _write(url: str, name: str, conditional: bool) -> None:
    async with perdure.open_store(url) as store:
        with suppress(SessionExistsError):
            await store.create_session("s")
        lost = 0
        for n in range(10):
            batch = messages(2, f"{name}-{n}-")
            seq = len(await store.load_entries("s"))
            while True:
                expected_seq = seq if conditional else None
                try:
                    await store.append_entries("s", batch, expected_seq=expected_seq)
                except AppendConflictError as conflict:
                    lost, seq = lost + 1, conflict.actual_seq
                    continue
                break
        say(f"{lost}")


def write(url: str, name: str) -> None:
    """Appends ten batches to the one session, as many others do."""
    asyncio.run(_write(url, name, conditional=False))


def compete(url: str, name: str) -> None:
    """The same with `expected_seq`; says how often another was first."""
    asyncio.run(_write(url, name, conditional=True))


async def _race(url: str, name: str) -> None:
    async with perdure.open_store(url) as store:
        seq = len(await store.load_entries("s"))
        say("ready")
        sys.stdin.readline()
        try:
            await store.append_entries("s", messages(2, name), expected_seq=seq)
            say("won")
        except AppendConflictError:
            say("lost")


def race(url: str, name: str) -> None:
    """Appends once, at a given moment, where the log stood when it was read."""
    asyncio.run(_race(url, name))


def hold(kind: str, path: str) -> None:
    """Holds the lock of a writer, with something half written, until it is killed."""
    if kind == "jsonl":
        fd = os.open(Path(path) / "s.jsonl", os.O_WRONLY | os.O_APPEND)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, b'{"id":"half')
    else:
        connection = apsw.Connection(path)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE sessions SET last_seq = 99")
    say("ready")
    signal.pause()


# Without rights


def unprivileged(kind: str, path: str) -> None:
    """Tries to read and to write as a user who may only read; says what each came to."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    async def attempt() -> None:
        make = JsonlStore if kind == "jsonl" else SqliteStore
        async with make(path) as store:
            for verb in (
                lambda: store.load_entries("s"),
                lambda: store.append_entries("s", messages(1, "no")),
                lambda: store.create_session("t"),
            ):
                try:
                    await verb()
                    say("done")
                except perdure.PerdureError as error:
                    say(type(error).__name__)

    asyncio.run(attempt())


VERBS = {
    verb.__name__.replace("_", "-"): verb
    for verb in (kill_each, write, compete, race, hold, unprivileged)
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
