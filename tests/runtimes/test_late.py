"""Results are kept until they are stored: none is lost silently, and none is in another's way."""

from __future__ import annotations

import asyncio

import pytest

from perdure.entry import Text, ToolResult
from perdure.runtimes import late as lates
from perdure.runtimes.contract import CallOrigin
from perdure.runtimes.late import LateCall, LateResults


def result(key: str) -> LateCall:
    return LateCall(CallOrigin("s", "t", key), ToolResult(f"c-{key}", (Text(key),)))


async def test_what_was_sent_and_not_stored_is_late_once_the_link_is_lost() -> None:
    late = LateResults()
    for key in ("a", "b", "c"):
        late.sent(result(key))
    late.stored("b")
    waiting = asyncio.create_task(late.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    late.lost()
    assert await waiting == result("a")
    late.stored("a")
    assert await late.next() == result("c")
    late.stored("c")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await late.next()


async def test_one_that_cannot_be_stored_is_in_nobodys_way() -> None:
    late = LateResults()
    for key in ("stuck", "a", "b"):
        late.missed(result(key))
    seen = []
    for _ in range(3):
        found = await late.next()
        seen.append(found.origin.key)
        if found.origin.key != "stuck":
            late.stored(found.origin.key)
    assert seen == ["stuck", "a", "b"]
    assert await late.next() == result("stuck")
    assert await late.next() == result("stuck")


async def test_only_so_many_are_kept_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lates, "MAX_LATE", 2)
    late = LateResults()
    for key in ("a", "b", "c"):
        late.sent(result(key))
    late.lost()
    late.missed(result("d"))
    found = []
    for _ in range(2):
        each = await late.next()
        found.append(each.origin.key)
        late.stored(each.origin.key)
    assert found == ["c", "d"]
    assert "c-b" in caplog.text


async def test_a_call_without_a_key_is_nobodys() -> None:
    late = LateResults()
    late.sent(result(""))
    late.missed(result(""))
    late.lost()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await late.next()


async def test_big_results_are_bounded_by_their_size_and_the_newest_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lates, "MAX_LATE_CHARS", 10)
    late = LateResults()
    for key in ("12345", "67890", "x"):
        late.missed(result(key))
    assert [(await late.next()).origin.key for _ in range(3)] == ["67890", "x", "67890"]
    late.missed(result("longer than all of it"))
    assert [(await late.next()).origin.key for _ in range(2)] == ["longer than all of it"] * 2
