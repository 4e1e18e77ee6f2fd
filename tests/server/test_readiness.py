"""A server whose disk takes nothing more says so, and says when it does again."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from perdure.entry import text
from perdure.errors import StoreUnavailableError
from perdure.server.telemetry import appends
from perdure.store import Receipt
from perdure.stores.memory import MemoryStore
from perdure.stores.sqlite import SqliteStore
from tests.server.live import Running, running


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "TRY_S", 0.0)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Every write beyond this fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def ready(server: Running) -> tuple[int, str]:
    async with httpx.AsyncClient(base_url=server.base) as nobody:
        answer = await nobody.get("/v1/ready")
        return answer.status_code, answer.json().get("detail", "")


async def test_a_full_disk_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store, running(store=store) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        await server.send("s", "hi")
        await server.service.observer.until_rest()
        await store.append_entries("s", [text("x" * 2_000_000)])
        assert (await ready(server))[0] == 200
        with files_no_larger_than(4096):
            assert (await ready(server))[0] == 200  # nobody has tried
            refused = await server.client.post("/v1/sessions/s/messages", json={"text": "more"})
            assert refused.status_code == 503
            for _ in range(3):
                status, why = await ready(server)
                assert status == 503
                assert "s.db" in why
                assert str(tmp_path) not in why  # anybody may ask
            found = (await server.client.get("/metrics")).text
            assert "perdure_appends_refused 1.0" in found
        assert await ready(server) == (200, "")
        await server.send("s", "again")
        await server.service.observer.until_rest()


async def test_while_all_is_well_a_probe_writes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "s.db"
    async with SqliteStore(place) as store, running(store=store) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        await server.send("s", "hi")
        await server.service.observer.until_rest()

        def stands() -> list[tuple[str, int, int]]:
            files = (tmp_path / "s.db", tmp_path / "s.db-wal")
            return [(each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in files]

        before = stands()
        for _ in range(5):
            assert (await ready(server))[0] == 200
        assert stands() == before
        await store.try_write()
        assert stands() != before


class Refusing(MemoryStore):
    """Takes nothing while it is told so, and has no way to be tried."""

    refuses = False

    async def append_entries(self, *given: object, **options: object) -> Receipt:
        if self.refuses:
            raise StoreUnavailableError("the disk is full")
        return await super().append_entries(*given, **options)  # type: ignore[arg-type]


async def test_a_store_that_cannot_be_tried_is_not_ready_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appends, "TRY_S", 3600.0)
    store = Refusing()
    async with running(store=store) as server:
        await server.client.post("/v1/sessions", json={"session_id": "s"})
        store.refuses = True
        await server.client.post("/v1/sessions/s/messages", json={"text": "hi"})
        status, why = await ready(server)
        assert (status, "the disk is full" in why) == (503, True)
        monkeypatch.setattr(appends, "TRY_S", 0.0)
        assert (await ready(server))[0] == 200  # the next append decides
        await server.client.post("/v1/sessions/s/messages", json={"text": "hi"})
        monkeypatch.setattr(appends, "TRY_S", 3600.0)
        assert (await ready(server))[0] == 503
        store.refuses = False
        await server.send("s", "hi")
        assert (await ready(server))[0] == 200
