"""Entries and their bytes: what is written comes back, and what is not known is kept."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from perdure.clock import new_id
from perdure.codec import (
    RESERVED,
    Entry,
    clean_text,
    encode,
    first_sum,
    import_entry,
    next_sum,
    read_entry,
    seal,
    seal_all,
    splice,
)
from perdure.encoding import MAX_DEPTH
from perdure.entry import (
    Compaction,
    Custom,
    Message,
    Opaque,
    OpaquePart,
    Text,
    ToolCall,
    ToolResult,
    ephemeral,
    text,
)
from perdure.errors import AppendRejectedError
from perdure.fact import Claimed, HookRan, LateResult, LeafMoved, ToolDispatched
from perdure.line import read_line, write_line
from tests.unit.strategies import json_values, messages, texts

HEAD = b'"id":"e1","created_at":"2026-01-02T03:04:05Z"'
SUM = b"\x07" * 16


def line(type_: bytes, rest: bytes) -> bytes:
    return b'{"type":"%s",%s%s}' % (type_, HEAD, rest)


def as_json(value: Any) -> Any:
    """What JSON makes of a value: lone surrogates are replaced, NaN is null."""
    match value:
        case str():
            return clean_text(value)
        case float() if not math.isfinite(value):
            return None
        case list():
            return [as_json(item) for item in value]
        case dict():
            return {as_json(key): as_json(item) for key, item in value.items()}
        case _:
            return value


@given(messages)
def test_a_message_comes_back_as_it_was_written(message: Message) -> None:
    entry = seal(message, "parent")
    again = read_entry(entry.raw)
    assert again == entry
    assert (again.id, again.type, again.created_at) == (message.id, "message", message.created_at)
    assert again.parent_id == "parent"
    assert again.view == entry.view
    view = entry.view
    assert isinstance(view, Message)
    assert [type(part) for part in view.parts] == [type(part) for part in message.parts]
    assert view.text == clean_text(message.text) or "\ufffd" in view.text
    assert seal(view, "parent").view == view


@given(texts)
def test_text_keeps_every_character_but_lone_surrogates(content: str) -> None:
    view = read_entry(seal(text(content)).raw).view
    assert isinstance(view, Message)
    expected = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert view.text == expected
    assert b"\n" not in seal(text(content)).raw


@given(json_values)
def test_any_json_of_an_application_comes_back(data: Any) -> None:
    view = read_entry(seal(Custom(kind="k", data={"data": data})).raw).view
    if isinstance(view, Opaque):  # a number that the typed reader cannot hold
        return
    assert isinstance(view, Custom)
    assert view.data == as_json({"data": data})


@given(messages, st.integers(1, 10**9), st.integers(1, 5))
def test_a_line_gives_back_the_entrys_bytes(message: Message, seq: int, size: int) -> None:
    entry = seal(message)
    written = write_line(entry, seq, SUM, (size, size))
    assert written.count(b"\n") == 1
    found = read_line(written[:-1])
    assert found.entry == entry
    assert (found.seq, found.sum) == (seq, SUM)
    assert found.batch == ((size, size) if size > 1 else None)


@given(
    st.permutations(["id", "type", "created_at", "x", "seq", "sum", "batch", "session_id", "y"]),
    st.sampled_from(["1.50", "NaN", "1e400", '"\\ud800"', "1" * 5000, '{"seq": 9}', '"a\\u0062"']),
    st.sampled_from([",", " , ", ",\t"]),
)
def test_reserved_fields_are_cut_out_of_a_foreign_line_wherever_they_stand(
    order: list[str], odd: str, comma: str
) -> None:
    fields = {
        "id": '"e1"',
        "type": '"odd"',
        "created_at": '"2026-01-02T03:04:05Z"',
        "x": odd,
        "y": '[1, {"sum": "no"}]',
        "seq": "7",
        "sum": f'"{SUM.hex()}"',
        "batch": "[1,2]",
        "session_id": '"elsewhere"',
    }
    raw = " {" + comma.join(f'"{name}": {fields[name]}' for name in order) + " }\t"
    found = read_line(raw.encode())
    kept = [name for name in order if name not in RESERVED]
    assert found.entry.raw.decode() == "{" + ",".join(f'"{n}": {fields[n]}' for n in kept) + "}"
    assert (found.seq, found.sum, found.batch) == (7, SUM, (1, 2))
    assert (found.entry.id, found.entry.type) == ("e1", "odd")
    assert isinstance(found.entry.view, Opaque)


def test_a_foreign_line_without_reserved_fields_keeps_its_bytes() -> None:
    raw = b'{ "type":"odd" , "id":"a","created_at":"2026-01-02T03:04:05Z","n": 1.50}'
    found = read_line(raw)
    assert found.entry.raw == raw
    assert (found.seq, found.sum, found.batch) == (None, None, None)


def test_a_reserved_field_that_is_there_twice_is_cut_out_twice() -> None:
    raw = b'{"seq":5,"type":"odd",%s,"seq":6,"sum":"%s"}' % (HEAD, SUM.hex().encode())
    found = read_line(raw)
    assert found.seq == 6
    assert found.entry.raw == b'{"type":"odd",%s}' % HEAD


@pytest.mark.parametrize("broken", [b'"seq":"x"', b'"seq":null', b'"batch":[1]', b'"sum":"xy"'])
def test_a_reserved_field_of_the_wrong_kind_is_damage(broken: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_line(b'{%s,"type":"odd",%s}' % (broken, HEAD))


@given(st.binary(max_size=60) | texts.map(lambda content: content.encode("utf-8", "replace")))
def test_arbitrary_bytes_are_an_entry_or_a_value_error(raw: bytes) -> None:
    check_no_other_exception(raw)


@given(st.data())
def test_a_damaged_line_is_an_entry_or_a_value_error(data: st.DataObject) -> None:
    whole = bytearray(write_line(seal(data.draw(messages)), 3, SUM, (2, 3))[:-1])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[at] = data.draw(st.integers(0, 255))
        else:
            del whole[at]
    check_no_other_exception(bytes(whole))


def check_no_other_exception(raw: bytes) -> None:
    for read in (read_entry, lambda raw: read_line(raw).entry, import_entry):
        try:
            entry: Entry = read(raw)
        except (ValueError, AppendRejectedError):
            continue
        assert entry.view.id == entry.id
        assert entry.raw.decode()
        entry.id.encode()


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 5_000, 200_000])
def test_nesting_beyond_the_limit_is_refused_and_never_overflows(depth: int) -> None:
    raw = line(b"odd", b',"x":' + b"[" * depth + b"]" * depth)
    check_no_other_exception(raw)
    with pytest.raises(AppendRejectedError):
        import_entry(raw)
    if depth < 1_000:
        nested: Any = None
        for _ in range(depth):
            nested = [nested]
        for content in ("plain", "\ud800"):
            with pytest.raises(AppendRejectedError):
                seal(Custom(kind="k", data=[content, nested]))


def test_nesting_up_to_the_limit_is_kept_and_brackets_in_text_do_not_count() -> None:
    nested: Any = None
    for _ in range(MAX_DEPTH - 1):
        nested = [nested]
    entry = seal(Custom(kind="k", data=nested))
    assert read_entry(entry.raw).view == entry.view
    brackets = '[{"\\' * 5_000
    view = seal(text(brackets)).view
    assert isinstance(view, Message)
    assert view.text == brackets


@pytest.mark.parametrize(
    "odd",
    [
        b"NaN",
        b"1e400",
        b"-Infinity",
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"1" * 5_000,
        b"[NaN,%s]" % (b"1" * 5_000),
    ],
)
def test_json_that_the_codec_cannot_decode_loads_as_opaque(odd: bytes) -> None:
    raw = line(b"message", b',"parent_id":"p","role":"user","parts":[],"provider":' + odd)
    entry = read_line(raw).entry
    assert (entry.id, entry.type, entry.parent_id, entry.raw) == ("e1", "message", "p", raw)
    assert entry.in_tree
    assert entry.view == Opaque(id="e1", type="message", created_at=entry.created_at, parent_id="p")


def test_an_escaped_lone_surrogate_in_the_header_is_replaced_there_and_kept_in_the_bytes() -> None:
    raw = b'{"type":"odd","id":"a\\ud800","parent_id":"\\udc00","created_at":"x"}'
    entry = read_entry(raw)
    assert (entry.id, entry.parent_id) == ("a\ufffd", "\ufffd")
    assert entry.created_at == datetime.fromtimestamp(0, UTC)
    assert entry.raw == raw


def test_bytes_that_are_not_utf8_are_damage_wherever_they_stand() -> None:
    for raw in (line(b"odd", b',"x":"\xff"'), line(b"odd", b',"x":"\xed\xa0\x80"')):
        with pytest.raises(ValueError, match="utf-8"):
            read_entry(raw)
        with pytest.raises(ValueError, match="utf-8"):
            read_line(raw[:-1] + b',"seq":1,"sum":"%s"}' % SUM.hex().encode())


def test_an_unknown_type_keeps_its_bytes_and_its_place() -> None:
    raw = line(b"vision", b',"parent_id":null,"weights":[1.50,2e0]')
    entry = import_entry(raw)
    assert entry.in_tree
    assert seal(entry) is entry
    assert entry.raw == raw
    assert read_line(write_line(entry, 1, SUM, (1, 1))[:-1]).entry == entry
    assert isinstance(entry.view, Opaque)


def test_the_key_parent_id_sorts_unknown_types() -> None:
    assert import_entry(line(b"new", b',"parent_id":null')).in_tree
    fact = import_entry(line(b"new", b""))
    assert not fact.in_tree
    assert fact.parent_id is UNSET


def test_a_known_type_on_the_wrong_side_of_that_rule_is_opaque() -> None:
    message = read_entry(line(b"message", b',"role":"user","parts":[]'))
    claimed = read_entry(line(b"claimed", b',"parent_id":null,"epoch":1,"node":"n"'))
    assert isinstance(message.view, Opaque)
    assert isinstance(claimed.view, Opaque)
    assert claimed.in_tree


def test_unknown_fields_of_a_known_type_survive_and_are_ignored() -> None:
    raw = line(b"message", b',"parent_id":null,"role":"user","mood":1.50,"parts":[]')
    entry = import_entry(raw)
    assert isinstance(entry.view, Message)
    assert entry.raw == raw


def test_an_unknown_part_survives_a_rewrite_of_its_message() -> None:
    part = b'{"type":"hologram", "size": 1.50}'
    raw = line(
        b"message",
        b',"parent_id":null,"role":"user","parts":[%s,{"type":"text","text":"t"}]' % part,
    )
    view = import_entry(raw).view
    assert isinstance(view, Message)
    assert view.parts == (OpaquePart("hologram", part), Text("t"))
    assert part in seal(view).raw


def test_a_result_with_an_unknown_part_still_answers_its_call() -> None:
    parts = b'{"type":"sound","hz":1},{"type":"text","text":"t"}'
    raw = line(
        b"message",
        b',"parent_id":null,"role":"tool","parts":[{"type":"tool_result","call_id":"c",'
        b'"is_error":true,"parts":[%s]}]' % parts,
    )
    view = read_entry(raw).view
    assert isinstance(view, Message)
    (result,) = view.tool_results
    assert (result.call_id, result.is_error) == ("c", True)
    assert "sound" in result.text
    assert result.text.endswith("t")


def test_what_is_read_is_immutable() -> None:
    call, result = ToolCall("c", "t"), ToolResult("c", [Text("r")])
    view = seal(Message("assistant", [call, result])).view
    late = seal(LateResult(call_id="c", parts=[Text("r")])).view
    assert isinstance(view, Message)
    assert isinstance(late, LateResult)
    assert isinstance(view.parts, tuple)
    assert isinstance(view.tool_results[0].parts, tuple)
    assert isinstance(late.parts, tuple)


def test_a_view_has_the_id_and_time_of_its_header() -> None:
    entry = read_entry(b'{"type":"message","id":"a","parent_id":null,"role":"user","parts":[]}')
    assert entry.view.created_at == entry.created_at == datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize("name", RESERVED)
def test_an_entry_that_brings_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(AppendRejectedError, match=name):
        import_entry(line(b"odd", b',"%s":1' % name.encode()))


def test_a_reserved_name_inside_a_value_is_ordinary() -> None:
    entry = seal(Custom(kind="k", data=dict.fromkeys(RESERVED, 1)))
    assert read_line(write_line(entry, 9, SUM, (1, 1))[:-1]).entry == entry


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"id":"a"}',
        b'{"id":1,"type":"odd"}',
        b'{"id":"a","type":"odd","parent_id":7}',
        b'{"id":"","type":"odd"}',
        b'{"id":"%s","type":"odd"}' % (b"x" * 513),
        b'{"id":"a","id":"b","type":"odd"}',
        b'{"id":"a","type":"odd","x":{"y":1,"y":2}}',
        b'{"id":"a",\n"type":"odd"}',
        b'\xef\xbb\xbf{"id":"a","type":"odd"}',
        b'{"id":"a","type":"odd"}{}',
    ],
)
def test_bytes_from_elsewhere_that_are_no_entry_are_refused(raw: bytes) -> None:
    with pytest.raises(AppendRejectedError):
        import_entry(raw)


def test_white_space_around_imported_bytes_is_not_kept() -> None:
    raw = b'{"id":"a","type":"odd"}'
    entry = import_entry(b" \r\n" + raw + b"\t\n")
    assert entry.raw == raw
    assert read_line(write_line(entry, 1, SUM, (1, 1))[:-1]).entry == entry


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage",
        b"[]",
        b'{"size":1}',
        b'{"type":"x",\n"y":1}',
        b'{"type":"x"}],"seq":1,"parts":[{"type":"x"}',
        b'{"type":"x"}],"role":"robot","parts":[',
        b'{"type":"x"}],"id":"another","parts":[{"type":"x"}',
        b'{"type":"x","text":"\xff"}',
    ],
)
def test_an_opaque_part_that_is_not_one_object_on_one_line_is_refused(raw: bytes) -> None:
    with pytest.raises(AppendRejectedError):
        seal(Message("user", (OpaquePart("x", raw),)))


@pytest.mark.parametrize(
    "draft",
    [
        "a string",
        7,
        None,
        ephemeral("not for the log"),
        Opaque(id="a", type="odd", created_at=datetime.now(UTC)),
        Message("robot", ()),  # type: ignore[arg-type]  # what is refused
        Message("user", ("text",)),  # type: ignore[arg-type]  # what is refused
        Message("user", (Text(7),)),  # type: ignore[arg-type]  # what is refused
        Custom(kind="k", data=object()),
        Custom(kind="k", data={"a": "\ud800", "b": object()}),
        HookRan(event="e", handler="h", input=None, output=None, exit=None, seconds=float("nan")),
        Message("user", (), id=""),
        Message("user", (), id="x" * 513),
    ],
)
def test_what_is_no_valid_entry_is_refused(draft: object) -> None:
    with pytest.raises(AppendRejectedError):
        seal(draft)


def test_sealing_places_and_an_unplaced_entry_is_a_root() -> None:
    message = text("hello")
    assert seal(message).parent_id is None
    assert b'"parent_id":null' in seal(message).raw
    assert seal(message, "p").parent_id == "p"
    assert seal(Message("user", (), parent_id="q")).parent_id == "q"
    fact = seal(Claimed(epoch=1, node="n"), "p")
    assert fact.parent_id is UNSET
    assert b"parent_id" not in fact.raw


def test_a_compaction_and_a_moved_leaf_write_their_nulls() -> None:
    assert b'"first_kept_id":null' in seal(Compaction(summary="s", first_kept_id=None)).raw
    assert b'"leaf_id":null' in seal(LeafMoved(from_id="a", leaf_id=None)).raw


def test_big_integers_and_any_arguments_are_json() -> None:
    arguments = {"big": 2**70, "nested": [{"a": None}]}
    dispatched = ToolDispatched(
        turn_id="t", call_id="c", name="n", arguments=arguments, idempotency_key="k"
    )
    view = read_entry(seal(dispatched).raw).view
    assert isinstance(view, ToolDispatched)
    assert view.arguments == arguments


def test_two_entries_of_one_batch_have_two_ids() -> None:
    message = text("hello")
    with pytest.raises(AppendRejectedError, match="same id"):
        seal_all([message, message])
    first, second = seal_all([text("a"), text("b")])
    assert first.id != second.id


def test_sixteen_megabytes_are_one_entry() -> None:
    content = "[é\n" * (4 << 20)
    entry = seal(Message("tool", (ToolResult("c", (Text(content),)),)))
    view = read_line(write_line(entry, 1, SUM, (1, 1))[:-1]).entry.view
    assert isinstance(view, Message)
    assert view.tool_results[0].text == content


def test_the_sum_runs_over_the_sum_before_and_the_bytes() -> None:
    first = first_sum(b"header")
    assert len(first) == 16
    assert next_sum(first, b"raw") != next_sum(first, b"rav")
    assert next_sum(first, b"raw") != next_sum(first_sum(b"other"), b"raw")


def test_a_prefix_is_spliced_in_front_of_the_fields() -> None:
    entry = seal(text("hello"))
    fields = json.loads(splice(b'"seq":4,', entry.raw))
    assert next(iter(fields)) == "seq"
    assert fields["id"] == entry.id


def test_encoding_replaces_what_json_has_not() -> None:
    assert encode({"a": math.nan, "b": [math.inf], "\ud800": "\udc00"}) == (
        b'{"a":null,"b":[null],"\xef\xbf\xbd":"\xef\xbf\xbd"}'
    )
    with pytest.raises(AppendRejectedError):
        encode({new_id(): object()})
