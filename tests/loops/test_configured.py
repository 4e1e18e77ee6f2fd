"""Loops that `perdure.toml` names: their kinds, their keys, and what is said when one is wrong."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from perdure.entry import ToolCall
from perdure.errors import ConfigurationError
from perdure.loop import Allowed, CallWaits, Refused, ToolEnded, Verdict, Waits
from perdure.loops import Model, OpenAIAgent, PydanticAgent, Shell
from perdure.loops.approving import approving
from perdure.loops.configured import KINDS, make_configured, parse_loops
from perdure.loops.vendor import vendors
from tests.loops.handmade import Context, ask, collect
from tests.loops.modelling import calls
from tests.provider.mock import Provider

MODULE = '''
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

def lookup(order: int) -> str:
    """Looks an order up."""
    return f"order {order} is on its way"

def other() -> str:
    """Is another."""
    return "other"

tools = [lookup, other]
agent = Agent(TestModel())
deps = {"who": "all"}

def make_deps(context):
    return context.session_id

def make():
    async def loop(context):
        yield
    return loop
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "a_module_of_mine"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def parse(content: str) -> dict[str, object]:
    return dict(parse_loops(tomllib.loads(content).get("loops", {}), "perdure.toml"))


def make(content: str, name: str = "mine", workspace: Path = Path()) -> object:
    kinds = parse_loops(tomllib.loads(content)["loops"], "perdure.toml")
    return make_configured(kinds[name], name, workspace)


async def test_a_model_with_tools_of_yours_answers(provider: Provider, module: str) -> None:
    await provider.teach(
        {"match": {"hasToolResult": False}, "response": calls(("c1", "lookup", '{"order":7}'))},
        {"match": {"hasToolResult": True}, "response": {"content": "On its way."}},
    )
    factory = make(f"""
[loops.mine]
kind = "model"
model = "openai-chat:gpt-5"
base_url = "{provider.base_url("openai-chat")}"
system = "You are a clerk."
tools = ["{module}:tools"]
settings = {{ max_tokens = 7 }}
fallbacks = ["openai-chat:gpt-5-mini"]
max_retries = 1
max_steps = 9
max_run_tokens = 1000000
max_run_s = 60
context_window = 1000
""")
    assert isinstance(factory, Model)
    assert factory.fallbacks == ("openai-chat:gpt-5-mini",)
    assert (factory.max_retries, factory.max_steps, factory.context_window) == (1, 9, 1000)
    events = await collect(factory(), ask("where is order 7?"))
    (result,) = [event.result for event in events if isinstance(event, ToolEnded)]
    assert result.text == "order 7 is on its way"
    sent = provider.requests[0].decode()
    assert "You are a clerk." in sent
    assert '"other"' in sent


def test_a_key_comes_from_the_variable_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = '[loops.mine]\nkind = "model"\nmodel = "openai-chat:m"\napi_key_env = "A_KEY_OF_MINE"'
    monkeypatch.delenv("A_KEY_OF_MINE", raising=False)
    (kind,) = parse_loops(tomllib.loads(table)["loops"], "perdure.toml").values()
    assert kind.missing() == "set A_KEY_OF_MINE"
    with pytest.raises(ConfigurationError, match="A_KEY_OF_MINE"):
        make(table)
    monkeypatch.setenv("A_KEY_OF_MINE", "k")
    assert kind.missing() is None
    assert isinstance(make(table), Model)


@pytest.mark.parametrize(
    ("variables", "missing"),
    [({}, "set ANTHROPIC_API_KEY"), ({"ANTHROPIC_API_KEY": "k"}, None)],
)
def test_what_a_model_lacks_is_said(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], missing: str | None
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    table = '[loops.mine]\nkind = "model"\nmodel = "anthropic:m"'
    (kind,) = parse_loops(tomllib.loads(table)["loops"], "perdure.toml").values()
    assert kind.missing() == missing


async def test_an_agent_and_its_dependencies_are_imported(module: str) -> None:
    table = f'[loops.mine]\nkind = "pydantic-ai"\nagent = "{module}:agent"\n'
    factory = make(f'{table}deps = "{module}:make_deps"\noffers_tools = false')
    assert isinstance(factory, PydanticAgent)
    assert factory.make_deps is not None
    assert not factory.offers_tools
    events = await collect(factory(), ask("hi"))
    assert events
    plain = make(f'{table}deps = "{module}:deps"')
    assert isinstance(plain, PydanticAgent)
    assert plain.deps == {"who": "all"}


def test_a_shell_has_the_servers_workspace_or_its_own(tmp_path: Path) -> None:
    shell = make('[loops.mine]\nkind = "shell"\ntimeout_s = 5', workspace=tmp_path)
    assert isinstance(shell, Shell)
    assert (shell.workspace, shell.timeout_s) == (tmp_path, 5)
    own = make(f'[loops.mine]\nkind = "shell"\nworkspace = "{tmp_path}"')
    assert isinstance(own, Shell)
    assert own.workspace == tmp_path


def test_a_factory_of_yours_is_imported_when_it_is_made_and_not_before(module: str) -> None:
    table = f'[loops.mine]\nkind = "import"\nfactory = "{module}:make"'
    (kind,) = parse_loops(tomllib.loads(table)["loops"], "perdure.toml").values()
    assert kind.missing() is None
    assert module not in sys.modules
    assert make(table) is sys.modules[module].make


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[loops.mine]", "has a kind, which is one of model, pydantic-ai"),
        ('[loops.mine]\nkind = "magic"', "has a kind"),
        ('[loops.mine]\nkind = "model"', "missing required field `model`"),
        ('[loops.mine]\nkind = "model"\nmodel = "a:b"\nmax_stps = 3', "max_stps.*its keys are"),
        ('[loops.mine]\nkind = "model"\nmodel = "a:b"\nmax_steps = 0', "max_steps"),
        ('[loops.mine]\nkind = "import"\nfactory = "nothing"', "factory"),
        ('[loops.Mine]\nkind = "shell"', "a name is"),
        ('[loops.shell]\nkind = "shell"', "not shell"),
        ("[loops]\nmine = 3", "has a kind"),
    ],
)
def test_a_table_that_is_wrong_says_where_and_what_there_is(content: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as failed:
        parse(content)
    assert "perdure.toml" in str(failed.value)


@pytest.mark.parametrize(
    ("factory", "says"),
    [("no_such_module_here:make", "cannot be imported"), ("json:nothing", "has no 'nothing'")],
)
def test_what_is_named_and_not_there_is_said(factory: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make(f'[loops.mine]\nkind = "import"\nfactory = "{factory}"')


class Permitting(Context):
    """Surroundings that say what they were told to."""

    verdict: Verdict = Allowed({"a": 1})

    async def permit(self, call: ToolCall) -> Verdict:
        return self.verdict


@pytest.mark.parametrize(
    ("verdict", "name", "waits"),
    [
        (Allowed({"a": 1}), "run_it", True),
        (Allowed({"a": 1}), "read_it", False),
        (Refused("no"), "run_it", False),
        (Waits("hm"), "read_it", True),
    ],
)
async def test_calls_that_a_pattern_fits_wait_where_they_could_run(
    provider: Provider, verdict: Verdict, name: str, waits: bool
) -> None:
    def run_it(a: int) -> str:
        """Runs."""
        return "ran"

    def read_it(a: int) -> str:
        """Reads."""
        return "read"

    await provider.teach(
        {"match": {"hasToolResult": False}, "response": calls(("c1", name, '{"a":1}'))},
        {"match": {"hasToolResult": True}, "response": {"content": "Done."}},
    )
    base_url = provider.base_url("openai-chat")
    model = Model("openai-chat:gpt-5", base_url=base_url, tools=[run_it, read_it])
    factory = approving(model, ["run_*"])
    assert getattr(factory, "steers", False)
    context = Permitting(input=ask("go").input)
    context.verdict = verdict
    events = await collect(factory(), context)
    assert any(isinstance(event, CallWaits) for event in events) == waits


def test_every_kind_says_what_it_is() -> None:
    kinds = [str(kind.__struct_config__.tag) for kind in KINDS]
    assert len(set(kinds)) == len(kinds)
    assert {"model", "pydantic-ai", "shell", "import"} <= set(kinds)


def test_vendors_are_found_by_keys_and_command_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = {vendor.name: vendor for vendor in vendors()}
    assert {"claude", "codex", "opencode", "gemini"} <= before.keys()
    assert not any(vendor.is_usable for vendor in before.values() if vendor.kind == "command")
    assert before["anthropic"].how == "set ANTHROPIC_API_KEY"
    assert "npm install" in (before["codex"].how or "")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "claude-agent-acp").write_text("#!/bin/sh\n")
    (tmp_path / "claude-agent-acp").chmod(0o755)
    after = {vendor.name: vendor for vendor in vendors()}
    assert after["openai-responses"].is_usable
    assert after["claude"].is_usable
    assert after["claude"].how is None
    assert not after["anthropic"].is_usable


async def test_an_agent_of_the_sdk_and_its_context_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_module_of_agents.py").write_text(
        "from agents import Agent\nagent = Agent('a')\nwho = 'all'\n"
        "def make(context):\n    return context.session_id\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_module_of_agents", raising=False)
    table = '[loops.mine]\nkind = "openai-agents"\nagent = "a_module_of_agents:agent"\n'
    made = make(f'{table}context = "a_module_of_agents:make"\ncontext_window = 9')
    assert isinstance(made, OpenAIAgent)
    assert made.make_context is not None
    assert made.context_window == 9
    assert callable(made())
    plain = make(f'{table}context = "a_module_of_agents:who"')
    assert isinstance(plain, OpenAIAgent)
    assert plain.context == "all"
