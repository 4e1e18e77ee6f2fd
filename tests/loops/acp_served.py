"""The tests' agent as `perdure serve --loop tests.loops.acp_served:agent` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from perdure.loop import Loop
from perdure.loops import Acp

AGENT = Path(__file__).with_name("acp_agent.py")


def agent() -> Loop:
    """The loop of one run."""
    folder = Path.cwd()
    (folder / "sessions").mkdir(exist_ok=True)
    env = {"AGENT_SESSIONS": str(folder / "sessions")}
    return Acp([sys.executable, str(AGENT)], folder, env=env, grace_s=0.3)()
