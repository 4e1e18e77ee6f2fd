"""YAML as plain values, with the line of everything in it; bounded, and only plain YAML.

Anchors and aliases work, and are counted each time they are used; tags, merge keys and a second
document are refused. YAML 1.2: `on` and `yes` are text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from perdure.errors import InvalidWorkflowError, WorkflowProblem

MAX_BYTES = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 32

Path = tuple[str | int, ...]
Lines = Mapping[Path, int]
"""The line, from 1, of each key and item, by its path."""

_TOO_MUCH = f"a workflow has at most {MAX_NODES} values, {MAX_DEPTH} deep"

_PLAIN = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")
)


def read_yaml(text: str) -> tuple[Any, Lines]:
    """The values of a YAML document, and their lines.

    Raises:
        InvalidWorkflowError: it is too large, or no plain YAML; says the line.

    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise _refused(None, f"a workflow has at most {MAX_BYTES} bytes; this has {size}")
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    yaml.max_depth = MAX_DEPTH
    try:
        node = yaml.compose(text)
    except MaxDepthExceededError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise _refused(line, _TOO_MUCH) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(str(each) for each in (error.context, error.problem) if each)
        line = None if mark is None else mark.line + 1
        raise _refused(line, f"this is not YAML: {said}") from error
    except Exception as error:  # somebody else's reader, and anybody's text
        raise _refused(None, f"this is not YAML: {error}") from error
    if node is None:
        raise _refused(1, "there is nothing in it; a workflow has a name and steps")
    walk = _Walk(yaml)
    return walk.value(node, ()), walk.lines


class _Composer(Composer):
    """Stops at too many values, before what follows costs anything."""

    _count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            mark = self.parser.peek_event().start_mark
            raise MaxDepthExceededError(None, None, _TOO_MUCH, mark)
        return super().compose_node(parent, index)


class _Walk:
    def __init__(self, yaml: YAML) -> None:
        self.lines: dict[Path, int] = {}
        self._constructor = yaml.constructor
        self._nodes = 0
        self._chars = 0

    def value(self, node: Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise _refused(line, _TOO_MUCH, path)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, n)) for n, item in enumerate(node.value)]
        return self._scalar(node, path, line)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            name = self._scalar(key, path, line) if isinstance(key, ScalarNode) else None
            if not isinstance(name, str):
                raise _refused(line, "a key is text: put it into quotes", path)
            if name in found:
                raise _refused(line, f"{name!r} is there twice", (*path, name))
            self.lines[(*path, name)] = line
            found[name] = self.value(item, (*path, name))
        return found

    def _scalar(self, node: Node, path: Path, line: int) -> Any:
        tag = str(getattr(node, "tag", None) or getattr(node, "ctag", ""))
        if tag not in _PLAIN:
            raise _refused(line, f"the tag {tag} means nothing here", path)
        if tag.endswith(":timestamp"):
            return node.value
        self._chars += len(node.value)
        if self._chars > MAX_BYTES:
            detail = f"with its aliases it has more than {MAX_BYTES} characters"
            raise _refused(line, detail, path)
        try:
            return self._constructor.construct_object(node)
        except Exception as error:  # somebody else's reader, and anybody's text
            raise _refused(line, f"{node.value[:80]!r} cannot be read: {error}", path) from error


def field_of(path: Sequence[str | int]) -> str:
    """A path as it is written: `steps[1].prompt`."""
    written = ""
    for each in path:
        written += f"[{each}]" if isinstance(each, int) else f".{each}" if written else each
    return written


def line_of(lines: Lines, path: Path) -> int | None:
    """The line of a path, or of the nearest thing around it that is there."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _refused(line: int | None, detail: str, path: Path = ()) -> InvalidWorkflowError:
    return InvalidWorkflowError([WorkflowProblem(line, field_of(path), detail)])
