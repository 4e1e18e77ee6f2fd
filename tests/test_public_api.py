"""The library's surface: sorted, documented, and cheap to import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import perdure
import perdure.loops
import perdure.server
import perdure.stores
import perdure.testing

SRC = Path(__file__).parents[1] / "src"


@pytest.mark.parametrize("module", [perdure, perdure.loops, perdure.server, perdure.testing])
def test_all_is_sorted_and_complete(module: ModuleType) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_all_names_everything_that_is_imported() -> None:
    public = {
        name
        for name, value in vars(perdure).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(perdure.__all__)


def test_every_error_of_the_style_is_a_name_of_perdure() -> None:
    """All but those that only a server raises; a hook's and a runtime's leave a loop, too."""
    for name in ("HookRefusedError", "HookFailedError", "RuntimeLostError"):
        assert issubclass(getattr(perdure, name), perdure.PerdureError)
        assert name in perdure.__all__


def documented(name: str, value: object) -> Iterator[str]:
    """The public classes and functions under a name that have no docstring."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    if not value.__doc__:
        yield name
    if inspect.isclass(value) and value.__module__.startswith("perdure"):
        for member, inner in vars(value).items():
            inner = inner.fget if isinstance(inner, property) else inner
            is_public = not member.startswith("_") and inspect.isfunction(inner)
            if is_public and inspect.getdoc(getattr(value, member)) is None:
                yield f"{name}.{member}"


@pytest.mark.parametrize("module", [perdure, perdure.loops, perdure.server])
def test_every_public_name_says_what_it_guarantees(module: ModuleType) -> None:
    bare = [
        missing for name in module.__all__ for missing in documented(name, getattr(module, name))
    ]
    assert bare == []


def test_every_module_tells_its_idea() -> None:
    bare = [
        str(file.relative_to(SRC))
        for file in SRC.rglob("*.py")
        if not file.read_text().lstrip().startswith(('"""', 'r"""'))
    ]
    assert bare == []


def modules_after(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after a statement, beside its own."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(SRC)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in ran.stdout.split()}


def foreign_modules_after(statement: str) -> set[str]:
    """What is neither the standard library's nor msgspec's (which tries typing_extensions)."""
    own = modules_after("import msgspec") | set(sys.stdlib_module_names)
    return modules_after(statement) - own


def test_importing_perdure_imports_nothing_but_msgspec_and_the_standard_library() -> None:
    assert foreign_modules_after("import perdure") == {"perdure"}


def test_apsw_is_imported_when_a_sqlite_store_is_opened() -> None:
    assert "apsw" in modules_after("import perdure; perdure.open_store('sqlite:///x.db')")


def test_the_command_line_needs_no_extra_to_read() -> None:
    assert foreign_modules_after("import perdure.cli") == {"perdure"}
