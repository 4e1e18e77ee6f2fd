"""What a workflow is: ordered steps, as Python values. YAML and JSON have the same fields.

```python
from perdure.workflow import Check, Retry, Step, Workflow

workflow = Workflow(
    "release",
    steps=[
        Step("build", "Build version {{ inputs.version }}.", check=Check(command="test -e dist")),
        Step("publish", "Publish {{ steps.build.output }}.", retry=Retry(attempts=1)),
    ],
)
```

Only plain values are here; the server reads, validates and runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from perdure.entry import Json

Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")]
Attempts = Annotated[int, Meta(ge=1, le=100)]
Wait = Annotated[float, Meta(ge=0, le=7 * 24 * 3600)]
Limit = Annotated[float, Meta(gt=0, le=30 * 24 * 3600)]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The root of all parts of a workflow."""


class Input(_Part, frozen=True, omit_defaults=True):
    """What has to be given when the workflow starts, unless it has a default."""

    default: Json | UnsetType = UNSET
    description: str | None = None


class Retry(_Part, frozen=True, omit_defaults=True):
    """How often a step is tried, and how long is waited in between. A retry is not a rollback.

    The n-th wait is `wait_s * factor ** (n - 1)`, at most `most_wait_s`, and shorter or longer by
    up to the fraction `jitter` of it. `prompt` is the template of what a retry says instead of
    telling what the earlier attempt did and then repeating the step's prompt.
    """

    attempts: Attempts = 3
    wait_s: Wait = 2.0
    factor: Annotated[float, Meta(ge=1, le=10)] = 2.0
    most_wait_s: Wait = 300.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2
    prompt: str | None = None


class Check(_Part, frozen=True, omit_defaults=True):
    """What decides whether a step succeeded whose turn completed.

    A `command` in the workspace of the step's runtime, by its exit status; or a Python `function`,
    `module:attribute`, that the server's settings allow.
    """

    command: str | None = None
    function: str | None = None
    timeout_s: Limit = 600.0


class Step(_Part, frozen=True, omit_defaults=True):
    """One prompt, sent until its turn completes and its check passes, or its attempts are used up.

    `after` None is the step before it; an empty list is none. What its prompt takes from other
    steps it waits for, too. `session` is shared with the steps that name the same one; None is a
    session of its own. `limit_s` bounds each attempt. With `approve` a person has to let it start.
    `compensate` names the step that is run if this one has failed.
    """

    id: Name
    prompt: str
    after: Sequence[str] | None = None
    session: Name | None = None
    loop: str | None = None
    runtime: str | None = None
    limit_s: Limit | None = None
    retry: Retry | None = None
    check: Check | None = None
    approve: bool = False
    compensate: str | None = None
    title: str | None = None


class Workflow(_Part, frozen=True, omit_defaults=True):
    """Steps in order. `loop`, `runtime` and `retry` are for the steps that do not say.

    At most `parallel` steps run at the same time.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    steps: Annotated[Sequence[Step], Meta(min_length=1, max_length=200)]
    inputs: Mapping[Name, Input] = {}
    description: str | None = None
    loop: str | None = None
    runtime: str | None = None
    retry: Retry | None = None
    parallel: Annotated[int, Meta(ge=1, le=32)] = 8

    def step(self, step_id: str) -> Step:
        """The step of this id; KeyError where there is none."""
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def retry_of(self, step: Step) -> Retry:
        """The retry policy of this step."""
        return step.retry or self.retry or Retry()
