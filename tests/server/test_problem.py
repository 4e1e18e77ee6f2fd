"""Every error has a status and a code of its own, and its problem says what it says."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from perdure import errors
from perdure.errors import PerdureError
from perdure.server.problem import CODES, PROBLEMS, REFUSALS, problem_of

ROOT = Path(__file__).parents[2]
ERRORS = [
    found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, PerdureError) and not name.startswith("_")
]


def test_every_error_is_in_the_table_once() -> None:
    assert set(PROBLEMS) == set(ERRORS)
    codes = [code for _, code in PROBLEMS.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", ERRORS)
def test_its_problem_has_the_status_the_code_and_its_text(kind: type[PerdureError]) -> None:
    error = kind.__new__(kind)
    PerdureError.__init__(error, "what to do")
    error.session_id = "s"  # type: ignore[attr-defined]  # as most of them have
    for name in ("type", "title", "status", "detail", "instance", "code", "headers"):
        setattr(error, name, "its own")  # as some have
    answer = problem_of(error)
    status, code = PROBLEMS[kind]
    problem = json.loads(bytes(answer.body))
    assert answer.status_code == status == problem["status"]
    assert (problem["code"], problem["detail"]) == (code, str(error))
    assert problem["session_id"] == "s"


def test_damage_is_told_with_its_place() -> None:
    error = errors.JournalCorruptError("s", 3, "line 4", "it is no JSON")
    problem = json.loads(bytes(problem_of(error).body))
    assert (problem["code"], problem["seq"], problem["place"]) == ("journal_corrupt", 3, "line 4")
    assert problem["detail"] == str(error)


def test_a_subclass_from_elsewhere_is_told_as_what_it_is() -> None:
    class Fuller(errors.StoreUnavailableError):
        pass

    answer = problem_of(Fuller("the disk is full"))
    assert (answer.status_code, json.loads(bytes(answer.body))["code"]) == (
        503,
        "store_unavailable",
    )


def test_every_code_is_known_and_documented() -> None:
    sources = "".join(each.read_text() for each in (ROOT / "src/perdure/server").glob("*.py"))
    used = set(re.findall(r"(?:Refused|problem)\(\s*\d{3},\s*\"(\w+)\"", sources))
    assert used
    assert used <= set(REFUSALS)
    assert set(REFUSALS).isdisjoint(code for _, code in PROBLEMS.values())
    documented = (ROOT / "docs/reference/http.md").read_text().partition("## Refusals")[2]
    assert set(re.findall(r"`(\w+)`", documented.partition("## The stream")[0])) == CODES | {"code"}
