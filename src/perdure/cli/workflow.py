"""`perdure workflow`: ordered steps that a running server sees through, whatever crashes."""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from perdure.cli.remote import Remote, UnreachableError, add_server_to, segment
from perdure.cli.render import local_time
from perdure.cli.terminal import Terminal, one_line
from perdure.errors import ConfigurationError, InvalidWorkflowError, PerdureError

_WORKFLOWS = "/v1/workflows"
_MOST = 500
_PATIENCE_S = 600.0
"""How long `run` waits for a server that went away in the middle."""

_USAGE = 2
_EXITS = {"completed": 0, "failed": 1, "cancelled": 3}


def add_to(verbs: Any) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("workflow", help="ordered steps, of a running server")
    actions = verb.add_subparsers(metavar="ACTION", required=True)
    run = _add(actions, "run", _run, "start one, show its progress, and exit with its outcome")
    _add_file(run)
    run.add_argument("--id", metavar="NAME", dest="workflow_id", help="its id (made up)")
    run.add_argument("--detach", action="store_true", help="start it, say its id, and leave")
    check = _add(actions, "check", _check, "say what is wrong with a file; runs nothing")
    _add_file(check)
    _add_json(_add(actions, "ls", _list, "list the workflows of the server"))
    named: Sequence[tuple[str, Callable[..., int], str]] = (
        ("show", _show, "its steps, and the attempts of each"),
        ("follow", _follow_named, "show its progress, and exit with its outcome"),
        ("pause", _pause, "start no further attempt; those that run go on"),
        ("resume", _resume, "go on where it was paused"),
        ("cancel", _cancel, "stop the turns that run, and end it; undoes nothing"),
        ("rm", _remove, "delete one that is over, and its history"),
    )
    for name, function, explained in named:
        action = _add(actions, name, function, explained)
        action.add_argument("workflow_id", metavar="NAME")
        if name == "show":
            _add_json(action)
        if name in {"pause", "cancel"}:
            action.add_argument("--why", metavar="TEXT", help="why, for people")
    of_step: Sequence[tuple[str, Callable[..., int], str]] = (
        ("retry", _retry, "run a step again, and what follows; a retry is not a rollback"),
        ("skip", _skip, "pass a step over"),
        ("approve", _approve, "let a step start that waits for it"),
    )
    for name, function, explained in of_step:
        action = _add(actions, name, function, explained)
        action.add_argument("workflow_id", metavar="NAME")
        action.add_argument("step", metavar="STEP")
        if name != "retry":
            needed = name == "skip"
            action.add_argument("--reason", metavar="TEXT", required=needed, help="for people")
        if name == "approve":
            action.add_argument("--reject", action="store_true", help="the step fails instead")


def _add(
    actions: Any, name: str, run: Callable[..., int], explained: str
) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(name, help=explained)
    add_server_to(action)
    action.set_defaults(run=run)
    return action


def _add_json(action: argparse.ArgumentParser) -> None:
    action.add_argument("--json", action="store_true", help="as the API has it")


def _add_file(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "file", metavar="FILE", help="YAML; or Python that makes a `workflow`; -: standard input"
    )
    action.add_argument(
        "--input",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="what the workflow is given: JSON, or else text; repeated",
    )


def _time(text: str) -> str:
    return local_time(datetime.fromisoformat(text))


def _inputs(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in options.input:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigurationError(f"--input is NAME=VALUE, not {each!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _body(options: argparse.Namespace) -> dict[str, Any]:
    if options.file.endswith(".py"):
        import msgspec

        body: dict[str, Any] = {"workflow": msgspec.to_builtins(_from_python(options.file))}
    else:
        body = {"yaml": _text(options.file)}
    return body | {"inputs": _inputs(options)}


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{name}: this is not YAML: it is not UTF-8") from error
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be read: {error.strerror}") from error


def _from_python(name: str) -> Any:
    from perdure.workflow import Workflow

    try:
        made = runpy.run_path(name).get("workflow")
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be read: {error}") from error
    except (Exception, SystemExit) as error:  # the edge of somebody else's file
        raise ConfigurationError(f"{name} fails: {error!r}") from error
    if not isinstance(made, Workflow):
        raise ConfigurationError(
            f"{name} makes no workflow: workflow = perdure.workflow.Workflow(…)"
        )
    return made


def _refuse(options: argparse.Namespace, error: PerdureError) -> int:
    """Says what is wrong, a line for each, with the file before its line."""
    for line in filter(str.strip, str(error).split("\n")):
        sys.stderr.write(f"perdure: {one_line(f'{options.file}: {line}')}\n")
    return _USAGE


def _check(options: argparse.Namespace, terminal: Terminal) -> int:
    try:
        if options.server is not None:
            plan = Remote(options.server).ask("POST", f"{_WORKFLOWS}/check", _body(options))
            found = [(each["step"], each["needs"], each["undoes"]) for each in plan["steps"]]
        else:
            found = _check_here(options)
    except (ConfigurationError, InvalidWorkflowError) as error:
        return _refuse(options, error)
    for step, needs, undoes in found:
        after = f"  after {','.join(needs)}" if needs else ""
        terminal.say(one_line(f"{step}{after}{f'  {_only_if(undoes)}' if undoes else ''}"))
    return 0


def _check_here(
    options: argparse.Namespace,
) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    from perdure.server.workflow.definition import plan_workflow, read_workflow

    if options.file.endswith(".py"):
        plan = plan_workflow(_from_python(options.file), _inputs(options))
    else:
        plan = read_workflow(_text(options.file), _inputs(options))
    steps, undoes = plan.workflow.steps, plan.undoes
    return [(each.id, plan.needs[each.id], undoes.get(each.id, ())) for each in steps]


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    remote = Remote(options.server)
    body = _body(options)
    if options.workflow_id is not None:
        body["workflow_id"] = options.workflow_id
    try:
        look = remote.ask("POST", _WORKFLOWS, body)
    except ConfigurationError as error:
        return _refuse(options, error)
    terminal.say(one_line(f"workflow {look['workflow_id']}: {look['name']}"))
    return 0 if options.detach else _follow(remote, look["workflow_id"], terminal)


def _follow_named(options: argparse.Namespace, terminal: Terminal) -> int:
    return _follow(Remote(options.server), options.workflow_id, terminal)


def _follow(remote: Remote, workflow_id: str, terminal: Terminal) -> int:
    """Shows what is new until the workflow is over; a server that goes away is waited for."""
    shown: set[tuple[Any, ...]] = set()
    try:
        for look in _looks(remote, workflow_id, terminal):
            _say_news(look, shown, terminal)
            if look["status"] in _EXITS:
                why = f": {look['why']}" if look["why"] else ""
                terminal.say(one_line(f"{look['status']}{why}"))
                return _EXITS[look["status"]]
    except KeyboardInterrupt:
        terminal.say(
            one_line(f"it goes on without you: perdure workflow follow {workflow_id}, or cancel it")
        )
        return 130
    raise PerdureError(f"workflow {workflow_id!r} is no longer there")


def _looks(remote: Remote, workflow_id: str, terminal: Terminal) -> Iterator[dict[str, Any]]:
    """A look now, and one after each change, told by the server's stream."""
    place = f"{_WORKFLOWS}/{segment(workflow_id)}"
    lost_at: float | None = None
    while True:
        try:
            for name, data in remote.events("/v1/stream?listing=1"):
                is_ours = name == "changed" and data == {"kind": "workflow", "id": workflow_id}
                if name == "open" or is_ours:
                    yield remote.ask("GET", place)
                    lost_at = None
        except UnreachableError as error:
            now = time.monotonic()
            if lost_at is None:
                terminal.say(one_line(f"waiting for the server: {error}"))
            lost_at = now if lost_at is None else lost_at
            if now - lost_at > _PATIENCE_S:
                raise
        time.sleep(0.5)


def _say_news(look: dict[str, Any], shown: set[tuple[Any, ...]], terminal: Terminal) -> None:
    """Says what was not shown yet, in the order in which it happened."""
    news: list[tuple[int, str]] = []
    for step in look["steps"]:
        name = step["step"]
        lines = [each for attempt in step["attempts"] for each in _lines(name, attempt)]
        for answer in step["answers"]:
            why = f": {answer['reason']}" if answer["reason"] else ""
            lines.append((answer["seq"], f"{name}  {answer['answer']}{why}"))
        news += [each for each in lines if (name, *each) not in shown]
        shown.update((name, *each) for each in lines)
    for _, line in sorted(news, key=itemgetter(0)):
        terminal.say(one_line(line))
    for step in look["steps"]:
        name = step["step"]
        if step["status"] == "waiting" and (name, "waiting", len(step["answers"])) not in shown:
            shown.add((name, "waiting", len(step["answers"])))
            terminal.say(
                one_line(
                    f"{name}  waits for an approval: perdure workflow approve "
                    f"{look['workflow_id']} {name}"
                )
            )
    was_paused, is_paused = ("paused",) in shown, look["status"] == "paused"
    if is_paused and not was_paused:
        shown.add(("paused",))
        terminal.say(one_line(f"paused{': ' + look['why'] if look['why'] else ''}"))
    elif was_paused and not is_paused:
        shown.remove(("paused",))
        terminal.say("it is no longer paused")


def _lines(name: str, attempt: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """What is said of an attempt, each with its `seq` in the workflow's journal."""
    number = attempt["attempt"]
    where = f"  session {attempt['session_id']}" if attempt["session_id"] else ""
    yield attempt["started_seq"], f"{name}  attempt {number} started{where}"
    if attempt["check"] is not None:
        said = "passed" if attempt["check"]["passed"] else "did not pass"
        yield attempt["check"]["seq"], f"{name}  attempt {number} check {said}"
    if attempt["reason"] is not None:
        why = f": {attempt['cause']}" if attempt["cause"] else _last_call(attempt)
        again = ""
        if attempt["retry_at"] is not None:
            again = f"; again at {_time(attempt['retry_at'])} (a retry is not a rollback)"
        yield attempt["ended_seq"], f"{name}  attempt {number} {attempt['reason']}{why}{again}"


def _last_call(attempt: dict[str, Any]) -> str:
    """A turn completes although its last tool call failed; whoever looks should see it."""
    calls = (attempt["seen"] or {}).get("calls", ())
    is_failed = attempt["reason"] == "completed" and calls and calls[-1]["state"] == "error"
    return ", although its last tool call failed" if is_failed else ""


def _list(options: argparse.Namespace, terminal: Terminal) -> int:
    remote, after, rows = Remote(options.server), "", []
    while True:
        page = remote.ask("GET", f"{_WORKFLOWS}?limit={_MOST}{after}")
        rows += page["workflows"]
        if page["next"] is None:
            break
        after = f"&after={segment(page['next'])}"
    if options.json:
        for row in rows:
            terminal.write(json.dumps(row, ensure_ascii=terminal.is_terminal) + "\n")
        return 0
    if not rows:
        terminal.say("no workflows")
        return 0
    table = [("WORKFLOW", "STATUS", "DONE", "STARTED", "NAME"), *map(_row, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    for *columns, last in table:
        padded = (f"{each:<{width}}" for each, width in zip(columns, widths, strict=True))
        terminal.say("  ".join((*padded, last)))
    return 0


def _row(brief: dict[str, Any]) -> tuple[str, str, str, str, str]:
    why = f"  ({brief['why']})" if brief["why"] else ""
    return (
        one_line(brief["workflow_id"]),
        brief["status"],
        f"{brief['done']}/{brief['steps']}",
        _time(brief["created_at"]),
        one_line(brief["name"] + why),
    )


def _show(options: argparse.Namespace, terminal: Terminal) -> int:
    look = Remote(options.server).ask("GET", f"{_WORKFLOWS}/{segment(options.workflow_id)}")
    if options.json:
        terminal.write(json.dumps(look, ensure_ascii=terminal.is_terminal) + "\n")
    else:
        _say(look, terminal)
    return 0


def _say(look: dict[str, Any], terminal: Terminal) -> None:
    why = f" ({look['why']})" if look["why"] else ""
    terminal.say(one_line(f"{look['workflow_id']}: {look['status']}{why}"))
    for step in look["steps"]:
        needs = f", after {', '.join(step['needs'])}" if step["needs"] else ""
        terminal.say("  " + one_line(f"{step['step']}: {_status_of(step, look)}{needs}"))
        for attempt in step["attempts"]:
            for _, line in _lines(step["step"], attempt):
                terminal.say("    " + one_line(line))
            for call in (attempt["seen"] or {}).get("calls", ()):
                said = f"seen: {call['name']} {call['arguments']} → {call['state']}"
                terminal.say("      " + one_line(said))


def _status_of(step: dict[str, Any], look: dict[str, Any]) -> str:
    if not step["undoes"] or step["status"] != "pending":
        return str(step["status"])
    return "not needed" if look["status"] in _EXITS else _only_if(step["undoes"])


def _only_if(undoes: Sequence[str]) -> str:
    return f"only if {' or '.join(undoes)} {'fails' if len(undoes) == 1 else 'fail'}"


def _tell(options: argparse.Namespace, terminal: Terminal, what: str, **body: Any) -> int:
    place = f"{_WORKFLOWS}/{segment(options.workflow_id)}/{what}"
    given = {key: value for key, value in body.items() if value is not None}
    _say(Remote(options.server).ask("POST", place, given), terminal)
    return 0


def _pause(options: argparse.Namespace, terminal: Terminal) -> int:
    return _tell(options, terminal, "pause", why=options.why)


def _resume(options: argparse.Namespace, terminal: Terminal) -> int:
    return _tell(options, terminal, "resume")


def _cancel(options: argparse.Namespace, terminal: Terminal) -> int:
    return _tell(options, terminal, "cancel", why=options.why)


def _retry(options: argparse.Namespace, terminal: Terminal) -> int:
    return _tell(options, terminal, f"steps/{segment(options.step)}/retry")


def _skip(options: argparse.Namespace, terminal: Terminal) -> int:
    place = f"steps/{segment(options.step)}/skip"
    return _tell(options, terminal, place, reason=options.reason)


def _approve(options: argparse.Namespace, terminal: Terminal) -> int:
    place = f"steps/{segment(options.step)}/approve"
    approve = not options.reject
    return _tell(options, terminal, place, approve=approve, reason=options.reason)


def _remove(options: argparse.Namespace, terminal: Terminal) -> int:
    Remote(options.server).ask("DELETE", f"{_WORKFLOWS}/{segment(options.workflow_id)}")
    terminal.say(f"{one_line(options.workflow_id)}: deleted")
    return 0
