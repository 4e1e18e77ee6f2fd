"""Loops by name: what a session may choose, and where what it needs is imported."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError
from perdure.server.config import Settings
from perdure.server.named_loop import NamedLoops

MODULE = """
import threading
thread = threading.get_ident()

def make():
    async def loop(context):
        yield
    return loop
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_module_of_loops"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


async def test_who_creates_a_session_does_not_choose_what_is_imported(module: str) -> None:
    loops = NamedLoops(Settings(loop="shell"))
    with pytest.raises(ConfigurationError, match="not one that this server offers"):
        await loops.prepare(f"{module}:make")
    assert module not in sys.modules


@pytest.mark.parametrize("setting", ["loop", "loops"])
async def test_a_loop_that_the_settings_name_is_imported_in_a_thread(
    module: str, setting: str
) -> None:
    name = f"{module}:make"
    settings = Settings(loop=name) if setting == "loop" else Settings(loop="shell", loops=(name,))
    loops = NamedLoops(settings)
    await loops.prepare(name)
    assert callable(loops.factory(name))
    assert sys.modules[module].thread != threading.get_ident()


async def test_a_model_without_its_key_is_prepared_and_refused_when_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    loops = NamedLoops(Settings(loop="shell"))
    await loops.prepare("openai-chat:gpt-x")
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        loops.factory("openai-chat:gpt-x")()
