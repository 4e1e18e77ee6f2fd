"""A process to be killed: agents at work on a store, each receipt told on standard output."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys

import perdure
from perdure.agent import DurableAgent
from perdure.store import Receipt
from tests.crash.chaos import chaos


def tell(agent: DurableAgent, receipt: Receipt) -> None:
    """Prints what the store has acknowledged: after this line it must never be lost."""
    for stored in receipt.entries:
        digest = hashlib.sha256(stored.raw).hexdigest()
        line = json.dumps([agent.session_id, stored.seq, stored.id, digest])
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def work(url: str, seed: int) -> None:
    """Runs, forks, branches, compacts and appends, until it is killed."""
    dice = random.Random(seed)
    store = perdure.open_store(url)
    agents = [await perdure.open(f"s{n}", chaos, store=store) for n in range(3)]
    await asyncio.gather(*(live(agent, random.Random(dice.random())) for agent in agents))


async def live(agent: DurableAgent, dice: random.Random) -> None:
    """One session's life, and that of the newest of its forks."""
    for turn in range(10_000):
        try:
            async for event in agent.run(f"question {turn}"):
                if event.type in {"agent_start", "message_end", "tool_end"}:
                    tell(agent, event.receipt)  # type: ignore[union-attr]  # these three have one
        except RuntimeError:
            pass
        if dice.random() < 0.2:
            tell(agent, await agent.append(perdure.text("context", meta=True), "a note"))
        if dice.random() < 0.2 and (receipt := await agent.compact(keep_turns=2)) is not None:
            tell(agent, receipt)
        if dice.random() < 0.2:
            ids = [entry.id for entry in agent.transcript()]
            await agent.branch(dice.choice(ids))
        if dice.random() < 0.15:
            child = await agent.fork(f"{agent.session_id[:40]}.{turn}-{dice.randrange(10**6)}")
            stored = child.entries()
            if stored:
                tell(child, Receipt(tuple(stored), stored[0].seq, stored[-1].seq))
            agent = child


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2])))
