"""Templates of prompts: jinja2 in its sandbox, where what is not there is an error.

A template is read before anything runs: what it takes from inputs and steps has to be there. What
it makes is bounded. Time and memory are where it is rendered (rendering.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARS = 256 * 1024
"""Of a prompt."""

MAX_EXPRESSIONS = 2000
"""Of a template."""

OUTPUTS = frozenset({"output", "session_id", "attempts", "skipped"})
"""What a template can take from a step."""


FIELDS: Mapping[str, tuple[str, ...]] = {
    "workflow": ("id", "name"),
    "earlier": ("reason", "cause", "seen"),
    "failed": ("step", "reason", "cause", "seen"),
}
"""What a template can take from the names that are no inputs and no steps."""


class Named:
    """Values by name, as a template sees them: `inputs.version`, `inputs["a-b"]`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Said(Named):
    """What a template can take from a step; by itself it is what the step said."""

    __slots__ = ()

    def __str__(self) -> str:
        return str(self["output"])


class Takes(NamedTuple):
    """What a template takes: names of inputs, and steps with what of each."""

    inputs: frozenset[str]
    steps: frozenset[tuple[str, str | None]]


class TemplateProblem(ValueError):
    """A template cannot be used; `line` counts from 1 in the template itself."""

    def __init__(self, line: int | None, detail: str) -> None:
        super().__init__(detail)
        self.line = line
        self.detail = detail


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses what could make much out of little."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def wrap_str_format(self, value: Any) -> None:
        """Nothing to wrap: `format` cannot be used."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str | bytes) and attr in _WIDENING:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"the operator {operator} cannot be used here")
        for many, times in ((left, right), (right, left)):
            is_many = hasattr(many, "__len__") and isinstance(times, int)
            if is_many and len(many) * times > MAX_CHARS:
                raise SecurityError(f"it would make more than {MAX_CHARS} characters")
        return super().call_binop(context, operator, left, right)


_WIDENING = frozenset({"center", "expandtabs", "format", "format_map", "ljust", "rjust", "zfill"})

_SMALL = 16
_MOST_FILTERS = 200
_PLAIN_FILTERS = frozenset(
    {
        *("trim", "upper", "lower", "capitalize", "string", "int", "float", "default", "d", "join"),
        *("length", "count", "first", "last", "list", "sort", "reverse", "unique", "tojson"),
    }
)
_PLAIN_STATEMENTS = (nodes.Output, nodes.If)
_PLAIN_EXPRESSIONS = (
    *(nodes.TemplateData, nodes.Const, nodes.Name, nodes.Getattr, nodes.Compare, nodes.And),
    *(nodes.Or, nodes.Not, nodes.CondExpr),
)

_SANDBOX = _Sandbox(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
del _SANDBOX.globals["lipsum"]
for _name in ("center", "format"):
    del _SANDBOX.filters[_name]


_UNREADABLE = (TemplateError, RecursionError, SyntaxError, ValueError)


def _unreadable(error: Exception) -> TemplateProblem:
    line = error.lineno if isinstance(error, TemplateSyntaxError) else None
    return TemplateProblem(line, f"the template cannot be read: {error}")


def _parse(text: str) -> nodes.Template:
    try:
        return _SANDBOX.parse(text)
    except _UNREADABLE as error:
        raise _unreadable(error) from error


def take(text: str, known: frozenset[str]) -> Takes:
    """What a template takes; `known` are the names of the variables that it can use.

    Nothing of it is computed.

    Raises:
        TemplateProblem: it cannot be read, or uses what is not there.

    """
    tree = _parse(text)
    try:
        return _take(tree, known)
    except RecursionError as error:
        raise _unreadable(error) from error


def _take(tree: nodes.Template, known: frozenset[str]) -> Takes:
    _check_expressions(tree)
    if unknown := sorted(find_undeclared_variables(tree) - known):
        line = next(
            (each.lineno for each in tree.find_all(nodes.Name) if each.name == unknown[0]), None
        )
        there = ", ".join(sorted(known))
        raise TemplateProblem(line, f"there is no {unknown[0]!r}; there are {there}")
    inputs: set[str] = set()
    steps: set[tuple[str, str | None]] = set()
    looked_into: set[int] = set()
    looks: list[nodes.Getattr | nodes.Getitem] = [
        *tree.find_all(nodes.Getattr),
        *tree.find_all(nodes.Getitem),
    ]
    for node in looks:
        inner, key = node.node, _key(node)
        if isinstance(inner, nodes.Name) and inner.name == "inputs" and key is not None:
            inputs.add(key)
        elif isinstance(inner, nodes.Name) and inner.name == "steps":
            if key is None:
                raise TemplateProblem(node.lineno, "name the step itself: steps.NAME.output")
            looked_into.add(id(inner))
            steps.add((key, None))
        elif isinstance(inner, nodes.Getattr | nodes.Getitem):
            of, name = inner.node, _key(inner)
            if isinstance(of, nodes.Name) and of.name == "steps" and name is not None:
                steps.add((name, key))
    for found in tree.find_all(nodes.Name):
        if found.name == "steps" and found.ctx == "load" and id(found) not in looked_into:
            raise TemplateProblem(found.lineno, "name the step itself: steps.NAME.output")
    return Takes(frozenset(inputs), frozenset(steps))


def _check_expressions(tree: nodes.Template) -> None:
    for n, node in enumerate(tree.find_all(nodes.Expr)):
        if n >= MAX_EXPRESSIONS:
            raise TemplateProblem(None, f"a template has at most {MAX_EXPRESSIONS} expressions")
        for kind, there in ((nodes.Filter, _SANDBOX.filters), (nodes.Test, _SANDBOX.tests)):
            if isinstance(node, kind) and node.name not in there:
                what = kind.__name__.lower()
                detail = f"the template cannot be read: No {what} named {node.name!r}."
                raise TemplateProblem(node.lineno, detail)
        if isinstance(node, nodes.Getattr | nodes.Getitem) and isinstance(node.node, nodes.Name):
            name, key = node.node.name, _key(node)
            if key is not None and name in FIELDS and key not in FIELDS[name]:
                raise TemplateProblem(
                    node.lineno, f"{name} has no {key!r}; it has {', '.join(FIELDS[name])}"
                )


def is_plain(text: str) -> bool:
    """Whether rendering takes no longer than its text and its values are long.

    It only looks values up, compares them, and puts them through a filter or two that make about
    as much as they get: no loop, no macro, no arithmetic, nothing that is put together.
    """
    tree = _parse(text)
    try:
        expressions = list(tree.find_all(nodes.Expr))
        return (
            sum(isinstance(each, nodes.Filter) for each in expressions) <= _MOST_FILTERS
            and all(isinstance(each, _PLAIN_STATEMENTS) for each in tree.find_all(nodes.Stmt))
            and all(_is_plain_expression(each) for each in expressions)
        )
    except RecursionError:
        return False


def _is_plain_expression(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Filter):
        inner = node.node
        depth = 0 if inner is None else isinstance(inner, nodes.Filter)
        depth += 0 if inner is None else sum(1 for _ in inner.find_all(nodes.Filter))
        return node.name in _PLAIN_FILTERS and depth <= 1 and _has_small_arguments(node)
    if isinstance(node, nodes.Test):
        return _has_small_arguments(node)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const)
    return isinstance(node, _PLAIN_EXPRESSIONS)


def _has_small_arguments(node: nodes.Filter | nodes.Test) -> bool:
    given = [*node.args, *(each.value for each in node.kwargs)]
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        return False
    return all(isinstance(each, nodes.Const) and _is_small(each.value) for each in given)


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _SMALL
    return value is None or (isinstance(value, int | float) and abs(value) <= _SMALL)


def _key(node: nodes.Getattr | nodes.Getitem) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    found = node.arg
    return found.value if isinstance(found, nodes.Const) and isinstance(found.value, str) else None


def render_here(text: str, values: Mapping[str, Any]) -> str:
    """What the template makes of these values, in this process: unbounded unless `is_plain`.

    Raises:
        TemplateProblem: it cannot be rendered, or makes too much.

    """
    made: list[str] = []
    size = 0
    try:
        for piece in _SANDBOX.from_string(text).generate(dict(values)):
            made.append(piece)
            size += len(piece)
            if size > MAX_CHARS:
                raise TemplateProblem(None, f"it makes more than {MAX_CHARS} characters")
    except TemplateError as error:
        detail = f"the template cannot be rendered: {error.message or type(error).__name__}"
        raise TemplateProblem(getattr(error, "lineno", None), detail) from error
    except (TemplateProblem, MemoryError):
        raise
    except Exception as error:  # the edge of somebody else's expressions
        raise TemplateProblem(
            None, f"the template cannot be rendered: {type(error).__name__}: {error}"
        ) from error
    return "".join(made)


def compile_here(text: str) -> None:
    """Returns if the template can be compiled, which computes what is constant in it.

    Raises:
        TemplateProblem: it cannot.

    """
    try:
        _SANDBOX.from_string(text)
    except _UNREADABLE as error:
        raise _unreadable(error) from error
