"""A loop for the steps of workflows: it plays the script in the step's own prompt.

A retried prompt begins with what the attempt before was seen to do; the script is what follows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from perdure.loop import Loop, LoopContext, LoopEvent
from perdure.testing import scripted
from perdure.testing.scripted_loop import read_script


def step_loop() -> Loop:
    """The loop of one run."""

    async def loop(context: LoopContext) -> AsyncGenerator[LoopEvent, None]:
        given = context.input or await context.messages()
        script = given[-1].text.rpartition("The step:\n\n")[2]
        async with aclosing(scripted(*read_script(script))()(context)) as events:
            async for event in events:
                yield event

    return loop
