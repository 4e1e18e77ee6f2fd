"""A cable between this machine and another one, as far as the kernel is concerned.

The other machine is a network namespace. When the cable is pulled, no packet says so to either
side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest


def tell(request: pytest.FixtureRequest, what: str) -> None:
    """Says it on the terminal, whether the test passes or not."""
    plugins = request.config.pluginmanager
    terminal, capture = map(plugins.get_plugin, ("terminalreporter", "capturemanager"))
    if terminal is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(what)


class NoCableError(Exception):
    """A namespace cannot be made here; the text says why."""


class Cable(NamedTuple):
    """Two ends: `address` is this machine's, and what runs `inside` is at the other one."""

    device: str
    address: str
    inside: tuple[str, ...]

    def pull(self) -> None:
        _ip("link", "set", self.device, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self.device, "up")


@contextmanager
def laid() -> Iterator[Cable]:
    """A cable that is plugged in.

    Raises:
        NoCableError: nothing was made.

    """
    number = os.getpid() % 60_000
    name, near, far = f"pd{number}", f"pdn{number}", f"pdf{number}"
    subnet = f"10.{200 + number // 16_000}.{number // 64 % 250}"
    address, other = f"{subnet}.{number % 63 * 4 + 1}", f"{subnet}.{number % 63 * 4 + 2}"
    if shutil.which("ip") is None:
        raise NoCableError("there is no program ip")
    _ip("netns", "add", name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{address}/30", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "addr", "add", f"{other}/30", "dev", far)
        _ip("-n", name, "link", "set", far, "up")
        yield Cable(near, address, ("ip", "netns", "exec", name))
    finally:
        subprocess.run(["ip", "link", "del", near], capture_output=True, check=False)
        _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NoCableError(f"ip {' '.join(arguments)}: {ran.stderr.strip()}")
