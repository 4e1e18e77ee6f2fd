"""What every store promises of ids and of bytes."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from perdure.codec import RESERVED, import_entry, seal
from perdure.entry import Compaction, Custom, Message, Text, ToolResult, text
from perdure.errors import (
    AppendRejectedError,
    InvalidSessionIdError,
)
from perdure.fact import TurnStarted
from perdure.testing.nasty import DISTINCT_SESSION_IDS, INVALID_SESSION_IDS, TEXTS
from perdure.testing.store_cases import (
    StoreCases,
    check_no_session,
    check_session,
    messages,
    raw_entry,
    raws,
    session_verbs,
)


class ByteCases(StoreCases):
    """Nasty ids and nasty content: one behaviour a case."""

    # Ids

    @pytest.mark.parametrize("session_id", INVALID_SESSION_IDS, ids=ascii)
    async def test_an_invalid_id_is_refused_the_same_on_every_verb(
        self, tmp_path: Path, session_id: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            with pytest.raises(InvalidSessionIdError) as refusal:
                await store.create_session(session_id, entries=[text("hello")])
            for verb in (
                lambda: store.load_entries(session_id),
                lambda: store.append_entries(session_id, [text("hello")]),
                *session_verbs(store, session_id),
            ):
                with pytest.raises(InvalidSessionIdError) as again:
                    await verb()
                assert str(again.value) == str(refusal.value)
            if session_id is not None:
                with pytest.raises(InvalidSessionIdError):
                    await store.create_session("child", parent_id=session_id)
            await check_no_session(store, "child")

    async def test_two_ids_never_share_storage(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            for n, session_id in enumerate(DISTINCT_SESSION_IDS):
                await check_no_session(store, session_id)
                await check_session(store, await store.create_session(session_id))
                await store.append_entries(session_id, messages(1, f"n{n}_"))
            for n, session_id in enumerate(DISTINCT_SESSION_IDS):
                stored = await store.load_entries(session_id)
                assert raws(stored) == raws(messages(1, f"n{n}_"))

    async def test_no_id_reaches_outside_the_root(self, tmp_path: Path) -> None:
        inside = tmp_path / "one" / "two"
        os.makedirs(inside)
        async with await self.open_store(inside) as store:
            for session_id in ("../up", "../../up", "/up", "one/../../../up", "..\\up", "a/../.."):
                await store.create_session(session_id, entries=messages(1))
        assert os.listdir(tmp_path) == ["one"]
        assert os.listdir(tmp_path / "one") == ["two"]

    async def test_an_entry_id_is_opaque_and_compared_byte_for_byte(self, tmp_path: Path) -> None:
        ids = ("a", "A", "caf\u00e9", "cafe\u0301", " a", "a ", "\x00", "1", "01", "'", "x" * 512)
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = [Message("user", (Text("hi"),), id=entry_id) for entry_id in ids]
            await store.append_entries("s", batch)
            assert [stored.id for stored in await store.load_entries("s")] == list(ids)
            assert (await store.append_entries("s", batch)).first_seq == 1

    # Bytes

    @pytest.mark.parametrize(("written", "read"), TEXTS, ids=ascii)
    async def test_text_comes_back_as_it_was_written(
        self, tmp_path: Path, written: str, read: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            receipt = await store.append_entries("s", [text("before"), text(written)])
            await store.append_entries(
                "s", [Custom(kind="k", data={written: [written]}), text("after")]
            )
            stored = await store.load_entries("s")
            assert len(stored) == 4
            message, custom = stored[1].view, stored[2].view
            assert isinstance(message, Message)
            assert isinstance(custom, Custom)
            assert message.text == read
            assert custom.data == {read: [read]}
            assert list(receipt.entries) == list(stored[:2])

    async def test_a_number_that_json_has_not_becomes_null(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            data = {"nan": math.nan, "inf": [math.inf, -math.inf], "real": 1.5, "big": 2**63 - 1}
            await store.append_entries("s", [Custom(kind="k", data=data)])
            view = (await store.load_entries("s"))[0].view
            assert isinstance(view, Custom)
            assert view.data == {"nan": None, "inf": [None, None], "real": 1.5, "big": 2**63 - 1}

    async def test_what_this_version_does_not_know_survives_byte_for_byte(
        self, tmp_path: Path
    ) -> None:
        raws_in = [
            raw_entry("u1", '"parent_id":null,"wild":{"a":1.50,"b":[ 1 ,2 ]}', "from_the_future"),
            raw_entry("u2", '"epoch": 1e2,"x":"\\u00e9\\/"', "fact_from_the_future"),
            raw_entry(
                "u3", '"parent_id":"u1","role":"user","parts":[{"type":"hologram","n":0.10}],"z":{}'
            ),
            raw_entry("u4", '"parent_id":"u3","kind":"nobody.knows","data":{"k":[{}]}', "custom"),
            raw_entry("u5", '"parent_id":"u4","role":"wizard","parts":"none"'),
            raw_entry("u6", '"parent_id":"u5","n":1e400,"s":"\\ud800","v":NaN', "odd"),
            raw_entry("u7", '"turn_id":"t","message_id":"m","new":true', "turn_started"),
        ]
        entries = [import_entry(raw) for raw in raws_in]
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=entries[:3])
            receipt = await store.append_entries("s", entries[3:])
            assert raws(receipt.entries) == raws_in[3:]
            stored = await store.load_entries("s")
            assert raws(stored) == raws_in
            assert [entry.parent_id for entry in stored] == [e.parent_id for e in entries]
            assert [entry.type for entry in stored] == [e.type for e in entries]
            assert [entry.created_at for entry in stored] == [e.created_at for e in entries]
            assert (await store.append_entries("s", entries[3:])) == receipt
            await store.create_session("copy", entries=[entry.entry for entry in stored])
            assert raws(await store.load_entries("copy")) == raws_in

    @pytest.mark.parametrize("name", RESERVED)
    async def test_an_entry_that_brings_a_reserved_name_is_refused(
        self, tmp_path: Path, name: str
    ) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            raw = raw_entry("r", f'"parent_id":null,"{name}":1', "odd")
            with pytest.raises(AppendRejectedError, match=name):
                await store.append_entries("s", [import_entry(raw)])
            assert list(await store.load_entries("s")) == []

    async def test_every_kind_of_entry_comes_back_equal(self, tmp_path: Path) -> None:
        result = ToolResult("c", (Text("out"),), name="t", is_error=True, limit_chars=10)
        drafts = [
            Message("system", (Text("be kind"),), meta=True),
            Message("tool", (result,), provider={"sig": "\u0000é", "n": [1.0, None]}),
            Message("assistant", (), end="stopped"),
            Compaction(summary="s", first_kept_id=None),
            TurnStarted(turn_id="t", message_id="m"),
        ]
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s", entries=drafts)
            stored = await store.load_entries("s")
            assert [entry.view for entry in stored] == [seal(draft).view for draft in drafts]

    async def test_an_entry_of_a_megabyte_is_stored_whole(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            big = text("\x00é\n\u2028😀" * 90_000)
            await store.append_entries("s", [text("small"), big, text("small too")])
            await store.append_entries("s", [text("\\" * 1_048_576)])
            stored = await store.load_entries("s")
            assert raws(stored)[1] == seal(big).raw
            assert len(stored[3].raw) > 2 * 1_048_576

    async def test_a_tool_result_of_16_megabytes_is_stored_whole(self, tmp_path: Path) -> None:
        output = "0123456789abcde\n" * 1_048_576
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            message = Message("tool", (ToolResult("c", (Text(output),)),))
            await store.append_entries("s", [message, text("after")])
            view = (await store.load_entries("s"))[0].view
            assert isinstance(view, Message)
            assert view.tool_results[0].text == output

    async def test_a_batch_of_a_thousand_is_one_batch(self, tmp_path: Path) -> None:
        async with await self.open_store(tmp_path) as store:
            await store.create_session("s")
            batch = messages(1000)
            receipt = await store.append_entries("s", batch, expected_seq=0)
            assert (receipt.first_seq, receipt.last_seq) == (1, 1000)
            assert raws(await store.load_entries("s", after=997)) == raws(batch[997:])
            assert await store.append_entries("s", batch, expected_seq=0) == receipt
