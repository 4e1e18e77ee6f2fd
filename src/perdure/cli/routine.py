"""`perdure routine`: schedules of a running server that send messages into sessions."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from perdure.cli.remote import Remote, add_server_to, segment
from perdure.cli.terminal import Terminal, one_line
from perdure.errors import ConfigurationError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)")
_ROUTINES = "/v1/routines"
_SHOWN_RUNS = 10
_MOST = 500


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("routine", help="schedules that send messages, of a running server")
    actions = verb.add_subparsers(metavar="ACTION", required=True)
    _add_add(actions)
    _add_change(actions)
    named: Sequence[tuple[str, str, Callable[..., int]]] = (
        ("show", "what it does, when it is due next, and its last runs", _show),
        ("pause", "let it rest; what would be due meanwhile is not", _pause),
        ("resume", "let it go on from now on", _resume),
        ("run", "start a run now", _run),
        ("rm", "delete it and its run history", _remove),
    )
    listed = actions.add_parser("ls", help="list the routines of the server")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    add_server_to(listed)
    listed.set_defaults(run=_list)
    for name, explained, run in named:
        action = actions.add_parser(name, help=explained)
        action.add_argument("routine_id", metavar="NAME")
        if name == "show":
            action.add_argument("--json", action="store_true", help="as the API has it")
        add_server_to(action)
        action.set_defaults(run=run)
    following = actions.add_parser("next", help="the next due times of a schedule; stores nothing")
    _add_schedule(following)
    add_server_to(following)
    following.set_defaults(run=_next)


def _add_schedule(action: argparse.ArgumentParser, *, required: bool = True) -> None:
    when = action.add_mutually_exclusive_group(required=required)
    when.add_argument("--cron", metavar="EXPRESSION", help="five fields, as in crontab(5)")
    when.add_argument("--every", metavar="SPAN", help="90s, 15m, 2h, 1d")
    when.add_argument("--at", metavar="TIME", help="once: 2026-12-24T18:00, +01:00 if need be")
    action.add_argument(
        "--zone", metavar="ZONE", help="the IANA time zone of --cron and --at (UTC)"
    )


def _add_add(actions: Any) -> None:
    add = actions.add_parser("add", help="make a routine")
    add.add_argument("routine_id", metavar="NAME")
    add.add_argument("text", metavar="TEXT", help="the message that it sends; -: standard input")
    _add_schedule(add)
    _add_how(add)
    add.add_argument("--paused", action="store_true", help="let it rest at first")
    add_server_to(add)
    add.set_defaults(run=_add)


def _add_change(actions: Any) -> None:
    change = actions.add_parser("change", help="change what is given, from now on")
    change.add_argument("routine_id", metavar="NAME")
    change.add_argument("--text", metavar="TEXT", help="the message; -: standard input")
    _add_schedule(change, required=False)
    _add_how(change)
    add_server_to(change)
    change.set_defaults(run=_change)


def _add_how(add: argparse.ArgumentParser) -> None:
    add.add_argument("--session", metavar="ID", help="where it sends it; made if need be (NAME)")
    add.add_argument("--new-session", action="store_true", help="a new session for each run")
    add.add_argument("--fork-of", metavar="ID", help="with --new-session: forks of this one")
    add.add_argument("--loop", metavar="NAME", help="the loop of the sessions that it makes")
    add.add_argument(
        "--after-outage",
        choices=("run_once", "skip"),
        help="what becomes of what was due while the server was down (run_once)",
    )
    add.add_argument(
        "--overlap",
        choices=("skip", "queue", "interrupt"),
        help="what becomes of what is due while the run before goes on (skip)",
    )
    add.add_argument("--deadline", metavar="SPAN", help="a run that is later is skipped")
    add.add_argument("--jitter", metavar="SPAN", help="start up to so much later")
    add.add_argument(
        "--resends", metavar="NUMBER", type=int, help="send an interrupted turn again so often (0)"
    )


def _span(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"--{name} is a span of time like 90s, 15m, 2h or 1d, not {text!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


def _moment(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ConfigurationError(f"--at is a time like 2026-12-24T18:00, not {text!r}") from error


def _schedule(options: argparse.Namespace) -> dict[str, Any]:
    wanted = {
        "cron": options.cron,
        "every_s": _span(options.every, "every"),
        "at": _moment(options.at),
        "zone": options.zone,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of a routine, by the names that the API has."""
    wanted = {
        "text": sys.stdin.read() if options.text == "-" else options.text,
        "session_id": options.session,
        "new_session": options.new_session or None,
        "fork_of": options.fork_of,
        "loop": options.loop,
        "after_outage": options.after_outage,
        "overlap": options.overlap,
        "deadline_s": _span(options.deadline, "deadline"),
        "jitter_s": _span(options.jitter, "jitter"),
        "resends": options.resends,
    }
    return {key: value for key, value in wanted.items() if value is not None} | _schedule(options)


def _add(options: argparse.Namespace, terminal: Terminal) -> int:
    body = {"routine_id": options.routine_id} | _given(options)
    if options.paused:
        body["status"] = "paused"
    _say(Remote(options.server).ask("POST", _ROUTINES, body), terminal)
    return 0


def _change(options: argparse.Namespace, terminal: Terminal) -> int:
    wanted = _given(options)
    if not wanted:
        raise ConfigurationError("there is nothing to change: perdure routine change --help")
    place = f"{_ROUTINES}/{segment(options.routine_id)}"
    _say(Remote(options.server).ask("PATCH", place, wanted), terminal)
    return 0


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    remote, after, rows = Remote(options.server), "", []
    while True:
        page = remote.ask("GET", f"{_ROUTINES}?limit={_MOST}{after}")
        rows += page["routines"]
        if page["next"] is None:
            break
        after = f"&after={segment(page['next'])}"
    if options.json:
        for row in rows:
            terminal.say(json.dumps(row, ensure_ascii=terminal.is_terminal))
        return 0
    if not rows:
        terminal.say("no routines")
        return 0
    table = [("ROUTINE", "STATUS", "NEXT", "SCHEDULE")]
    table += [
        (one_line(row["routine_id"]), row["status"], _next_of(row), one_line(row["says"]))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in table) for column in range(3)]
    for name, status, due, says in table:
        terminal.say(f"{name:<{widths[0]}}  {status:<{widths[1]}}  {due:<{widths[2]}}  {says}")
    return 0


def _next_of(look: dict[str, Any]) -> str:
    return _time(look["next_due"][0], look["zone"]) if look["next_due"] else "-"


def _time(text: str, zone: str) -> str:
    """A time by the clocks of a routine's zone, with what these differ from UTC."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # it costs a start 30 ms

    stamp = datetime.fromisoformat(text)
    with suppress(ZoneInfoNotFoundError, ValueError, OSError, OverflowError):
        stamp = stamp.astimezone(ZoneInfo(zone))
    return stamp.isoformat(" ", "seconds")


def _say(look: dict[str, Any], terminal: Terminal) -> None:
    where = "a new session for each run" if look["new_session"] else f"session {look['session_id']}"
    terminal.say(f"{one_line(look['routine_id'])}: {look['status']}")
    if look["why"]:
        terminal.say(f"  {one_line(look['why'])}")
    terminal.say(f"  {one_line(look['says'])}, into {one_line(where)}")
    for due in look["next_due"]:
        terminal.say(f"  due {_time(due, look['zone'])}")


def _show(options: argparse.Namespace, terminal: Terminal) -> int:
    remote = Remote(options.server)
    place = f"{_ROUTINES}/{segment(options.routine_id)}"
    look = remote.ask("GET", place)
    page = remote.ask("GET", f"{place}/runs?limit={_SHOWN_RUNS}")
    if options.json:
        terminal.say(json.dumps(look | {"runs": page["runs"]}, ensure_ascii=terminal.is_terminal))
        return 0
    _say(look, terminal)
    for run in page["runs"]:
        _say_run(run, look["zone"], terminal)
    return 0


def _say_run(run: dict[str, Any], zone: str, terminal: Terminal) -> None:
    line = f"{_time(run['due_at'], zone)}  {run['status']}"
    if run["until_at"]:
        count = "many" if run["count"] is None else run["count"]
        line += f": {count} due times, until {_time(run['until_at'], zone)}"
    if run["turn_id"]:
        line += f"  session {run['session_id']}, turn {run['turn_id']}"
    terminal.say("  " + one_line(line + (f"  ({run['why']})" if run["why"] else "")))


def _switch(options: argparse.Namespace, terminal: Terminal, status: str) -> int:
    place = f"{_ROUTINES}/{segment(options.routine_id)}"
    _say(Remote(options.server).ask("PATCH", place, {"status": status}), terminal)
    return 0


def _pause(options: argparse.Namespace, terminal: Terminal) -> int:
    return _switch(options, terminal, "paused")


def _resume(options: argparse.Namespace, terminal: Terminal) -> int:
    return _switch(options, terminal, "enabled")


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    remote, place = Remote(options.server), f"{_ROUTINES}/{segment(options.routine_id)}"
    run = remote.ask("POST", f"{place}/run", {})
    _say_run(run, remote.ask("GET", place)["zone"], terminal)
    return 1 if run["status"] == "failed" else 0


def _remove(options: argparse.Namespace, terminal: Terminal) -> int:
    Remote(options.server).ask("DELETE", f"{_ROUTINES}/{segment(options.routine_id)}")
    terminal.say(f"{one_line(options.routine_id)}: deleted")
    return 0


def _next(options: argparse.Namespace, terminal: Terminal) -> int:
    found = Remote(options.server).ask("POST", f"{_ROUTINES}/preview", _schedule(options))
    terminal.say(one_line(found["says"]))
    for local in found["local"]:
        terminal.say(f"  {local.replace('T', ' ')}")
    return 0
