"""What a workflow is to do, read and checked before anything of it runs.

Whatever is wrong is found here: what is not YAML, a field that is none, an unknown step, a cycle,
an input that is missing, a template that cannot be rendered. All that is wrong is told at once, by
line and field; only what cannot be read at all hides what follows it.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec
from msgspec import Struct

from perdure.encoding import encode
from perdure.errors import (
    ConfigurationError,
    InvalidWorkflowError,
    MissingExtraError,
    WorkflowProblem,
)
from perdure.fact import WorkflowDefined
from perdure.server.keeping.identity import id_problem
from perdure.server.workflow.rendering import Job, render_all
from perdure.server.workflow.template import OUTPUTS, Named, Takes, TemplateProblem, take
from perdure.server.workflow.yaml_text import Lines, Path, field_of, line_of, read_yaml
from perdure.workflow import Step, Workflow

MAX_BYTES = 512 * 1024
"""Of a definition and its inputs as they are stored."""

MOST_BITS = 1024
"""Of an input that is an integer."""

MOST_PROBLEMS = 100
"""How many problems are told at once."""

PROMPT_NAMES = frozenset({"inputs", "steps", "workflow"})
RETRY_NAMES = PROMPT_NAMES | {"prompt", "notice", "earlier", "attempt", "attempts"}
UNDO_NAMES = PROMPT_NAMES | {"failed"}

_MISSING = re.compile(r"missing required field `(.+?)`")
_UNKNOWN = re.compile(r"unknown field `(.+?)`")
_AT = re.compile(r" - at `(\$.*?)`$")
_SEGMENT = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Plan(Struct, frozen=True):
    """A workflow that was checked. `needs` has the steps that each step waits for.

    `undoes` has, for each compensation step, the steps that name it; it is in nobody's order.
    """

    workflow: Workflow
    needs: Mapping[str, tuple[str, ...]]
    inputs: Mapping[str, Any]
    source: str | None = None

    @property
    def undoes(self) -> Mapping[str, tuple[str, ...]]:
        """The compensation steps, each with the steps whose failure it is for."""
        return compensations(self.workflow)

    def following(self, step_id: str) -> tuple[str, ...]:
        """The steps that wait for this one, directly or not, in order."""
        found = {step_id}
        grew = True
        while grew:
            more = {each for each, needs in self.needs.items() if found & set(needs)} - found
            found |= more
            grew = bool(more)
        return tuple(each.id for each in self.workflow.steps if each.id in found - {step_id})

    def as_fact(self) -> WorkflowDefined:
        """The fact that stores it."""
        return WorkflowDefined(
            definition=msgspec.json.decode(encode(self.workflow)),
            needs={name: list(needs) for name, needs in self.needs.items()},
            inputs=dict(self.inputs),
            source=self.source,
        )


def plan_of(fact: WorkflowDefined) -> Plan | None:
    """The plan that a fact stores; None where a newer version wrote what this cannot run."""
    try:
        workflow = msgspec.convert(fact.definition, Workflow)
        needs = msgspec.convert(fact.needs, dict[str, tuple[str, ...]])
    except msgspec.ValidationError:
        return None
    return Plan(workflow, needs, fact.inputs or {}, fact.source)


def compensations(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The steps that others name to compensate them, each with those others."""
    found: dict[str, tuple[str, ...]] = {}
    for step in workflow.steps:
        if step.compensate is not None:
            found[step.compensate] = (*found.get(step.compensate, ()), step.id)
    return found


def check_workflow_id(workflow_id: str) -> str:
    """Returns the id unchanged if a workflow can have it.

    Raises:
        InvalidWorkflowError: it breaks the rules of session ids, or has more than 200 bytes.

    """
    if (problem := id_problem(workflow_id)) is not None:
        raise _invalid(None, "workflow_id", problem)
    return workflow_id


def read_workflow(text: str, inputs: Mapping[str, Any]) -> Plan:
    """The workflow of a YAML text, checked with these inputs.

    Raises:
        InvalidWorkflowError: says every problem, each with its line and field.

    """
    value, lines = read_yaml(text)
    if isinstance(value, dict) and isinstance(declared := value.get("inputs"), dict):
        value = value | {"inputs": {n: {} if v is None else v for n, v in declared.items()}}
    return plan_workflow(convert(value, lines), inputs, lines=lines, source=text)


def convert(value: Any, lines: Lines) -> Workflow:
    """The workflow of plain values.

    Raises:
        InvalidWorkflowError: a field is missing, unknown, or of the wrong kind.

    """
    try:
        return msgspec.convert(value, Workflow)
    except msgspec.ValidationError as error:
        said = str(error)
        at = _AT.search(said)
        path = _path_of(at[1]) if at else ()
        detail = _in_words(said[: at.start()] if at else said)
        known = ", ".join(Step.__struct_fields__ if "steps" in path else Workflow.__struct_fields__)
        if unknown := _UNKNOWN.search(detail):
            path = (*path, unknown[1])
            detail += "" if len(path) not in {1, 3} else f"; there are {known}"
        elif missing := _MISSING.search(detail):
            raise _invalid(
                line_of(lines, path), field_of((*path, missing[1])), "it has to be given"
            ) from error
        raise _invalid(line_of(lines, path), field_of(path), detail) from error
    except RecursionError as error:
        raise _invalid(None, "", "it is nested too deeply") from error


def _in_words(detail: str) -> str:
    if "matching regex" in detail:
        return "a name has letters, digits, _ and -, at most 64, and begins with no digit and no -"
    if re.fullmatch(r"Expected `str.*`, got `(int|float|bool)`", detail):
        return f"{detail}: put it into quotes"
    return detail


def _path_of(written: str) -> Path:
    path: list[str | int] = []
    for name, index in _SEGMENT.findall(written):
        if index == "...":  # a value under a key that is not told
            break
        path.append(int(index) if index else name)
    return tuple(path)


def plan_workflow(
    workflow: Workflow,
    inputs: Mapping[str, Any],
    *,
    lines: Lines | None = None,
    source: str | None = None,
) -> Plan:
    """The plan of a workflow with these inputs.

    Raises:
        InvalidWorkflowError: says every problem.

    """
    return _Checking(workflow, lines or {}).plan(inputs, source)


class _Checking:
    def __init__(self, workflow: Workflow, lines: Lines) -> None:
        self._workflow = workflow
        self._lines = lines
        self._problems: dict[WorkflowProblem, None] = {}
        self._templates: list[tuple[Path, str, Takes]] = []
        self._undoes = compensations(workflow)
        self._ids = [step.id for step in workflow.steps]

    def plan(self, inputs: Mapping[str, Any], source: str | None) -> Plan:
        given = self._inputs(inputs)
        takes = [self._step(n, step) for n, step in enumerate(self._workflow.steps)]
        self._sessions()
        needs: dict[str, tuple[str, ...]] = {}
        for n, step in enumerate(self._workflow.steps):
            if step.id not in needs:
                needs[step.id] = self._needs(n, step, takes[n])
        if not self._problems:
            self._order(needs)
        self._render(given)
        plan = Plan(self._workflow, needs, given, source)
        if not self._problems and len(encode(plan)) > MAX_BYTES:
            self._say((), f"with its inputs it has more than {MAX_BYTES} bytes")
        if self._problems:
            raise InvalidWorkflowError(self._told())
        return plan

    def _say(self, path: Path, detail: str, *, inner_line: int | None = None) -> None:
        line = line_of(self._lines, path)
        if inner_line is not None and inner_line > 1:
            detail = f"{detail} (in line {inner_line} of the template)"
        self._problems[WorkflowProblem(line, field_of(path), detail)] = None

    def _told(self) -> list[WorkflowProblem]:
        told = list(self._problems)[:MOST_PROBLEMS]
        if more := len(self._problems) - len(told):
            told.append(WorkflowProblem(None, "", f"and {more} problems more"))
        return told

    def _inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        declared = self._workflow.inputs
        for name in inputs:
            if name not in declared:
                there = ", ".join(declared) or "none"
                self._say(("inputs", name), f"there is no input {name!r}; there are: {there}")
        given = {
            name: each.default
            for name, each in declared.items()
            if each.default is not msgspec.UNSET
        }
        given |= {name: value for name, value in inputs.items() if name in declared}
        for name, value in given.items():
            if (wrong := _no_json(value)) is not None:
                self._say(("inputs", name), wrong)
        for name in declared:
            if name not in given:
                self._say(
                    ("inputs", name), f"the input {name!r} is missing: give it, or write a default"
                )
        return given

    def _step(self, n: int, step: Step) -> Takes:
        path: Path = ("steps", n)
        if self._ids.index(step.id) != n:
            self._say((*path, "id"), f"there is another step {step.id!r} before it")
        is_undo = step.id in self._undoes
        takes = self._take((*path, "prompt"), step.prompt, UNDO_NAMES if is_undo else PROMPT_NAMES)
        if step.retry is not None and step.retry.prompt is not None:
            names = RETRY_NAMES | (UNDO_NAMES if is_undo else PROMPT_NAMES)
            more = self._take((*path, "retry", "prompt"), step.retry.prompt, names)
            takes = Takes(takes.inputs | more.inputs, takes.steps | more.steps)
        if n == 0 and self._workflow.retry is not None and self._workflow.retry.prompt is not None:
            alike = self._take(("retry", "prompt"), self._workflow.retry.prompt, RETRY_NAMES)
            if alike.steps:
                self._say(("retry", "prompt"), "a prompt for all steps takes nothing from steps")
        if step.check is not None:
            check = step.check
            if (check.command is None) == (check.function is None):
                self._say((*path, "check"), 'a check has either "command" or "function"')
            elif check.command is not None and not check.command.strip():
                self._say((*path, "check", "command"), "an empty command passes always")
        if step.compensate is not None:
            self._check_compensation((*path, "compensate"), step)
        if is_undo and step.after is not None:
            self._say((*path, "after"), "a step that compensates others is in nobody's order")
        return takes

    def _check_compensation(self, path: Path, step: Step) -> None:
        if step.compensate not in self._ids:
            self._say(path, self._no_step(str(step.compensate)))
        elif step.compensate == step.id or step.id in self._undoes:
            self._say(path, "a step that compensates is not compensated itself")

    def _take(self, path: Path, text: str, names: frozenset[str]) -> Takes:
        if not text.strip():
            self._say(path, "the prompt is empty")
        try:
            takes = take(text, names)
        except TemplateProblem as problem:
            self._say(path, problem.detail, inner_line=problem.line)
            return Takes(frozenset(), frozenset())
        self._templates.append((path, text, takes))
        for name in sorted(takes.inputs - self._workflow.inputs.keys()):
            there = ", ".join(self._workflow.inputs) or "none"
            self._say(path, f"there is no input {name!r}; there are: {there}")
        for name, what in sorted(takes.steps, key=str):
            if name not in self._ids:
                self._say(path, self._no_step(name))
            elif what is not None and what not in OUTPUTS:
                self._say(path, f"a step has no {what!r}; it has {', '.join(sorted(OUTPUTS))}")
        return takes

    def _no_step(self, name: str) -> str:
        hint = ""
        if any(each.startswith(f"{name}-") for each in self._ids):
            hint = ' (a name with "-" is written steps["…"])'
        return f"there is no step {name!r}; there are {', '.join(self._ids)}{hint}"

    def _needs(self, n: int, step: Step, takes: Takes) -> tuple[str, ...]:
        """What the step waits for: what it says, or the step before it; and what it takes from."""
        if step.id in self._undoes:
            return ()
        before = [each.id for each in self._workflow.steps[:n] if each.id not in self._undoes]
        after: Sequence[str] = before[-1:] if step.after is None else step.after
        for m, name in enumerate(after):
            if name not in self._ids:
                self._say(("steps", n, "after", m), self._no_step(name))
        wanted = {*after, *(name for name, _ in takes.steps)} & set(self._ids)
        for name in sorted(wanted & self._undoes.keys()):
            field = "after" if name in after else "prompt"
            self._say(("steps", n, field), f"{name!r} compensates, and is waited for by nobody")
        return tuple(each for each in self._ids if each in wanted)

    def _sessions(self) -> None:
        first: dict[str, Step] = {}
        for n, step in enumerate(self._workflow.steps):
            if step.session is None:
                continue
            known = first.setdefault(step.session, step)
            for field in ("loop", "runtime"):
                if getattr(known, field) != getattr(step, field):
                    self._say(
                        ("steps", n, field),
                        f"the session {step.session!r} is shared with the step {known.id!r}, "
                        f"which has another {field}",
                    )

    def _order(self, needs: Mapping[str, tuple[str, ...]]) -> None:
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1]
            n = max(self._ids.index(name) for name in cycle)
            self._say(
                ("steps", n), f"a cycle: each of {' → '.join(cycle)} has to wait for the one before"
            )

    def _render(self, inputs: Mapping[str, Any]) -> None:
        """Renders what needs no step's output: what fails now would fail then."""
        values = first_values(self._workflow, "id", inputs)
        jobs: list[Job] = []
        for path, text, takes in self._templates:
            is_first = len(path) == 3 and self._ids[int(path[1])] not in self._undoes
            is_whole = is_first and not takes.steps and not self._problems
            jobs.append(Job(text, values if is_whole else None))
        for (path, _, _), job, made in zip(self._templates, jobs, render_all(jobs), strict=True):
            if isinstance(made, TemplateProblem):
                self._say(path, made.detail, inner_line=made.line)
            elif job.values is not None and not made.strip():
                self._say(path, "the prompt is empty")


def _no_json(value: Any) -> str | None:
    """Why a value would not come back from a journal as it went in."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
        elif isinstance(each, float) and not math.isfinite(each):
            return f"{each} is no number that JSON has"
        elif isinstance(each, int) and each.bit_length() > MOST_BITS:
            return "a number is too large: write it as a text"
    return None


def first_values(workflow: Workflow, workflow_id: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What every template can use."""
    return {
        "inputs": Named(inputs),
        "workflow": Named({"id": workflow_id, "name": workflow.name}),
    }


async def check_names(
    plan: Plan,
    *,
    check_loop: Callable[[str], Any],
    check_runtime: Callable[[str], None],
    check_function: Callable[[str], object],
) -> None:
    """Returns if there are the loops, runtimes and check functions that the workflow names.

    Raises:
        InvalidWorkflowError: says each that there is not.

    """
    found: list[tuple[Path, str]] = []
    workflow = plan.workflow
    wanted: list[tuple[Path, str, Callable[[str], Any]]] = []
    parts: list[tuple[Path, Workflow | Step]] = [((), workflow)]
    parts += [(("steps", n), step) for n, step in enumerate(workflow.steps)]
    for path, part in parts:
        if part.loop is not None:
            wanted.append(((*path, "loop"), part.loop, check_loop))
        if part.runtime is not None:
            wanted.append(((*path, "runtime"), part.runtime, check_runtime))
        check = part.check if isinstance(part, Step) else None
        if check is not None and check.function is not None:
            wanted.append(((*path, "check", "function"), check.function, check_function))
    for path, name, look_for in wanted:
        try:
            looked = look_for(name)
            if looked is not None and hasattr(looked, "__await__"):
                await looked
        except (ConfigurationError, MissingExtraError) as error:
            found.append((path, str(error)))
    if found:
        lines: Lines = {}
        if plan.source is not None:
            lines = (await asyncio.to_thread(read_yaml, plan.source))[1]
        problems = [WorkflowProblem(line_of(lines, p), field_of(p), said) for p, said in found]
        raise InvalidWorkflowError(problems)


def _invalid(line: int | None, field: str, detail: str) -> InvalidWorkflowError:
    return InvalidWorkflowError([WorkflowProblem(line, field, detail)])
