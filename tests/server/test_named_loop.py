"""Loops by name: what a session may choose, and where what it needs is imported."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError, LoopError
from perdure.loop import Loop, LoopContext, LoopEvent, LoopFactory, MessageEnded
from perdure.server import named_loop
from perdure.server.config import Settings
from perdure.server.named_loop import NamedLoops
from perdure.server.session.port import make_loop

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


SHELL = {"kind": "shell"}


def settings_with(**more: object) -> Settings:
    return Settings(loop="shell", tables={"loops": {"mine": SHELL}}, **more)  # type: ignore[arg-type] # the settings' own


async def test_a_loop_of_the_configuration_is_chosen_by_its_name() -> None:
    loops = NamedLoops(settings_with())
    await loops.prepare("mine")
    assert loops.factory("mine") is loops.factory("mine")
    with pytest.raises(ConfigurationError, match="it offers mine, shell"):
        loops.factory("yours")


def test_what_a_table_names_and_is_not_there_is_said_with_the_table() -> None:
    table = {"kind": "import", "factory": "no_such_module_here:make"}
    loops = NamedLoops(Settings(loop="shell", tables={"loops": {"mine": table}}))
    with pytest.raises(ConfigurationError, match=r"\[loops\.mine\] in perdure\.toml"):
        loops.factory("mine")


def test_a_table_that_is_wrong_refuses_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"\[loops\.mine\]"):
        NamedLoops(Settings(tables={"loops": {"mine": {"kind": "none"}}}))


def test_only_loops_that_are_named_can_be_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    loops = NamedLoops(
        Settings(loop="mine", offered_loops="named", tables={"loops": {"mine": SHELL}})
    )
    assert callable(loops.factory("mine"))
    assert loops.default == "mine"
    for name in ("shell", "openai-chat:gpt-5"):
        with pytest.raises(ConfigurationError, match="it offers mine;"):
            loops.factory(name)
    assert [look.name for look in loops.looks()] == ["mine"]


def test_an_application_adds_loops_by_name(module: str) -> None:
    def make() -> Loop:
        raise AssertionError

    loops = NamedLoops(settings_with(), registered={"ours": make})
    assert loops.factory("ours") is make
    origins = {look.name: look.origin for look in loops.looks()}
    assert origins == {"mine": "configuration", "ours": "application", "shell": "built-in"}
    with pytest.raises(ConfigurationError, match="the application and"):
        NamedLoops(settings_with(), registered={"mine": make})


def test_what_is_missing_is_said_without_an_import(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    table = {
        "claude": {"kind": "model", "model": "anthropic:m"},
        "there": {"kind": "import", "factory": f"{module}:make"},
        "gone": {"kind": "import", "factory": "no_such_module_here:make"},
    }
    loops = NamedLoops(Settings(loop="there", loops=("x:y",), tables={"loops": table}))
    looks = {look.name: look for look in loops.looks()}
    assert looks["claude"].missing == "set ANTHROPIC_API_KEY"
    assert looks["there"].missing is None
    assert looks["there"].is_default
    assert "no_such_module_here" in (looks["gone"].missing or "")
    assert looks["x:y"].origin == "setting"
    assert module not in sys.modules


async def test_a_factory_of_somebody_elses_is_called_for_runs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a_module_that_counts"
    (tmp_path / f"{name}.py").write_text("def make():\n    raise ValueError('no line')\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = {"kind": "import", "factory": f"{name}:make"}
    loops = NamedLoops(Settings(loop="mine", tables={"loops": {"mine": table}}))
    await loops.prepare("mine")
    with pytest.raises(LoopError, match="cannot start: ValueError: no line"):
        make_loop(loops, "mine")


def test_models_that_users_name_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_loop, "MOST_KEPT", 10)
    mine = as_loop_of_mine()
    loops = NamedLoops(Settings(loop="shell"), registered={"mine": mine})
    for number in range(50):
        loops.factory(f"openai-chat:model-{number}")
    assert len(loops._factories) == 10
    assert loops.factory("mine") is mine


def as_loop_of_mine() -> LoopFactory:
    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        yield MessageEnded(())

    return lambda: loop
