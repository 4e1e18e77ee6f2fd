"""All runtimes of a server: those that it was told of, and those that dialed in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from perdure.errors import ConfigurationError
from perdure.runtimes.late import LateCall
from perdure.runtimes.table import McpServer, RuntimeTable, parse_mcp, parse_runtimes
from perdure.server.config import FILE_NAME, Settings
from perdure.server.runtime.hosted import HostedSlot
from perdure.server.runtime.look import RuntimeLook
from perdure.server.runtime.remote import RemoteSlot
from perdure.server.runtime.slot import Slot
from perdure.server.runtime.toolbox import Toolbox

LOCAL = "local"
"""The runtime that every server has: in its own process, over the setting `workspace`."""

_GUESTS = 1_000


class Runtimes:
    """The runtimes by name. A remote one that no table names is its principal's alone.

    `default` is the runtime of sessions that chose none; None: they have no tools of a workspace.
    `on_late` stores a late result, or knows that it is stored already, and is asked again until it
    returns; while it is None late results stay with their runtimes.
    """

    def __init__(
        self,
        tables: Mapping[str, RuntimeTable],
        mcp: Mapping[str, McpServer],
        *,
        workspace: str,
        default: str | None = None,
    ) -> None:
        self.default = default
        self.on_late: Callable[[LateCall], Awaitable[None]] | None = None
        self.on_change: Callable[[str, str | None, bool], object] | None = None
        """Hears the name of a runtime that is not what it was, whose it is, and if all see it."""

        self._slots: dict[str, Slot] = {}
        self._guests: dict[tuple[str | None, str], RemoteSlot] = {}
        for name, table in {LOCAL: RuntimeTable(), **tables}.items():
            if table.kind == "remote":
                self._slots[name] = RemoteSlot(name, table, is_shared=True)
                continue
            chosen = {
                key: server
                for key, server in mcp.items()
                if server.runtimes is None or name in server.runtimes
            }
            self._slots[name] = HostedSlot(name, table, table.workspace or workspace, chosen)
        for slot in self._slots.values():
            slot.on_change = self._tell

    @property
    def names(self) -> Sequence[str]:
        """The names of the runtimes that the server was told of."""
        return tuple(self._slots)

    def toolbox(
        self, name: str, *, session_id: str, turn_id: str, owner: str | None = None
    ) -> Toolbox:
        """The tools of a runtime for a turn of a session of this owner; starts nothing.

        A remote runtime that nobody knows yet is waited for when it is needed.
        """
        return Toolbox(self._slots.get(name) or self.guest(name, owner), session_id, turn_id)

    def check(self, name: str, owner: str | None = None) -> None:
        """Returns if sessions of this owner may choose this runtime: known, or dialed in for them.

        Raises:
            ConfigurationError: there is none of this name, or it is somebody else's.

        """
        guest = self._guests.get((owner, name))
        if name not in self._slots and (guest is None or guest.look().runtime_id is None):
            raise self._nowhere(name)

    def _nowhere(self, name: str) -> ConfigurationError:
        return ConfigurationError(
            f"there is no runtime {name!r}; there are {', '.join(self.names)}, and those that "
            "dial in with perdure runtime --name"
        )

    def guest(self, name: str, owner: str | None) -> RemoteSlot:
        """The place of a runtime that dials in, for the sessions of its owner.

        Raises:
            ConfigurationError: the name is that of a runtime which the server starts itself.

        """
        configured = self._slots.get(name)
        if isinstance(configured, RemoteSlot):
            return configured
        if configured is not None:
            raise ConfigurationError(
                f"the runtime {name!r} is one that the server starts itself; dial in by another "
                "name, with --name"
            )
        key = (owner, name)
        if key not in self._guests:
            self._forget_guests()
            self._guests[key] = RemoteSlot(name, RuntimeTable(kind="remote"), owner)
            self._guests[key].on_change = self._tell_of_guest
        return self._guests[key]

    def looks(self, may_see: Callable[[str | None], bool]) -> list[RuntimeLook]:
        """What is shown of every runtime to whom may see those of this owner; starts none."""
        guests = [
            slot
            for slot in self._guests.values()
            if slot.look().runtime_id is not None and may_see(slot.owner)
        ]
        return [slot.look() for slot in (*self._slots.values(), *guests)]

    async def close(self) -> None:
        """Ends what the server started, and lets the others go, each whatever becomes of one."""
        slots = (*self._slots.values(), *self._guests.values())
        closing = [asyncio.ensure_future(slot.close()) for slot in slots]
        await asyncio.wait(closing)
        for each in closing:
            each.result()

    def _tell(self, slot: Slot) -> None:
        if self.on_change is not None:
            self.on_change(slot.name, None, True)

    def _tell_of_guest(self, slot: Slot) -> None:
        if self.on_change is not None:
            assert isinstance(slot, RemoteSlot)
            self.on_change(slot.name, slot.owner, False)

    def _forget_guests(self) -> None:
        """Only so many are remembered; one that is attached is not forgotten."""
        for key, slot in tuple(self._guests.items()):
            if len(self._guests) < _GUESTS:
                return
            if slot.look().status != "attached" and not slot.look().calls:
                del self._guests[key]


def make_runtimes(settings: Settings) -> Runtimes:
    """The runtimes of these settings; none is started.

    Raises:
        ConfigurationError: a table is not valid; names the file, the table and the key.

    """
    tables = parse_runtimes(settings.tables.get("runtimes"), FILE_NAME)
    mcp = parse_mcp(settings.tables.get("mcp"), FILE_NAME)
    known = {LOCAL, *tables}
    for name, server in mcp.items():
        if missing := sorted(set(server.runtimes or ()) - known):
            raise ConfigurationError(
                f"[mcp.{name}] in {FILE_NAME}: there is no runtime {', '.join(missing)}; there "
                f"are {', '.join(sorted(known))}"
            )
        if remote := [each for each in server.runtimes or () if _is_remote(tables, each)]:
            raise ConfigurationError(
                f"[mcp.{name}] in {FILE_NAME}: {', '.join(remote)} is remote: write the table into "
                f"the {FILE_NAME} of the folder where perdure runtime is started"
            )
    runtimes = Runtimes(tables, mcp, workspace=settings.workspace, default=settings.runtime or None)
    if runtimes.default is not None and runtimes.default not in known:
        raise ConfigurationError(
            f"the setting runtime names {runtimes.default!r}; there are "
            f"{', '.join(sorted(known))}, and those that a table [runtimes.NAME] in {FILE_NAME} "
            "makes"
        )
    return runtimes


def _is_remote(tables: Mapping[str, RuntimeTable], name: str) -> bool:
    table = tables.get(name)
    return table is not None and table.kind == "remote"
