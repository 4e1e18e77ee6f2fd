"""Templates rendered in bounded time and memory.

What a person wrote may loop for ever, or make much out of little. A plain template cannot, and is
rendered here; any other one in a process of its own, under limits of the system.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.server.workflow.template import (
    Named,
    Said,
    TemplateProblem,
    compile_here,
    is_plain,
    render_here,
)

CPU_S = 3
"""What the templates of one call may take of a processor."""

WALL_S = 30.0
"""What they may take on a machine that has other things to do."""

MEMORY_BYTES = 512 << 20

_DETAIL_CHARS = 500
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from perdure.server.workflow.rendering import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class Job(NamedTuple):
    """A template, and the values to render it with; None: it is only compiled."""

    text: str
    values: Mapping[str, Any] | None


def render(text: str, values: Mapping[str, Any]) -> str:
    """What the template makes of these values. May take long: not for the event loop.

    Raises:
        TemplateProblem: it cannot be rendered, makes too much, or takes too long.
        OSError: no process can be started.

    """
    (found,) = render_all([Job(text, values)])
    if isinstance(found, TemplateProblem):
        raise found
    return found


def render_all(jobs: Sequence[Job]) -> list[str | TemplateProblem]:
    """What each template makes, or what is wrong with it; "" for one that is only compiled.

    One that takes too long ends the call: those after it are not looked at, and have "".

    Raises:
        OSError: no process can be started.

    """
    found: list[str | TemplateProblem] = [""] * len(jobs)
    apart: list[int] = []
    for n, job in enumerate(jobs):
        try:
            if is_plain(job.text):
                found[n] = _run(job)
            else:
                apart.append(n)
        except TemplateProblem as problem:
            found[n] = problem
    if apart:
        for n, result in zip(apart, _run_apart([jobs[n] for n in apart]), strict=False):
            found[n] = result
    return found


def _run(job: Job) -> str:
    if job.values is None:
        compile_here(job.text)
        return ""
    return render_here(job.text, job.values)


def _run_apart(jobs: Sequence[Job]) -> list[str | TemplateProblem]:
    asked = "".join(
        json.dumps([job.text, None if job.values is None else _packed(job.values)]) + "\n"
        for job in jobs
    )
    command = [sys.executable, "-I", "-c", _START, json.dumps(sys.path)]
    try:
        child = subprocess.run(
            [*command, str(CPU_S), str(MEMORY_BYTES)],
            input=asked.encode(),
            capture_output=True,
            env={},
            timeout=WALL_S,
            start_new_session=True,
            check=False,
        )
        written, code = child.stdout, child.returncode
    except subprocess.TimeoutExpired as error:
        written, code = error.stdout or b"", None
    found = [
        _result(json.loads(line))
        for line in written.splitlines(keepends=True)
        if line[-1:] == b"\n"
    ]
    if len(found) < len(jobs):
        found.append(_ended(code))
    return found


def _ended(code: int | None) -> TemplateProblem:
    limits = f"{CPU_S} s of computing and {MEMORY_BYTES >> 20} MB"
    how = "" if code is None or code < 0 else f" (exit status {code})"
    return TemplateProblem(None, f"the template was ended: it may take {limits}{how}")


def _result(value: Any) -> str | TemplateProblem:
    match value:
        case ["made", str() as made]:
            return made
        case ["problem", line, detail]:
            return TemplateProblem(line, str(detail))
        case _:
            raise ValueError(f"a process that renders wrote {str(value)[:80]!r}")


def serve(cpu_s: int, memory_bytes: int) -> None:
    """Renders what standard input asks for, in a process of its own, and ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # a system without these limits: whoever waits ends it in time
    for line in _lines():
        text, packed = json.loads(line)
        try:
            values = None if packed is None else {k: _unpacked(v) for k, v in packed.items()}
            result: list[Any] = ["made", _run(Job(text, values))]
        except TemplateProblem as problem:
            result = ["problem", problem.line, _cut(problem.detail)]
        except MemoryError:
            result = ["problem", None, f"it takes more than {memory_bytes >> 20} MB of memory"]
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _lines() -> Iterable[str]:
    return sys.stdin.buffer.read().decode().splitlines()


def _cut(detail: str) -> str:
    return detail if len(detail) <= _DETAIL_CHARS else detail[: _DETAIL_CHARS - 1] + "…"


def _packed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _pack(each) for name, each in values.items()}


def _pack(value: Any) -> list[Any]:
    if isinstance(value, Said):
        return ["said", dict(_items(value))]
    if isinstance(value, Named):
        return ["named", {name: _pack(each) for name, each in _items(value)}]
    return ["value", value]


def _items(named: Named) -> Iterable[tuple[str, Any]]:
    return ((name, named[name]) for name in named)


def _unpacked(packed: list[Any]) -> Any:
    kind, value = packed
    if kind == "said":
        return Said(value)
    if kind == "named":
        return Named({name: _unpacked(each) for name, each in value.items()})
    return value
