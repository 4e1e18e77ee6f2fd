"""A real server in a process of its own, to be talked to and to be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

REPO = Path(__file__).parents[1]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


class ServerProcess:
    """`perdure serve` on a folder: the same port and token each time it is started."""

    def __init__(
        self, folder: Path, *, loop: str = "tests.crash.chaos:chaos", options: Sequence[str] = ()
    ) -> None:
        self._options = options
        self.folder = folder
        self.port = free_port()
        self.loop = loop
        self.address = ""
        self.base = f"http://127.0.0.1:{self.port}"
        self.token = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Starts it and returns once it accepts; its log goes to `server.log` in the folder."""
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(REPO / "src"), str(REPO)))}
        env.setdefault("PERDURE_GRACE_S", "0")
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # a server that is started again starts faster
        command = [sys.executable, "-m", "perdure", "serve", "--port", str(self.port)]
        command += ["--store", f"sqlite:///{self.folder / 'sessions.db'}"]
        command += ["--loop", self.loop, "--data", str(self.folder / "data")]
        command += self._options
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=env,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        if not self.address:
            raise AssertionError((self.folder / "server.log").read_text())
        self.token = urlsplit(self.address).query.removeprefix("token=")
        return self

    @property
    def headers(self) -> dict[str, str]:
        """What a program sends along."""
        return {"Authorization": f"Bearer {self.token}"}

    def kill(self) -> None:
        """kill -9, with everything that it started."""
        self._end(signal.SIGKILL)

    def kill_alone(self) -> None:
        """kill -9 of the server only: what it started has to notice by itself."""
        assert self._process is not None
        self._process.kill()
        self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if how is signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        code = process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
