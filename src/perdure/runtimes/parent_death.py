"""Has a process end when its parent does, even while it stands still."""

from __future__ import annotations

import os
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int) -> None:
    """From here on the death of the parent sends this process a signal, where Linux can.

    If the parent has died already, the process ends now.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
