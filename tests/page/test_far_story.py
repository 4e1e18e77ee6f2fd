"""A turn whose tools run far away: the line is cut in mid-call, comes back, and it is sent again.

Everything is real but the model's answers, which a provider on this machine gives: the server and
the runtime are processes, the runtime is on the other side of a network namespace, its tools
change files, and a person reads the page and the terminal. Where a namespace cannot be made, a
proxy that goes silent takes the cable's place, and the test says so.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.cli.terminal import run
from tests.page.visitor import WAIT_MS, Visitor, place_of, rows, say
from tests.page.world import until
from tests.provider.mock import running_mock
from tests.runtimes.cable import NoCableError, laid, tell
from tests.runtimes.world import FAR, Proxy, RuntimeProcess
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

LOST_AFTER_S = 2.0
NOTICED_S = 4 * LOST_AFTER_S
"""What a busy machine may add to the bound."""

TOML = """
hosts = ["{address}"]

[loops.coder]
kind = "model"
model = "anthropic:claude-sonnet-5-5"
base_url = "{provider}"
api_key_env = "STORY_KEY"

[runtimes.far]
kind = "remote"
lost_after_s = {lost_after_s}
attach_within_s = 20
"""
ASKED = "Fix the greeting, then check it."
WRONG, RIGHT, FINAL = 'print("helo")\n', 'print("hello")\n', 'print("hello, world")\n'
CHECK = (
    "echo $$ > pid; echo checking | tee -a check.log;"
    f" while ! test -e go; do sleep 0.02; done; {shlex.quote(sys.executable)} greet.py"
    " | tee -a check.log"
)


def calls(call_id: str, name: str, content: str = "", /, **arguments: Any) -> dict[str, Any]:
    """An answer of the model that calls a tool."""
    call = {"id": call_id, "name": name, "arguments": json.dumps(arguments)}
    return {"toolCalls": [call], **({"content": content} if content else {})}


def after(call_id: str, response: dict[str, Any], **match: Any) -> dict[str, Any]:
    """What the model says to the result of a call."""
    return {"match": {"toolCallId": call_id, **match}, "response": response}


ANSWERS = [
    after("read-1", calls("edit-1", "edit_file", path="greet.py", old="helo", new="hello")),
    after("edit-1", calls("check-1", "run_command", command=CHECK)),
    after(
        "read-2",
        calls("edit-2", "edit_file", path="greet.py", old="hello", new="hello, world"),
        toolResultContains=RIGHT.strip(),
    ),
    after("edit-2", calls("check-2", "run_command", command=CHECK)),
    after(
        "check-2",
        {"content": "The greeting says **hello, world** now."},
        toolResultContains="hello, world",
    ),
    # Only a model that is told of the call that was cut off goes on where it was.
    {
        "match": {"userMessage": "it was cut off before its result"},
        "response": calls("read-2", "read_file", "I see what was left behind.", path="greet.py"),
    },
    {
        "match": {"userMessage": ASKED},
        "response": calls("read-1", "read_file", "Let me look at it.", path="greet.py"),
    },
]


class Line(NamedTuple):
    """What lies between the server and the runtime."""

    base: str
    inside: tuple[str, ...]
    cut: Callable[[], None]
    mend: Callable[[], None]


@contextmanager
def carrying(port: int, host: str) -> Iterator[Line]:
    """A proxy in an event loop of its own, beside the one that drives the browser."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(step: Callable[[], object]) -> None:
        loop.call_soon_threadsafe(step)

    async def make() -> Proxy:
        proxy = Proxy(port, host)
        await proxy.start()
        return proxy

    try:
        proxy = asyncio.run_coroutine_threadsafe(make(), loop).result(20)
        try:
            yield Line(proxy.base, (), lambda: do(proxy.silence), lambda: do(proxy.talk))
        finally:
            asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(20)
    finally:
        do(loop.stop)
        thread.join()
        loop.close()


class Story:
    """A session whose tools run far away, as a program sees it."""

    def __init__(self, server: ServerProcess, line: Line, workspace: Path, provider: str) -> None:
        self.server = server
        self.line = line
        self.workspace = workspace
        self.provider = provider
        self.client = httpx.Client(base_url=server.base, headers=server.headers, timeout=30)

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/v1/sessions/s").json()
        return found

    def entries(self, kind: str) -> list[dict[str, Any]]:
        page = self.client.get("/v1/sessions/s/entries?limit=500").json()
        return [entry for entry in page["entries"] if entry["type"] == kind]

    def results(self) -> dict[str, list[dict[str, Any]]]:
        """The results of each call."""
        found: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries("message"):
            for part in entry["parts"]:
                if part["type"] == "tool_result":
                    found.setdefault(part["call_id"], []).append(part)
        return found

    def show(self, *options: str) -> str:
        """What the terminal shows of it, while the server runs."""
        store = f"sqlite:///{self.server.folder / 'sessions.db'}"
        ran = run("show", "s", *options, "--store", store, cwd=self.server.folder)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def asked(self) -> list[str]:
        """The bodies of the requests that the model got."""
        journal = httpx.get(f"{self.provider}/__aimock/journal", trust_env=False).json()
        return [json.dumps(each["body"], ensure_ascii=False) for each in journal]

    def read(self, name: str) -> str:
        return (self.workspace / name).read_text()


@pytest.fixture
def story(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    monkeypatch.setenv("STORY_KEY", "k")
    workspace, answers, folder = (tmp_path / each for each in ("far", "answers", "server"))
    for each in (workspace, answers, folder):
        each.mkdir()
    (workspace / "greet.py").write_text(WRONG)
    (answers / "answers.json").write_text(json.dumps({"fixtures": ANSWERS}))
    with ExitStack() as stack:
        provider = stack.enter_context(running_mock(answers))
        try:
            cable = stack.enter_context(laid())
        except NoCableError as error:
            tell(request, f"NOTE: a proxy that goes silent stands for the cable: {error}")
            cable = None
        address = cable.address if cable else "127.0.0.1"
        toml = TOML.format(address=address, provider=provider, lost_after_s=LOST_AFTER_S)
        (folder / "perdure.toml").write_text(toml)
        server = stack.enter_context(ServerProcess(folder, loop="coder"))
        line = stack.enter_context(carrying(server.port, address))
        if cable is not None:
            line = Line(line.base, cable.inside, cable.pull, cable.plug_in)
        far = RuntimeProcess(line.base, workspace, name=FAR, token=server.token, before=line.inside)
        stack.callback(far.stop)
        found = Story(server, line, workspace, provider)
        stack.callback(found.client.close)
        yield found


def wait_for(holds: Callable[[], bool], what: str, *, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not in {within_s} s: {what}"
        time.sleep(0.02)


def test_a_line_that_is_cut_in_mid_call_and_the_whole_story_of_it(
    browser: Browser, story: Story
) -> None:
    made = story.client.post("/v1/sessions", json={"session_id": "s", "runtime": FAR})
    assert made.status_code == 201, made.text
    visitor = Visitor(browser, story.server)
    visitor.open(place_of("s"))
    page = visitor.page
    say(page, ASKED)
    wait_for((story.workspace / "pid").exists, "the command runs")
    running = page.locator("[data-testid=tool-call][data-call-id=check-1]")
    expect(running).to_have_attribute("data-state", "running", timeout=WAIT_MS)
    visitor.shoot("far-1-running")

    story.line.cut()
    began = time.monotonic()
    until(story.client, "s", "interrupted", within_s=NOTICED_S)
    assert time.monotonic() - began >= LOST_AFTER_S / 2  # and not by a connection that was closed
    first = story.look()["last_turn"]
    assert "was lost" in first["cause"]
    assert (story.read("greet.py"), story.read("check.log")) == (RIGHT, "checking\n")
    expect(visitor.see("turn-state")).to_have_attribute(
        "data-status", "interrupted", timeout=WAIT_MS
    )
    expect(running).to_have_attribute("data-state", "interrupted")
    expect(visitor.see("runtime-lost")).to_contain_text("nothing was heard", timeout=WAIT_MS)
    visitor.shoot("far-2-interrupted")

    (story.workspace / "go").touch()
    wait_for(lambda: story.read("check.log") == "checking\nhello\n", "it goes on over there")
    assert story.entries("late_result") == []
    story.line.mend()
    wait_for(lambda: story.entries("late_result") != [], "the late result comes")
    assert story.look()["status"] == "interrupted"
    expect(visitor.see("late-result")).to_contain_text("run_command", timeout=WAIT_MS)
    visitor.see("late-result").locator("summary").click()
    expect(visitor.see("late-result")).to_contain_text("hello")
    visitor.shoot("far-3-late")

    visitor.see("resend").click()
    until(story.client, "s", "idle")
    expect(visitor.see("message").last).to_contain_text("hello, world", timeout=WAIT_MS)
    assert story.read("greet.py") == FINAL
    assert story.read("check.log") == "checking\nhello\nchecking\nhello, world\n"
    expect(visitor.see("branches")).to_contain_text("2 / 2", timeout=WAIT_MS)
    visitor.shoot("far-4-done")

    _check_the_journal(story, first["turn_id"])
    _check_what_the_model_was_told(story)
    _check_the_terminal(story)
    _check_the_page(visitor)
    assert visitor.complaints == []


def _check_the_journal(story: Story, first: str) -> None:
    """Each thing happened once."""
    (lost,) = story.entries("runtime_lost")
    assert lost["runtime_id"].startswith(f"{FAR}/")
    assert "nothing was heard" in lost["cause"]
    (late,) = story.entries("late_result")
    assert late["call_id"] == "check-1"
    assert late["parts"][0]["text"] == "checking\nhello\n"
    started, again = story.entries("turn_started")
    assert (started["turn_id"], again["resends"]) == (first, first)
    ends = [(each["turn_id"], each["reason"]) for each in story.entries("turn_ended")]
    assert ends == [(first, "interrupted"), (again["turn_id"], "completed")]
    results = story.results()
    assert sorted(results) == ["check-1", "check-2", "edit-1", "edit-2", "read-1", "read-2"]
    assert {call_id for call_id, each in results.items() if len(each) != 1} == set()
    cut = {call_id for call_id, (each,) in results.items() if each.get("interrupted")}
    assert cut == {"check-1"}
    assert results["check-1"][0]["parts"][0]["text"].startswith("checking\n")


def _check_what_the_model_was_told(story: Story) -> None:
    asked = story.asked()
    assert len(asked) == 3 + 4
    told = asked[3]
    for each in ("not a rollback", "edit_file", "greet.py: 1 replaced", "was lost", "came late"):
        assert each in told


def _check_the_terminal(story: Story) -> None:
    shown = story.show()
    for each in ("·· another attempt, interrupted", "hello, world", "·· sent again"):
        assert each in shown, shown
    (other,) = re.findall(r"perdure show s --leaf (\S+)", shown)
    shown = story.show("--leaf", other)
    at = -1
    for each in (
        ASKED,
        '→ edit_file {"path": "greet.py", "old": "helo", "new": "hello"}',
        "greet.py: 1 replaced",
        "→ run_command",
        f"·· the runtime {FAR}/",
        "nothing was heard",
        "← run_command (interrupted)\nchecking\n",
        "·· the turn was interrupted",
        "·· a result of run_command came late",
        "hello\n",
    ):
        assert each in shown[at + 1 :], (each, shown)
        at = shown.index(each, at + 1)
    raw = [json.loads(line)["type"] for line in story.show("--json").splitlines()]
    assert raw.count("runtime_lost") == raw.count("late_result") == 1
    everything = story.show("--everything")
    assert everything.count("\n── ") + 1 == len(raw)
    assert "Sending again is not a rollback" in everything


def _check_the_page(visitor: Visitor) -> None:
    """The attempt that was cut off is read beside the other, after a reload too."""
    now = rows(visitor.page)
    visitor.page.reload()
    expect(visitor.see("branches")).to_contain_text("2 / 2", timeout=WAIT_MS)
    assert rows(visitor.page) == now
    visitor.see("branch-before").click()
    expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
    cut = visitor.page.locator("[data-testid=tool-call][data-call-id=check-1]")
    expect(cut).to_have_attribute("data-state", "interrupted")
    expect(visitor.see("runtime-lost")).to_contain_text("nothing was heard", timeout=WAIT_MS)
    expect(visitor.see("late-result")).to_be_visible()
    expect(cut.locator("summary .asked").first).to_have_css("border-top-width", "0px")
    edit = visitor.page.locator("[data-testid=tool-call][data-call-id=edit-1]")
    edit.locator("summary").click()
    expect(edit.get_by_test_id("tool-input")).to_contain_text("helo")
    expect(edit.get_by_test_id("tool-output")).to_contain_text("1 replaced")
    visitor.shoot("far-5-first-attempt")
    visitor.see("branch-next").click()
    expect(visitor.see("reading-bar")).to_have_count(0, timeout=WAIT_MS)
    assert rows(visitor.page) == now
