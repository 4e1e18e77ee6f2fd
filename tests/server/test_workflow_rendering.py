"""Templates in bounded time and memory, whatever is written in them."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from perdure.errors import InvalidWorkflowError
from perdure.server.workflow import definition, prompt, rendering
from perdure.server.workflow.rendering import Job, render, render_all
from perdure.server.workflow.template import Named, Said, TemplateProblem, is_plain
from perdure.server.workflow.yaml_text import read_yaml
from perdure.stores.memory import MemoryStore
from perdure.workflow import Workflow
from tests.server.workflow_house import SAY, living, step, until

SAID = {"output": "y\n" * 1000, "session_id": "s", "attempts": 1, "skipped": False}
VALUES: dict[str, Any] = {
    "inputs": Named({"text": "x \u2028 \ud800", "tags": ["a", "b"], "map": {"k": 3}}),
    "steps": Named({"b": Said(SAID)}),
    "workflow": Named({"id": "w", "name": "n"}),
}

FOR_EVER = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x",
    "{% set n = namespace(x=10) %}{% for a in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}x",
]

TOO_LARGE = [
    "{% set n = namespace(s='x') %}{% for a in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}x",
    "{% set n = namespace(s='x') %}{% for a in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}x",
    "{{ 'a' | replace('a', 'b' * 99999) | replace('b', 'c' * 99999) | length }}",
    "{{ 'x' | indent(999999999, true) | length }}",
]

PLAIN = [
    "{{ inputs.text | trim }} {{ steps.b.output | trim | length }}",
    "{% if steps.b.skipped or inputs.text == 'a' %}no{% else %}{{ workflow.name }}{% endif %}",
    "{{ inputs.tags | join(', ') }} {{ inputs['map']['k'] }} {{ inputs.map | tojson }}",
]

MORE = [
    "{% for t in inputs.tags %}{{ loop.index }}{{ t }}{% endfor %}",
    "{% set a = steps.b.output %}{{ a[:2] }}{{ inputs.text ~ steps.b }}",
    "{{ inputs.map.k + 1 }}{{ inputs.tags | map('upper') | list }}",
]


@pytest.mark.parametrize("text", FOR_EVER)
def test_a_template_that_never_ends_is_ended(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "CPU_S", 1)
    with pytest.raises(TemplateProblem, match="was ended: it may take 1 s of computing"):
        render(text, VALUES)


@pytest.mark.parametrize("text", TOO_LARGE)
def test_a_template_cannot_take_up_the_memory(text: str) -> None:
    with pytest.raises(TemplateProblem, match="512 MB"):
        render(text, VALUES)


def test_what_waits_for_nothing_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "WALL_S", 0.2)
    monkeypatch.setattr(rendering, "_START", "import time; time.sleep(60)")
    with pytest.raises(TemplateProblem, match="was ended"):
        render(MORE[0], VALUES)


@pytest.mark.parametrize("text", PLAIN + MORE)
def test_a_process_of_its_own_makes_the_same(text: str) -> None:
    assert is_plain(text) is (text in PLAIN)
    here = rendering._run(Job(text, VALUES))
    assert rendering._run_apart([Job(text, VALUES)]) == [here]
    assert render(text, VALUES) == here


@pytest.mark.parametrize(
    "text",
    [
        *("{{ 'x' * 9 }}", "{{ a ~ b }}", "{{ a + b }}", "{{ a() }}", "{% set a = 1 %}"),
        *("{{ a | indent(9) }}", "{{ a | tojson(indent=999) }}", "{{ a | replace('a', 'b') }}"),
        *("{{ a | tojson | tojson | tojson }}", "{{ a | join(b) }}", "{{ a[b] }}", "{{ [a] }}"),
        "{{ ((a | tojson | tojson) if a else a) | tojson }}",
        "{{ a | join('" + "x" * 99 + "') }}",
        *("{% macro m() %}{% endmacro %}", "{% filter upper %}a{% endfilter %}"),
    ],
)
def test_what_could_make_much_out_of_little_is_not_plain(text: str) -> None:
    assert not is_plain(text)


def test_of_several_templates_each_is_told_its_own_problem() -> None:
    texts = ["{{ 1 / 0 }}", "{{ 1 + 1 }}", "{{ nope }}", "{{ [].nope + 1 }}", "plain"]
    found = render_all([Job(text, VALUES) for text in texts])
    assert [each if isinstance(each, str) else "problem" for each in found] == [
        *("problem", "2", "problem", "problem", "plain")
    ]
    assert render_all([Job("{{ 1 / 0 }}", None)]) == [""]


def test_what_renders_is_given_nothing_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PERDURE_TOKEN", "secret")
    monkeypatch.setattr(
        rendering,
        "_START",
        "import os, json; print(json.dumps(['made', json.dumps(dict(os.environ))]))",
    )
    assert "PERDURE_TOKEN" not in render(MORE[0], VALUES)


async def test_a_text_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    read_by: list[threading.Thread] = []

    def read(text: str) -> Any:
        read_by.append(threading.current_thread())
        return read_yaml(text)

    monkeypatch.setattr(definition, "read_yaml", read)
    text = f"name: w\nsteps:\n- id: a\n  prompt: '{SAY}'\n  loop: %s\n"
    async with living(MemoryStore()) as house:
        await house.workflows.check(text % "scripted")
        with pytest.raises(InvalidWorkflowError, match=r"line 5, steps\[0\].loop: no loop 'nope'"):
            await house.workflows.check(text % "nope")
    assert read_by
    assert threading.main_thread() not in read_by


class Crowd:
    """How many are inside at the same time, at most."""

    def __init__(self) -> None:
        self.most = self._inside = self.count = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.count += 1
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(0.05)
        with self._lock:
            self._inside -= 1


async def test_few_texts_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()

    def read(text: str) -> Any:
        crowd()
        return read_yaml(text)

    monkeypatch.setattr(definition, "read_yaml", read)
    text = f"name: w\nsteps:\n- id: a\n  prompt: '{SAY}'\n"
    async with living(MemoryStore()) as house:
        await asyncio.gather(*(house.workflows.check(text) for _ in range(8)))
    assert (crowd.count, crowd.most) == (8, 2)


async def test_few_prompts_are_rendered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()

    def slow(text: str, values: Any) -> str:
        crowd()
        return render(text, values)

    monkeypatch.setattr(prompt, "render", slow)
    async with living(MemoryStore()) as house:
        for n in range(6):
            await house.workflows.create(Workflow("w", [step("a")]), workflow_id=f"w{n}")
        await until(lambda: len(house.keeper) == 0)
    assert (crowd.count, crowd.most) == (6, 2)
