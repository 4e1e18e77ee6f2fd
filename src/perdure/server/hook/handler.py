"""What runs at an event: a command of a file or a function of a plugin, behind one contract."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from perdure.encoding import encode
from perdure.entry import Json
from perdure.hook import HookEvent, HookOutcome, OnFailure
from perdure.server.hook.wire import wire_of


class Fired:
    """One event on its way to its handlers; what they are told is made once, when it is needed."""

    def __init__(self, event: HookEvent, folder: Path, transcript_path: str = "") -> None:
        self.event = event
        self.folder = folder
        self.transcript_path = transcript_path

    @cached_property
    def wire(self) -> Json:
        """What a command is told."""
        return wire_of(self.event, self.folder, self.transcript_path)

    @cached_property
    def data(self) -> bytes:
        """The same as bytes."""
        return encode(self.wire) + b"\n"

    @cached_property
    def plain(self) -> Json:
        """What a function is told, as JSON."""
        told: Json = msgspec.to_builtins(self.event)
        return told


class Ran(Struct, frozen=True, kw_only=True):
    """One run of one handler. `failure` says why it gave no outcome of its own."""

    outcome: HookOutcome = HookOutcome()
    output: Json = None
    exit: int | None = None
    failure: str | None = None
    unsupported: tuple[str, ...] = ()


class Handler(Protocol):
    """What runs at an event. `run` is bounded in time, and leaves nothing running if cancelled."""

    @property
    def event_name(self) -> str:
        """The event that it stands at."""

    @property
    def label(self) -> str:
        """What it is, for people."""

    @property
    def key(self) -> Hashable:
        """Handlers with the same key are the same handler, and run once."""

    @property
    def on_failure(self) -> OnFailure:
        """What a failure comes to."""

    @property
    def is_aside(self) -> bool:
        """Whether nobody waits for it, and what it answers has no effect."""

    @property
    def reads_files(self) -> bool:
        """Whether it may read the file of the conversation."""

    def concerns(self, event: HookEvent, subjects: Sequence[str] | None, folder: Path) -> bool:
        """Whether it is for an event, which has these subjects; see `matcher.subjects_of`."""
        ...

    def told(self, fired: Fired) -> Json:
        """What it is told, as its fact keeps it."""

    async def run(self, fired: Fired) -> Ran:
        """Asks it. Whatever goes wrong in it is a failure in what this returns."""
        ...
