"""Steps whose prompts are commands: what is told of an attempt before is never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.loops import Shell
from perdure.stores.memory import MemoryStore
from perdure.workflow import Check, Retry, Step
from tests.server.house import Loops
from tests.server.workflow_house import WorkflowHouse, until

pytestmark = pytest.mark.may_block

TRAP = "echo one >> lines; printf '%s\\n' 'touch run' '; touch run' '$(touch run)' '`touch run`'"


@pytest.mark.parametrize("prompt", [None, "{{ notice }}{{ prompt }}"])
async def test_what_an_attempt_wrote_is_a_comment_in_the_next_ones_command(
    tmp_path: Path, prompt: str | None
) -> None:
    house = WorkflowHouse(MemoryStore(), Loops(Shell(tmp_path)))
    async with house.keeper.keeping():
        try:
            await house.start(
                Step(
                    "a",
                    TRAP,
                    check=Check(command=f"test 3 = $(wc -l < {tmp_path}/lines)"),
                    retry=Retry(attempts=3, wait_s=0, prompt=prompt),
                )
            )
            await until(lambda: house.keeper.find_kept("w") is None)
            assert (await house.look()).status == "completed"
            assert (tmp_path / "lines").read_text() == "one\n" * 3
            assert not (tmp_path / "run").exists()
            first, second, _ = await house.prompts("a")
            assert first == TRAP
            assert "# This is attempt 2" in second
            assert "A retry is not a rollback" in second
            assert "touch run" in second.partition(TRAP)[0]
            told = second.removesuffix(TRAP).splitlines()
            assert all(line.startswith("#") for line in told)
        finally:
            await house.close()


async def test_what_is_not_kept_of_a_checks_output_is_said(tmp_path: Path) -> None:
    house = WorkflowHouse(MemoryStore(), Loops(Shell(tmp_path)))
    async with house.keeper.keeping():
        try:
            flood = Check(command="head -c 5000 /dev/zero | tr '\\0' x; false")
            await house.start(Step("a", "true", check=flood, retry=Retry(attempts=1)))
            await until(lambda: house.keeper.find_kept("w") is None)
            check = (await house.of("a")).attempts[0].check
            assert check is not None
            assert check.output is not None
            assert "characters before this were not kept] …xxx" in check.output
        finally:
            await house.close()
