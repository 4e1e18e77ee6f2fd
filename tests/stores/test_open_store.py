from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import ConfigurationError, MissingExtraError, UnknownSchemeError
from perdure.stores import open_store


@pytest.mark.parametrize("url", ["memory://", "MEMORY://", "memory:///"])
async def test_memory_needs_no_path(url: str) -> None:
    async with open_store(url) as store:
        await store.create_session("s")
        assert list(await store.load_entries("s")) == []


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
async def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    for folder, url in (("r", f"{scheme}:///made"), ("a", f"{scheme}:///{tmp_path}/a/made")):
        os.makedirs(tmp_path / folder)
        monkeypatch.chdir(tmp_path / "r")
        async with open_store(url) as store:
            monkeypatch.chdir(tmp_path)
            await store.create_session("s")
        assert "made" in os.listdir(tmp_path / folder)


async def test_a_path_is_percent_decoded(tmp_path: Path) -> None:
    async with open_store(f"jsonl:///{tmp_path}/a%3Fb%20%C3%A9") as store:
        await store.create_session("s")
    assert os.listdir(tmp_path) == ["a?b é"]


@pytest.mark.parametrize(
    "url",
    ["postgresql://host/db", "nats://host", "sqllite:///a", "a.db", "", "sqlite:a.db", "://x"],
)
def test_an_unknown_scheme_is_told_which_there_are(url: str) -> None:
    with pytest.raises(UnknownSchemeError) as unknown:
        open_store(url)
    for known in ("memory://", "jsonl:///", "sqlite:///"):
        assert known in str(unknown.value)


@pytest.mark.parametrize("scheme", ["jsonl", "sqlite"])
@pytest.mark.parametrize(
    "rest", ["", "/", "//", "a.db", "./a", "host/a", "/a\x00", "/a?b=c", "/a#b"]
)
def test_a_url_without_a_sound_path_is_told_the_spelling(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigurationError, match=f"write ({scheme}:///relative|[?] as)"):
        open_store(f"{scheme}://{rest}")


def test_memory_refuses_a_path() -> None:
    with pytest.raises(ConfigurationError, match="memory://"):
        open_store("memory://a")


def test_a_missing_driver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("perdure.stores.sqlite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        open_store("sqlite:///a.db")


def test_a_store_is_imported_only_when_it_is_asked_for() -> None:
    code = (
        "import sys, perdure; perdure.open_store('memory://');"
        "bad = {'apsw', 'pytest', 'perdure.stores.sqlite', 'perdure.stores.jsonl'};"
        "assert not bad & set(sys.modules), bad & set(sys.modules)"
    )
    source = Path(perdure.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=source)


def test_what_is_no_string_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="a string, not None"):
        open_store(None)  # type: ignore[arg-type]  # what a caller without types does
