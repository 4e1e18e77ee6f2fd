"""What everybody is shown of a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct

from perdure.runtimes.table import Kind

RuntimeStatus = Literal["idle", "attached", "lost"]


class RuntimeLook(Struct, frozen=True):
    """A runtime as it is now. Looking starts none.

    `idle`: none runs, and the next need starts one. `attached`: it runs, and can be reached.
    `lost`: the last one was lost, for the `cause`; the next need starts another, or, where it is
    remote, waits for it. `since` is when that began. `runtime_id` is of the life that runs, or was
    lost. `sessions` is how many it has served in that life, `calls` how many are in flight.
    `troubles` says of MCP servers why their tools are missing; it is known in this process only.
    """

    name: str
    kind: Kind
    status: RuntimeStatus
    since: datetime
    runtime_id: str | None
    workspace: str | None
    sessions: int
    calls: int
    cause: str | None
    troubles: Mapping[str, str] = {}
