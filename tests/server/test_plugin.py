"""Plugins of installed packages: what they add, what they cannot take, and broken ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.entry import Text, ToolCall
from perdure.errors import ConfigurationError, UnknownSchemeError
from perdure.hook import HookOutcome, PreToolUse, SessionStart
from perdure.loops import loop_by_name
from perdure.plugin import Plugin, Plugins
from perdure.server.config import Settings
from perdure.server.hook.setup import load_hooks
from perdure.server.named_loop import NamedLoops
from perdure.server.plugin_setting import installed_plugins
from perdure.server.plugin_tool import PluginTools
from perdure.stores import open_store
from perdure.stores.memory import MemoryStore
from tests.server.hooking import Hooked, call
from tests.server.packages import install

REPO = Path(__file__).parents[2]

WHOLE = """
from pathlib import Path

from perdure.hook import HookOutcome, PreToolUse
from perdure.loops.tool import ToolContext
from perdure.plugin import Plugin
from perdure.stores.sqlite import SqliteStore
from perdure.entry import Text
from perdure.loop import MessageEnded, MessageStarted
from starlette.responses import PlainTextResponse
from starlette.routing import Route

whole = Plugin()


@whole.tool
def add(first: int, second: int = 1) -> int:
    '''Adds two numbers.'''
    return first + second


@whole.tool
async def tell(context: ToolContext) -> str:
    '''Tells what it knows.'''
    context.show("hm")
    return f"{context.session_id} {context.turn_id} {context.idempotency_key}"


@whole.hook(PreToolUse, matcher="Bash")
def guard(event: PreToolUse) -> HookOutcome:
    return HookOutcome(refused="guarded")


@whole.loop("parrot")
def make():
    async def parrot(context):
        yield MessageStarted()
        yield MessageEnded([Text("parrot: " + (await context.messages())[-1].text)])

    return parrot


@whole.store("folder")
def open_folder(url):
    return SqliteStore(Path(url.removeprefix("folder://")) / "sessions.db")


async def hello(request):
    return PlainTextResponse(f"hello {request.path_params['name']}")


async def fail(request):
    raise RuntimeError("a route fails")


whole.route(Route("/hello/{name}", hello), Route("/fail", fail))
"""

SETUP = """
def setup(plugin):
    plugin.loop("other")(lambda: None)
"""


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    entries = {"whole": "whole_plugin:whole"}
    install(monkeypatch, tmp_path, "whole_plugin", "1.2", entries, WHOLE)
    return Plugins()


def test_a_plugin_is_loaded_when_it_is_asked_for(whole: Plugins) -> None:
    assert "whole_plugin" not in sys.modules
    (plugin,) = whole.sound.values()
    assert "whole_plugin" in sys.modules
    assert (plugin.name, plugin.origin) == ("whole", "whole_plugin 1.2")
    whole.check()


def test_a_plugin_that_is_disabled_is_not_imported(whole: Plugins) -> None:
    settings = Settings(tables={"plugins": {"disabled": ["whole"]}})
    plugins = installed_plugins(settings)
    plugins.check()
    assert (plugins.sound, plugins.loop("parrot"), plugins.store("folder")) == ({}, None, None)
    assert "whole_plugin" not in sys.modules


def test_a_function_can_fill_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, "filled", "1", {"filled": "filled:setup"}, SETUP)
    plugins = Plugins()
    assert plugins.loop_names == ("other",)
    assert str(plugins.sound["filled"]) == "filled (filled 1, loops: 1)"


async def test_its_hooks_are_asked(whole: Plugins, tmp_path: Path) -> None:
    hooks = Hooked(load_hooks([], whole, folder=tmp_path))
    refused = await hooks.fire(call("run_command", command="ls"))
    assert (refused.permission, refused.reason) == ("deny", "guarded")
    assert hooks.fact.handler == "guard (plugin whole)"
    assert await hooks.fire(call("read_file")) == HookOutcome()


async def test_its_store_is_opened_by_its_scheme(whole: Plugins, tmp_path: Path) -> None:
    async with open_store(f"folder://{tmp_path}") as store:
        await store.create_session("s")
    assert (tmp_path / "sessions.db").exists()
    with pytest.raises(UnknownSchemeError, match="folder://"):
        open_store("nobody://x")
    with pytest.raises(UnknownSchemeError):
        open_store(f"folder://{tmp_path}", plugins=Plugins(disabled=["whole"]))


def test_its_loop_has_a_name(whole: Plugins, tmp_path: Path) -> None:
    assert callable(loop_by_name("parrot", workspace=tmp_path))
    assert callable(NamedLoops(Settings(loop="shell"), whole).factory("parrot"))
    with pytest.raises(ConfigurationError, match="of plugins parrot"):
        loop_by_name("nobody", workspace=tmp_path)


async def test_its_tools_are_told_of_and_called(whole: Plugins) -> None:
    tools = await asyncio.to_thread(PluginTools, whole)
    add, tell = await tools.tools()
    assert (add.name, add.description) == ("add", "Adds two numbers.")
    assert isinstance(add.schema, dict)
    assert add.schema["required"] == ["first"]
    shown: list[str] = []

    async def ask(name: str, **arguments: object) -> tuple[bool, str]:
        result = await tools.call(
            ToolCall("c", name, {"never": "used"}),
            dict(arguments),
            session_id="s",
            turn_id="t",
            key="k",
            show=shown.append,
        )
        assert (result.call_id, result.name) == ("c", name)
        (part,) = result.parts
        assert isinstance(part, Text)
        return result.is_error, part.text

    assert await ask("add", first=1, second=2) == (False, "3")
    assert await ask("tell") == (False, "s t k")
    assert shown == ["hm"]
    failed, said = await ask("add", first="x")
    assert failed
    assert "first" in said
    assert await ask("none") == (True, "there is no tool 'none'")
    assert list(tools.names) == ["add", "tell"]
    assert tell.name == "tell"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no')", "RuntimeError('no')"),
        ("import nothing_here", "ModuleNotFoundError"),
        ("exit(1)", "SystemExit"),
        ("(", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("plugin = 1", "neither a Plugin nor a function"),
        ("class plugin: pass", "neither a Plugin nor a function"),
        ("def plugin(given): raise ValueError('bad')", "ValueError('bad')"),
        ("def plugin(given): given.loop('shell')", "the loop 'shell' is taken"),
        ("def plugin(given): given.loop('a:b')", "'a:b' is no name of a loop"),
        ("def plugin(given): given.loop('a')(3)", "the loop 'a' of a plugin is no loop factory"),
        ("def plugin(given): given.store('sqlite')", "the scheme 'sqlite' is taken"),
        ("def plugin(given): given.store('A')", "'A' is no name of a scheme"),
        ("def plugin(given): given.hook(str)", "is no event; there are SessionStart"),
        (
            "from perdure.hook import Stop\ndef plugin(given): given.hook(Stop, timeout_s=0)",
            "the time limit of a hook is 0 seconds",
        ),
        (
            "from perdure.hook import Stop\n"
            "def plugin(given): given.hook(Stop, timeout_s=float('inf'))",
            "the time limit of a hook is inf seconds",
        ),
    ],
)
def test_a_broken_plugin_is_named_with_the_reason_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str
) -> None:
    install(monkeypatch, tmp_path, "broken_one", "3", {"mine": "broken_one:plugin"}, source)
    plugins = Plugins()
    assert plugins.sound == {}
    with pytest.raises(ConfigurationError) as refused:
        plugins.check()
    text = str(refused.value)
    assert says in text
    assert "'mine' (broken_one 3, 'broken_one:plugin'" in text
    assert 'disabled = ["mine"] under [plugins]' in text
    assert "\n" not in text
    Plugins(disabled=["mine"]).check()


def test_a_broken_plugin_is_blamed_where_it_may_have_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, "broken_two", "3", {"mine": "broken_two:plugin"}, "(")
    with pytest.raises(ConfigurationError, match="'mine'"):
        open_store("mine://x")
    with pytest.raises(ConfigurationError, match="'mine'"):
        loop_by_name("mine", workspace=tmp_path)
    assert isinstance(open_store("memory://"), MemoryStore)


def test_two_plugins_cannot_have_the_same_name_loop_or_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = "def plugin(given): given.loop('a')(lambda: None)"
    store = "def plugin(given): given.store('b')(lambda url: None)"
    for name, entry, source in (
        ("one_loop", "l1", loop),
        ("two_loop", "l2", loop),
        ("one_store", "s1", store),
        ("two_store", "s2", store),
        ("one_name", "same", "def plugin(given): pass"),
        ("two_name", "same", "def plugin(given): pass"),
        ("odd_name", "Odd.Name", "def plugin(given): pass"),
    ):
        install(monkeypatch, tmp_path, name, "1", {entry: f"{name}:plugin"}, source)
    plugins = Plugins()
    assert sorted(plugins.sound) == ["l1", "s1"]
    assert "has loops ['a'] too" in plugins.broken["l2"]
    assert "has stores ['b'] too" in plugins.broken["s2"]
    assert "two packages bring a plugin of this name" in plugins.broken["same"]
    assert "its name is not of" in plugins.broken["Odd.Name"]


def test_a_matcher_of_a_plugin_that_is_none_stops_the_start(tmp_path: Path) -> None:
    plugin = Plugin()
    plugin.hook(SessionStart, matcher="(")(lambda event: None)
    plugins = Plugins()
    plugins.__dict__["_found"] = ({"mine": plugin}, {})
    with pytest.raises(ConfigurationError, match="is no regular expression"):
        load_hooks([], plugins, folder=tmp_path)


def test_decorated_functions_stay_what_they_are() -> None:
    plugin = Plugin()

    def tool() -> None:
        """Does nothing."""

    def hook(event: PreToolUse) -> HookOutcome | None:
        return None

    assert plugin.tool(tool) is tool
    assert plugin.hook(PreToolUse)(hook) is hook


class Served:
    """`perdure serve` in a folder, with packages that are installed there."""

    def __init__(self, folder: Path, *options: str) -> None:
        path = os.pathsep.join((str(REPO / "src"), str(folder)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perdure", "serve", "--port", "0", *options],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path, "PERDURE_GRACE_S": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Served:
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self.base = f"http://{address.netloc}"
        self.token = address.query.removeprefix("token=")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.log = self.process.communicate(timeout=20)[1]

    def get(self, path: str, *, token: bool = True) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.token}"} if token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.base + path, headers=headers), timeout=10
            ) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def test_a_server_has_its_routes_behind_the_token(whole: Plugins, tmp_path: Path) -> None:
    (tmp_path / "hooks.json").write_text('{"hooks": {"Setup": []}}')
    store = f"folder://{tmp_path}"
    with Served(tmp_path, "--loop", "parrot", "--store", store) as server:
        assert server.get("/v1/plugins/whole/hello/you") == (200, "hello you")
        assert server.get("/v1/plugins/whole/hello/you", token=False)[0] == 401
        assert server.get("/v1/plugins/whole/nothing")[0] == 404
        assert server.get("/v1/plugins/other/hello/you")[0] == 404
        status, problem = server.get("/v1/plugins/whole/fail")
        assert (status, json.loads(problem)["code"]) == (500, "internal")
        assert json.loads(server.get("/v1/health", token=False)[1])["loop"] == "parrot"
    assert "plugin whole (whole_plugin 1.2, tools: 2, loops: 1, hooks: 1, stores: 1" in server.log
    assert "hooks.json: hooks.Setup is an event that does not occur here" in server.log


def refused(folder: Path) -> str:
    server = Served(folder)
    said, log = server.process.communicate(timeout=20)
    assert (server.process.returncode, said) == (2, "")
    assert not (folder / "perdure-data" / "sessions.db").exists()
    return log


def test_a_server_does_not_start_with_a_broken_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, "broken_three", "3", {"mine": "broken_three:plugin"}, "(")
    assert "a plugin cannot be loaded: 'mine' (broken_three 3" in refused(tmp_path)
    (tmp_path / "perdure.toml").write_text('[plugins]\ndisabled = ["mine"]\n')
    with Served(tmp_path, "--loop", "shell") as server:
        assert server.get("/v1/sessions")[0] == 200


def test_a_server_does_not_start_with_malformed_hooks(tmp_path: Path) -> None:
    (tmp_path / "hooks.json").write_text('{"hooks": {"Stop": [{"matcher": ""}]}}')
    log = refused(tmp_path)
    assert 'hooks.json: hooks.Stop[0] has no "hooks"' in log
    assert len(log.splitlines()) == 1


async def test_a_tool_that_is_cancelled_is_cancelled(whole: Plugins) -> None:
    plugins = Plugins()
    plugin = Plugin()
    begun = asyncio.Event()

    @plugin.tool
    async def hang() -> None:
        """Hangs."""
        begun.set()
        await asyncio.sleep(30)

    plugins.__dict__["_found"] = ({"mine": plugin}, {})
    tools = await asyncio.to_thread(PluginTools, plugins)
    calling = asyncio.create_task(
        tools.call(ToolCall("c", "hang", {}), {}, session_id="s", turn_id="t", key="k", show=print)
    )
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
