"""The fixtures that hold every test to account do catch what they are for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = {
    "event loop was blocked": """
        import time

        async def test_it():
            time.sleep(1.3)
        """,
    "tasks were left running": """
        import asyncio

        async def test_it():
            test_it.task = asyncio.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
        """,
    "threads were left running": """
        import threading

        def test_it():
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        """,
    "1 passed": """
        import asyncio

        async def test_it():
            await asyncio.to_thread(lambda: None)
            await asyncio.sleep(1.2)
        """,
}


@pytest.mark.parametrize("outcome", CASES)
def test_the_fixtures_catch(outcome: str, tmp_path: Path) -> None:
    own = Path(__file__).with_name("conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(own)
    lines = CASES[outcome].split("\n")
    (tmp_path / "test_it.py").write_text("\n".join(line[8:] for line in lines))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    ran = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in ran.stdout, ran.stdout + ran.stderr
