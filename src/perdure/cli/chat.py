"""`perdure chat`: a conversation in a terminal, on a store, through the durable agent; no server.

A line is a message. What is typed is stored before the loop starts; Ctrl-C stops the run and keeps
what was shown of it; Ctrl-D leaves. Killed in the middle, the same command goes on from there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from perdure.agent import DurableAgent, open_agent
from perdure.cli.conversation import Conversation
from perdure.cli.place import add_loop_to, add_store_to
from perdure.cli.render import call_text, summary_line
from perdure.cli.terminal import Terminal, cut, one_line
from perdure.entry import Message
from perdure.errors import StoreError, UnrecoverableError
from perdure.loop import LoopFactory
from perdure.server.config import Settings, load_settings
from perdure.server.named_loop import NamedLoops
from perdure.server.plugin_setting import installed_plugins
from perdure.server.session.port import make_loop
from perdure.server.session.turn import describe
from perdure.store import check_session_id
from perdure.stores import open_store
from perdure.view import open_calls

_SHOWN_ENTRIES = 6
_LINE = 100


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("chat", help="talk to an agent in this terminal; no server needed")
    verb.add_argument("session_id", metavar="SESSION", help="goes on with it, or begins it")
    add_loop_to(verb)
    add_store_to(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Talks until the input ends; 1 if a run failed and nobody was there to see it."""
    check_session_id(options.session_id)
    given = {name: getattr(options, name) for name in ("store", "loop", "workspace")}
    settings = load_settings(given)
    factory = loop_factory(settings)
    store = open_store(settings.store_url, plugins=installed_plugins(settings))
    with asyncio.Runner() as runner:
        try:
            agent = runner.run(open_agent(options.session_id, factory, store=store))
            return _talk(runner, agent, terminal)
        finally:
            runner.run(store.close())


def loop_factory(settings: Settings) -> LoopFactory:
    """The loop that is set, or the first one that can run here; it has been made once, to see.

    Raises:
        ConfigurationError, MissingExtraError: there is none of this name, or it cannot start.
        LoopError: somebody else's factory failed.

    """
    loops = NamedLoops(settings, installed_plugins(settings))
    make_loop(loops, loops.default)
    return loops.factory(loops.default)


def _talk(runner: asyncio.Runner, agent: DurableAgent, terminal: Terminal) -> int:
    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):
            import_module("readline")  # gives input() line editing
        _greet(agent, terminal)
    failed = False
    while (line := _read_line(terminal, interactive=interactive)) is not None:
        if line.strip():
            failed |= _answer(runner, agent, line, terminal, interactive=interactive)
    return 1 if failed and not interactive else 0


def _greet(agent: DurableAgent, terminal: Terminal) -> None:
    """Says where the conversation stands, and what of it was cut off."""
    transcript = agent.transcript()
    if not transcript:
        terminal.say(f"session {one_line(agent.session_id)}, new; Ctrl-D leaves")
        return
    count = len(agent.entries())
    terminal.say(f"session {one_line(agent.session_id)}, {count} entries; Ctrl-D leaves")
    if len(transcript) > _SHOWN_ENTRIES:
        terminal.say(f"  … {len(transcript) - _SHOWN_ENTRIES} earlier; perdure show has them all")
    for entry in transcript[-_SHOWN_ENTRIES:]:
        terminal.say(f"  {summary_line(entry, _LINE)}")
    for note in _cut_off(agent):
        terminal.say(f"! {note}")


def _cut_off(agent: DurableAgent) -> list[str]:
    transcript = agent.transcript()
    calls = open_calls(transcript)
    if calls:
        return [
            f"interrupted: {cut(call_text(call.name, call.arguments), _LINE)} gave no result; "
            "it may have had effects"
            for call in calls
        ]
    last = transcript[-1].view
    if not isinstance(last, Message):
        return []
    if last.role == "user":
        return ["interrupted: the last message was not answered; send it again, or another"]
    if last.end is not None:
        return [f"the last answer was cut off ({last.end})"]
    if any(result.interrupted for result in last.tool_results):
        return ["the last run was cut off while a tool was running"]
    return []


def _read_line(terminal: Terminal, *, interactive: bool) -> str | None:
    """The next line without its newline; None at the end of the input."""
    if not interactive:
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    while True:
        try:
            line = input("> " if terminal.is_terminal else "")
        except EOFError:
            terminal.write("\n")
            return None
        except KeyboardInterrupt:
            terminal.write("\n")
        else:
            terminal.answered()
            return line


def _answer(
    runner: asyncio.Runner,
    agent: DurableAgent,
    line: str,
    terminal: Terminal,
    *,
    interactive: bool,
) -> bool:
    """Runs one message and shows it; whether the run failed."""
    conversation = Conversation(terminal)
    try:
        runner.run(_show(agent, line, conversation))
    except KeyboardInterrupt:
        conversation.end()
        terminal.say("[stopped; what was shown is kept]")
        if not interactive:
            raise
        return False
    except (StoreError, UnrecoverableError):
        conversation.end()
        raise
    except Exception as error:  # outermost frame of a run: a loop's own error ends the run only
        if terminal.is_lost:
            raise
        conversation.end()
        sys.stderr.write(f"perdure: the run failed: {one_line(describe(error))}\n")
        return True
    conversation.end()
    return False


async def _show(agent: DurableAgent, line: str, conversation: Conversation) -> None:
    """Shows a run; if that fails the run has ended, and is kept, before the store can be closed."""
    async with agent.run(line) as run:
        async for event in run:
            conversation.show(event)
