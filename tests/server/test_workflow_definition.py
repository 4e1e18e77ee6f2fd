"""Whatever is wrong with a workflow is said before anything runs, with its line and its field."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidWorkflowError
from perdure.server.workflow.definition import plan_workflow, read_workflow
from perdure.server.workflow.rendering import render
from perdure.server.workflow.template import MAX_CHARS, TemplateProblem, take
from perdure.workflow import Step, Workflow

HEAD = "name: w\nsteps:\n"
WRONG = {
    "nothing": ("", 1, "", "nothing in it"),
    "not YAML": ("name: [", 1, "", "not YAML"),
    "a tab": ("name: w\nsteps:\n\t- id: a\n", 3, "", "not YAML"),
    "two documents": ("name: w\n---\nname: x\n", 2, "", "not YAML"),
    "a list": ("- 1\n", 1, "", "Expected `object`"),
    "a key twice": ("name: w\nname: x\n", 2, "name", "twice"),
    "a tag": ("name: !!python/object:os.system w\n", 1, "name", "tag"),
    "no steps": ("name: w\n", 1, "steps", "has to be given"),
    "an empty list of steps": ("name: w\nsteps: []\n", 2, "steps", "length >= 1"),
    "an unknown field": (HEAD + "- id: a\n  prompt: x\n  promt: y\n", 5, "steps[0].promt", "promt"),
    "no prompt": (HEAD + "- id: a\n- id: b\n  prompt: x\n", 3, "steps[0].prompt", "to be given"),
    "a wrong type": (HEAD + "- id: a\n  prompt: 5\n", 4, "steps[0].prompt", "Expected `str`"),
    "a bad id": (HEAD + "- id: a b\n  prompt: x\n", 3, "steps[0].id", "letters, digits"),
    "an id twice": (HEAD + "- {id: a, prompt: x}\n- {id: a, prompt: y}\n", 4, "steps[1].id", "'a'"),
    "no attempts": (
        HEAD + "- id: a\n  prompt: x\n  retry:\n    attempts: 0\n",
        6,
        "steps[0].retry.attempts",
        ">= 1",
    ),
    "an unknown step to wait for": (
        HEAD + "- id: a\n  prompt: x\n  after:\n  - b\n",
        6,
        "steps[0].after[0]",
        "no step 'b'; there are a",
    ),
    "an unknown step in a prompt": (
        HEAD + "- id: a\n  prompt: '{{ steps.b.output }}'\n",
        4,
        "steps[0].prompt",
        "no step 'b'",
    ),
    "an unknown thing of a step": (
        HEAD + "- {id: a, prompt: x}\n- id: b\n  prompt: '{{ steps.a.ouput }}'\n",
        5,
        "steps[1].prompt",
        "no 'ouput'",
    ),
    "an unknown input": (
        HEAD + "- id: a\n  prompt: '{{ inputs.b }}'\n",
        4,
        "steps[0].prompt",
        "'b'",
    ),
    "an unknown name": (HEAD + "- id: a\n  prompt: '{{ b }}'\n", 4, "steps[0].prompt", "no 'b'"),
    "steps at large": (
        HEAD + "- id: a\n  prompt: '{{ steps | list }}'\n",
        4,
        "steps[0].prompt",
        "name the step itself",
    ),
    "no template": (
        HEAD + "- id: a\n  prompt: '{% if %}'\n",
        4,
        "steps[0].prompt",
        "cannot be read",
    ),
    "no filter": (HEAD + "- id: a\n  prompt: '{{ 1 | nope }}'\n", 4, "steps[0].prompt", "nope"),
    "a template that fails": (
        HEAD + "- id: a\n  prompt: '{{ 1 / 0 }}'\n",
        4,
        "steps[0].prompt",
        "division by zero",
    ),
    "an empty prompt": (HEAD + "- id: a\n  prompt: ''\n", 4, "steps[0].prompt", "empty"),
    "an input that is missing": (
        "name: w\ninputs:\n  b:\nsteps:\n- id: a\n  prompt: x\n",
        3,
        "inputs.b",
        "missing",
    ),
    "a cycle": (
        HEAD + "- id: a\n  prompt: x\n  after: [b]\n- id: b\n  prompt: y\n",
        6,
        "steps[1]",
        "cycle",
    ),
    "a step that waits for itself": (
        HEAD + "- id: a\n  prompt: '{{ steps.a.output }}'\n",
        3,
        "steps[0]",
        "cycle",
    ),
    "a number for a text": (HEAD + "- id: 5\n  prompt: x\n", 3, "steps[0].id", "into quotes"),
    "a retry that says nothing": (
        HEAD + "- id: a\n  prompt: x\n  retry: {prompt: ' '}\n",
        5,
        "steps[0].retry.prompt",
        "empty",
    ),
    "what no earlier attempt has": (
        HEAD + "- id: a\n  prompt: x\n  retry: {prompt: '{{ earlier.output }}'}\n",
        5,
        "steps[0].retry.prompt",
        "earlier has no 'output'; it has reason, cause, seen",
    ),
    "what nothing that failed has": (
        HEAD
        + "- id: a\n  prompt: x\n  compensate: b\n- id: b\n  prompt: '{{ failed[\"why\"] }}'\n",
        7,
        "steps[1].prompt",
        "failed has no 'why'",
    ),
    "a number that JSON has not": (
        "name: w\ninputs:\n  b: {default: [1, .nan]}\nsteps:\n- id: a\n  prompt: x\n",
        3,
        "inputs.b",
        "nan is no number",
    ),
    "a number that is too large": (
        f"name: w\ninputs:\n  b: {{default: 0x{'f' * 5000}}}\nsteps:\n- id: a\n  prompt: x\n",
        3,
        "inputs.b",
        "write it as a text",
    ),
    "an empty check": (
        HEAD + "- id: a\n  prompt: x\n  check: {command: ' '}\n",
        5,
        "steps[0].check.command",
        "passes always",
    ),
    "a check that is none": (
        HEAD + "- id: a\n  prompt: x\n  check: {timeout_s: 5}\n",
        5,
        "steps[0].check",
        "either",
    ),
    "an unknown compensation": (
        HEAD + "- id: a\n  prompt: x\n  compensate: b\n",
        5,
        "steps[0].compensate",
        "no step 'b'",
    ),
    "a compensation that is waited for": (
        HEAD + "- {id: a, prompt: x, compensate: b}\n- {id: b, prompt: x}\n"
        "- id: c\n  prompt: x\n  after: [b]\n",
        7,
        "steps[2].after",
        "waited for by nobody",
    ),
    "one session with two loops": (
        HEAD
        + "- {id: a, prompt: x, session: s, loop: shell}\n- id: b\n  prompt: x\n  session: s\n",
        4,
        "steps[1].loop",
        "another loop",
    ),
    "an alias of itself": ("name: w\nsteps: &a\n- *a\n", 2, "steps", ""),
}


@pytest.mark.parametrize(("text", "line", "field", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_with_its_line_and_field(
    text: str, line: int, field: str, says: str
) -> None:
    with pytest.raises(InvalidWorkflowError) as caught:
        read_workflow(text, {})
    first = caught.value.problems[0]
    assert says in first.detail
    assert (first.field.startswith(field), first.line) == (True, line), str(first)


def test_all_that_is_wrong_is_said_at_once() -> None:
    text = (
        HEAD + "- id: a\n  prompt: '{{ b }}'\n- id: c\n  prompt: '{{ inputs.d }}'\n  after: [e]\n"
    )
    with pytest.raises(InvalidWorkflowError) as caught:
        read_workflow(text, {"f": 1})
    fields = [(each.line, each.field) for each in caught.value.problems]
    assert fields == [
        (1, "inputs.f"),
        (4, "steps[0].prompt"),
        (6, "steps[1].prompt"),
        (7, "steps[1].after[0]"),
    ]


def test_aliases_cannot_make_much_out_of_little() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 9):
        text += f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]\n"
    with pytest.raises(InvalidWorkflowError, match="at most 10000 values"):
        read_workflow(text, {})


BOMBS = {
    "a long text, again and again": (
        f"name: w\ninputs:\n  a: {{default: &a '{'z' * 100_000}'}}\n"
        f"  b: {{default: [{', '.join(['*a'] * 9000)}]}}\nsteps:\n- id: a\n  prompt: x\n",
        "with its aliases it has more than 262144 characters",
    ),
    "many values": ("".join(f"a{n}: {n}\n" for n in range(16_000)), "at most 10000 values"),
    "a deep flow": ("a: " + "[" * 100_000, "32 deep"),
    "deep mappings": ("a: " + "{a: " * 20_000, "32 deep"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_what_is_too_much_is_refused_before_it_costs_much(kind: str) -> None:
    text, said = BOMBS[kind]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidWorkflowError, match=said):
            read_workflow(text, {})
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_of_very_many_problems_the_first_ones_are_told() -> None:
    text = "name: w\ninputs:\n" + "".join(f"  a{n}: {{}}\n" for n in range(3000))
    with pytest.raises(InvalidWorkflowError) as refused:
        read_workflow(text + "steps:\n- id: a\n  prompt: x\n", {})
    assert len(refused.value.problems) == 101
    assert refused.value.problems[-1].detail == "and 2900 problems more"


def test_yes_and_on_are_text_and_a_date_is_too() -> None:
    text = "name: on\ninputs: {a: {default: yes}, b: {default: 2026-01-05}}\nsteps:\n- id: a\n"
    plan = read_workflow(text + "  prompt: '{{ inputs.a }} {{ inputs.b }}'\n", {})
    assert (plan.workflow.name, plan.inputs) == ("on", {"a": "yes", "b": "2026-01-05"})


def test_python_and_yaml_give_the_same() -> None:
    text = "name: w\nsteps:\n- id: a\n  prompt: x\n- id: b\n  prompt: y\n  after: []\n"
    made = plan_workflow(Workflow("w", [Step("a", "x"), Step("b", "y", after=[])]), {})
    read = read_workflow(text, {})
    assert read.as_fact().definition == made.as_fact().definition
    assert read.needs == made.needs == {"a": (), "b": ()}


PIECES = st.sampled_from(
    [
        *("name", ":", " ", "\n", "- ", "steps", "id", "prompt", "{{", "}}", "{%", "%}", "a"),
        *("&a", "*a", "'", '"', "[", "]", "{", "}", "|", ">", "!", "!!str", "%", "?", "#", "\t"),
        *("<<", "0o9", "1e9", "steps.a", "inputs", "\u0085", "\u2028", "\0", "é", "---", "..."),
        *("\r", "0x", "=", "~", "@", "`", "!!int", "1_0", "2026-01-05", ".inf", "0b2"),
    ]
)


def problems_of(text: str) -> int:
    """How many problems a text has, -1 for none; any other error fails the test."""
    try:
        read_workflow(text, {})
    except InvalidWorkflowError as error:
        return len(error.problems)
    return -1


@settings(max_examples=600, deadline=None)
@given(text=st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    for given_text in (text, HEAD + text, HEAD + "- id: a\n  prompt: " + text):
        assert problems_of(given_text) != 0


@settings(max_examples=300, deadline=None)
@given(text=st.lists(PIECES, max_size=30).map("".join))
def test_no_template_makes_it_fail_otherwise(text: str) -> None:
    with suppress(TemplateProblem):
        take(text, frozenset({"inputs", "steps"}))
        assert len(render(text, {"inputs": {}, "steps": {}})) <= MAX_CHARS


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ inputs._values }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{% for a in range(1000000000) %}x{% endfor %}",
        "{% for a in range(90000) %}{{ 'x' * 100 }}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ ['x'] * 100000000 }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox_nor_make_much_out_of_little(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateProblem):
            render(text, {"inputs": {}})
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
