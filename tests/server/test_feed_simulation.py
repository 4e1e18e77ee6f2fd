"""Thousands of interleavings of everything that can happen to a feed, each from its seed.

`PERDURE_FEED_ROUNDS=100000` plays more of them; `PERDURE_FEED_SEED=17` plays that one alone.
"""

from __future__ import annotations

import os
import random

import pytest

from perdure.server.feed import write
from tests.server import seeded_loop
from tests.server.feed_world import World

ROUNDS = int(os.environ.get("PERDURE_FEED_ROUNDS", "2000"))
SEED = os.environ.get("PERDURE_FEED_SEED")
GROUPS = 20


def play(seed: int) -> int:
    """Plays one interleaving; returns how many steps it took."""
    dice = random.Random(seed)
    steps = 0

    async def main() -> None:
        nonlocal steps
        await World(dice).run()
        steps = seeded_loop.steps()

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write, "MAX_WRITE_BYTES", dice.choice((write.MAX_WRITE_BYTES, 700)))
            seeded_loop.run(dice, main())
    except BaseException as error:
        error.add_note(f"this was seed {seed}: PERDURE_FEED_SEED={seed} plays it again")
        raise
    return steps


@pytest.mark.parametrize("group", range(GROUPS) if SEED is None else [0])
def test_whatever_the_interleaving_each_viewer_gets_each_seq_once_and_in_order(group: int) -> None:
    seeds = range(group, ROUNDS, GROUPS) if SEED is None else [int(SEED)]
    assert sum(play(seed) for seed in seeds) > 0


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_plays_the_same_interleaving_each_time(seed: int) -> None:
    assert play(seed) == play(seed)
