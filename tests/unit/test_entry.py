"""Entries as values: identity, helpers, and the typed classes of applications."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec import UNSET, Struct

import perdure
from perdure import Custom, File, Message, Text, ToolCall, ToolResult
from perdure.clock import Clock, SystemClock, use
from perdure.codec import read_entry, seal
from perdure.entry import OpaquePart, Reasoning, custom_kinds, custom_types
from perdure.errors import AppendRejectedError


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    types, kinds = dict(custom_types), dict(custom_kinds)
    yield
    custom_types.clear()
    custom_types.update(types)
    custom_kinds.clear()
    custom_kinds.update(kinds)


class FixedClock(SystemClock):
    def now(self) -> datetime:
        return datetime(2020, 1, 2, tzinfo=UTC)

    def new_id(self) -> str:
        return "fixed"


def test_an_entry_has_its_identity_from_the_moment_it_is_made() -> None:
    first, second = perdure.text("a"), perdure.text("a")
    assert first.id != second.id
    assert seal(first).id == first.id
    assert seal(first) == seal(first)
    assert first.parent_id is UNSET
    clock: Clock = FixedClock()
    with use(clock):
        made = perdure.text("a")
    assert (made.id, made.created_at) == ("fixed", datetime(2020, 1, 2, tzinfo=UTC))


def test_entries_and_parts_are_immutable() -> None:
    message = perdure.text("a")
    with pytest.raises(AttributeError):
        message.meta = True  # type: ignore[misc]  # what is refused
    with pytest.raises(AttributeError):
        message.parts[0].text = "b"  # type: ignore[misc, union-attr]  # what is refused


def test_the_helpers_make_user_messages() -> None:
    assert perdure.text("a", meta=True).meta
    assert perdure.text("a").role == "user"
    picture = perdure.image(b"\x89PNG", text="look", name="p.png")
    assert picture.parts == (Text("look"), File("image/png", data=b"\x89PNG", name="p.png"))
    linked = perdure.file(url="https://example.org/x", media_type="text/plain", meta=True)
    assert linked.parts == (File("text/plain", url="https://example.org/x"),)
    assert linked.meta
    for wrong in ({}, {"data": b"", "url": "u"}):
        with pytest.raises(ValueError, match="exactly one"):
            perdure.file(**wrong)  # type: ignore[arg-type]  # what is refused
    assert perdure.ephemeral("x").message.text == "x"


def test_bytes_of_a_file_come_back() -> None:
    data = bytes(range(256))
    view = read_entry(seal(perdure.file(data)).raw).view
    assert isinstance(view, Message)
    assert isinstance(part := view.parts[0], File)
    assert part.data == data


def test_a_message_names_its_text_its_calls_and_its_results() -> None:
    call, result = ToolCall("a", "t", {"x": 1}), ToolResult("a", (Text("1"), Text("2")))
    message = Message("assistant", (Text("a"), Reasoning("hm"), call, Text("b"), result))
    assert message.text == "ab"
    assert message.tool_calls == (call,)
    assert message.tool_results == (result,)
    assert result.text == "12"
    assert message.type == "message"


def test_opaque_parts_are_equal_by_their_bytes() -> None:
    part = OpaquePart("x", b'{"type":"x"}')
    assert part == OpaquePart("x", b'{"type":"x"}')
    assert part != OpaquePart("x", b'{"type":"x","y":1}')
    assert len({part, OpaquePart("x", b'{"type":"x"}')}) == 1
    assert "x" in repr(part)


def test_an_applications_class_is_stored_by_its_kind_and_read_as_an_instance() -> None:
    @perdure.custom("test.point")
    class Point(Struct):
        x: int
        label: str = ""

    entry = seal(Point(1, "a\ud800"), "p")
    assert (entry.type, entry.parent_id) == ("custom", "p")
    view = read_entry(entry.raw).view
    assert isinstance(view, Custom)
    assert (view.kind, view.data) == ("test.point", Point(1, "a\ufffd"))
    assert entry.view == view
    assert seal(view) == entry


def test_data_that_does_not_fit_its_class_stays_plain() -> None:
    @perdure.custom("test.point")
    @dataclass
    class Point:
        x: int

    misfit = read_entry(seal(Custom(kind="test.point", data={"x": "one", "z": 1.5})).raw).view
    unknown = read_entry(seal(Custom(kind="test.unknown", data=[1])).raw).view
    assert isinstance(misfit, Custom)
    assert isinstance(unknown, Custom)
    assert misfit.data == {"x": "one", "z": 1.5}
    assert unknown.data == [1]
    assert Point not in {type(misfit.data), type(unknown.data)}


def test_a_class_that_raises_on_old_data_leaves_it_plain() -> None:
    entry = seal(Custom(kind="test.point", data={"x": 1}))

    @perdure.custom("test.point")
    @dataclass
    class Point:
        x: int

        def __post_init__(self) -> None:
            raise KeyError("a rule that came later")

    view = read_entry(entry.raw).view
    assert isinstance(view, Custom)
    assert view.data == {"x": 1}


def test_times_are_written_in_utc() -> None:
    there = datetime(2026, 12, 1, 10, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    entry = seal(Message("user", (), created_at=there))
    assert b'"created_at":"2026-12-01T05:00:00Z"' in entry.raw
    assert entry.created_at == there


@pytest.mark.parametrize(
    "stamp",
    [
        datetime(2026, 12, 1),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_time_that_is_none_in_utc_is_refused(stamp: datetime) -> None:
    with pytest.raises(AppendRejectedError, match="time zone"):
        seal(Message("user", (), created_at=stamp))


def test_registering_another_class_for_a_kind_replaces_it_there_only() -> None:
    @perdure.custom("test.a")
    @perdure.custom("test.b")
    @dataclass
    class First:
        x: int

    @perdure.custom("test.b")
    @dataclass
    class Second:
        x: int

    entry = seal(First(1))
    assert isinstance(view := entry.view, Custom)
    assert (view.kind, view.data) == ("test.a", First(1))
    assert isinstance(view := seal(Second(2)).view, Custom)
    assert (view.kind, view.data) == ("test.b", Second(2))


def test_an_instance_of_a_class_that_nobody_registered_is_refused() -> None:
    @dataclass
    class Stranger:
        x: int

    with pytest.raises(AppendRejectedError, match="Stranger"):
        seal(Stranger(1))


def test_ids_are_nobody_elses_in_threads_and_in_a_child_process() -> None:
    clock = SystemClock()
    clock.new_id()  # there is something left over for others
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, "".join(clock.new_id() for _ in range(600)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    theirs = [said[at : at + 32] for at in range(0, len(said), 32)]
    ours = [clock.new_id() for _ in range(600)]
    with ThreadPoolExecutor(8) as threads:
        many = list(threads.map(lambda _: clock.new_id(), range(20_000)))
    made = [*theirs, *ours, *many]
    assert len({each[12:] for each in made}) == len(made) == 21_200
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in made)
