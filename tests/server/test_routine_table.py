"""The routines of `perdure.toml`: the file says what they do, and a person whether they rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ConfigurationError, InvalidRoutineError
from perdure.server.config import load_settings
from perdure.server.routine.definition import Wanted
from perdure.server.routine.table import apply_table, read_table
from perdure.stores.memory import MemoryStore
from tests.server.live import running
from tests.server.routine_house import SAY, RoutineHouse, at, living, move, timed

MORNING: dict[str, Any] = {"cron": "0 9 * * *", "text": SAY}


async def apply(house: RoutineHouse, **tables: Any) -> None:
    await apply_table(house.routines, read_table({"routines": tables}))


async def test_what_is_in_the_file_is_made_and_changed_at_the_next_start() -> None:
    store = MemoryStore()
    async with timed() as clock:
        async with living(store) as house:
            await apply(house, morning=MORNING, often={"every_s": 600, "text": SAY})
            look = house.routines.look("morning")
            assert (look.origin, look.next_due[0]) == ("configuration", at("2026-01-05T09:00"))
            await move(house, clock, 1.5 * 3600)
        async with living(store) as house:
            often = house.routines.look("often")
            await apply(house, morning=MORNING, often={"every_s": 600, "text": SAY})
            assert house.routines.look("often") == often, "nothing changed, so nothing was stored"
            await apply(house, morning=MORNING | {"cron": "0 10 * * *", "jitter_s": 5})
            assert house.routines.look("morning").next_due[0] == at("2026-01-05T10:00")
            assert await house.said("morning") == [("01-05T09:00", "succeeded")]
            await apply(house, morning=MORNING)
            assert house.routines.look("morning").jitter_s == 0


async def test_what_is_taken_out_is_paused_and_goes_on_when_it_comes_back() -> None:
    async with timed(), living(MemoryStore()) as house:
        await apply(house, morning=MORNING)
        await apply(house)
        look = house.routines.look("morning")
        assert (look.status, look.why) == ("paused", "it is no longer in perdure.toml")
        await apply(house, morning=MORNING)
        assert house.routines.look("morning").status == "enabled"


async def test_a_person_pauses_it_and_changes_it_in_the_file() -> None:
    async with timed(), living(MemoryStore()) as house:
        await apply(house, morning=MORNING)
        await house.routines.change("morning", Wanted(), status="paused")
        await apply(house, morning=MORNING)
        assert house.routines.look("morning").status == "paused"
        with pytest.raises(InvalidRoutineError, match=r"in perdure\.toml"):
            await house.routines.change("morning", Wanted(text="else"))
        with pytest.raises(InvalidRoutineError, match=r"in perdure\.toml"):
            await house.routines.delete("morning")


async def test_one_that_the_api_made_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async with timed(), living(MemoryStore()) as house:
        await house.make()
        await apply(house, r=MORNING)
        assert house.routines.look("r").origin == "api"
        assert "made by the API" in caplog.text


async def test_what_cannot_be_made_is_logged_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with timed(), living(MemoryStore()) as house:
        await apply(house, bad=MORNING | {"loop": "none"}, morning=MORNING)
        assert [look.routine_id for look in house.routines.list()[0]] == ["morning"]
        assert "[routines.bad]" in caplog.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[routines.r]\ncron = '61 * * * *'\ntext = 'a'", r"\[routines.r\].*minute field"),
        ("[routines.r]\ncron = '* * * * *'", r"\[routines.r\].*message"),
        ("[routines.r]\ncrom = '* * * * *'\ntext = 'a'", r"\[routines.r\].*crom.*its keys are"),
        ("[routines.r]\nevery_s = '60'\ntext = 'a'", r"\[routines.r\].*every_s"),
        ("[routines]\nr = 1", r"\[routines.r\]"),
        (f"[routines.{'x' * 201}]\nevery_s = 60\ntext = 'a'", "200 bytes"),
    ],
)
def test_a_table_that_is_wrong_is_refused_by_name_and_key(
    tmp_path: Path, content: str, says: str
) -> None:
    (tmp_path / "perdure.toml").write_text(content)
    settings = load_settings(environment={}, folder=tmp_path)
    with pytest.raises(ConfigurationError, match=says):
        read_table(settings.tables)


async def test_a_server_starts_with_the_routines_of_its_file() -> None:
    table = {"routines": {"morning": {"cron": "0 9 * * *", "text": "hello"}}}
    async with running(settings={"tables": table}) as server:
        look = (await server.client.get("/v1/routines/morning")).json()
        assert (look["origin"], look["status"]) == ("configuration", "enabled")
        refused = await server.client.delete("/v1/routines/morning")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_routine")
