"""Loops by name, and what is refused before anything runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.errors import ConfigurationError, MissingExtraError
from perdure.loop import Loop, LoopContext, LoopEvent, MessageStarted
from perdure.loops import Model, Shell, default_loop_name, loop_by_name

SRC = Path(__file__).parents[2] / "src"


def made() -> Loop:
    """A loop factory, for the tests: `module:attribute`."""
    raise NotImplementedError


async def not_made(_: LoopContext) -> AsyncGenerator[LoopEvent, None]:
    """A loop, where a factory of loops belongs."""
    yield MessageStarted()


def test_a_loop_is_no_loop_factory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not_made' is a loop, not a loop factory"):
        loop_by_name(f"{__name__}:not_made", workspace=tmp_path)
    with pytest.raises(ConfigurationError, match="__name__' is no loop factory"):
        loop_by_name(f"{__name__}:__name__", workspace=tmp_path)


@pytest.mark.parametrize(
    "source", ["raise RuntimeError('no')", "import nothing_here", "exit(1)", "("]
)
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_module", raising=False)
    (tmp_path / "broken_module.py").write_text(source)
    with pytest.raises(ConfigurationError, match=r"'broken_module' .* cannot be imported"):
        loop_by_name("broken_module:loop", workspace=tmp_path)


@pytest.mark.parametrize("name", [".x:y", "..:y", "a..b:c", "\0:x"])
def test_what_can_be_no_module_is_an_unknown_loop(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown loop"):
        loop_by_name(name, workspace=tmp_path)


def test_a_loop_has_a_name(tmp_path: Path) -> None:
    shell = loop_by_name("shell", workspace=tmp_path)
    assert isinstance(shell, Shell)
    assert shell.workspace == tmp_path
    model = loop_by_name("anthropic:claude-sonnet-5-5", workspace=tmp_path, system="Be kind.")
    assert isinstance(model, Model)
    assert (model.name, model.system) == ("anthropic:claude-sonnet-5-5", "Be kind.")
    assert loop_by_name(f"{__name__}:made", workspace=tmp_path) is made
    assert isinstance(loop_by_name("openai:gpt", workspace=tmp_path), Model)


@pytest.mark.parametrize(
    "name",
    ["", "bash", "nobody:model-1", "no.such.module:attribute", ":x", "anthropic:", "json:no"],
)
def test_an_unknown_name_is_refused_and_the_text_lists_what_there_is(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"known are shell|the module .* has no"):
        loop_by_name(name, workspace=tmp_path)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "shell"),
        ({"ANTHROPIC_API_KEY": ""}, "shell"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic:claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai-responses:gpt-6.1-sol"),
        ({"OPENAI_API_KEY": "k", "PERDURE_MODEL": "ollama:x"}, "ollama:x"),
    ],
)
def test_the_default_is_the_shell_until_a_key_is_set(environ: dict[str, str], name: str) -> None:
    assert default_loop_name(environ) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("claude-sonnet-5-5", "provider:model"),
        ("nobody:x", "unknown provider 'nobody'; known are anthropic"),
        ("anthropic:claude-sonnet-5-5", "set ANTHROPIC_API_KEY"),
        ("openai-chat:gpt", "set OPENAI_API_KEY"),
        ("groq:llama", "groq"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_by_the_factory(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError, match=told):
        Model(name)()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        Model("anthropic:x", api_key="k", tools=[made, made])()


def test_without_the_extra_the_factory_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"perdure\[models\]\""):
        Model("anthropic:x", api_key="k")()
    assert default_loop_name({"ANTHROPIC_API_KEY": "k"}) == "shell"


LIGHT = """
import sys
import perdure.loops, perdure.loops.model, perdure.loops.shell, perdure.loops.tool
perdure.loops.Model("anthropic:x", tools=[print])
heavy = {"pydantic", "pydantic_ai", "openai", "anthropic", "httpx", "httpx2"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_loops_import_no_library_until_one_is_made() -> None:
    subprocess.run(
        [sys.executable, "-c", LIGHT], check=True, env={"PYTHONPATH": str(SRC), "PATH": ""}
    )
