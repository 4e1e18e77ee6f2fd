"""The routines of `perdure.toml`: a table `[routines.NAME]` each, made to be at every start.

The file says what such a routine does, and a person whether it rests: one that was paused stays so.
One that is no longer in the file is paused, and keeps its history.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure import clock
from perdure.errors import ConfigurationError, InvalidRoutineError, PerdureError
from perdure.fact import RoutineSwitched
from perdure.server.routine.definition import Wanted, check_routine_id, define
from perdure.server.routine.registry import RoutineRegistry
from perdure.server.routine.routine import Routine

_log = logging.getLogger("perdure.routine")

TABLE = "routines"
_GONE = "it is no longer in perdure.toml"


def read_table(tables: Mapping[str, Any]) -> dict[str, Wanted]:
    """The routines of the configuration file, by name.

    Raises:
        ConfigurationError: one is wrong; says which, which key, and what is allowed.

    """
    found: dict[str, Wanted] = {}
    given = tables.get(TABLE, {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"[{TABLE}] is a table of tables: [{TABLE}.NAME]")
    for name, table in given.items():
        place = f"[{TABLE}.{name}] in perdure.toml"
        try:
            wanted = msgspec.convert(table, Wanted)
            define(check_routine_id(name), wanted, clock.now())
        except msgspec.ValidationError as error:
            keys = ", ".join(Wanted.__struct_fields__)
            raise ConfigurationError(f"{place}: {error}; its keys are {keys}") from error
        except InvalidRoutineError as error:
            raise ConfigurationError(f"{place}: {error}") from error
        found[name] = wanted
    return found


async def apply_table(registry: RoutineRegistry, wanted: Mapping[str, Wanted]) -> None:
    """Makes the routines be what the file says. What cannot be is logged, and stays as it was."""
    for name, each in wanted.items():
        try:
            await _apply(registry, name, each)
        except PerdureError as error:
            _log.error("[%s.%s]: %s", TABLE, name, error)
    for routine in registry.keeper.kept():
        definition = routine.state.definition
        is_ours = definition is not None and definition.origin == "configuration"
        if is_ours and routine.routine_id not in wanted and routine.state.status == "enabled":
            await _rest(registry, routine)


async def _apply(registry: RoutineRegistry, name: str, wanted: Wanted) -> None:
    known = registry.keeper.find_kept(name)
    if known is None:
        await registry.create(name, wanted, origin="configuration")
        return
    definition = known.state.definition
    if definition is None or definition.origin != "configuration":
        _log.error("[%s.%s]: a routine of this id was made by the API, and stays", TABLE, name)
        return
    was_gone = known.state.status == "paused" and known.state.why == _GONE
    made = define(name, wanted, clock.now())
    is_moved = bool(wanted.given("starts_at")) and made.starts_at != definition.starts_at
    if was_gone or is_moved or not definition.does_what(made):
        await registry.redefine(known, wanted, "enabled" if was_gone else None, whole=True)


async def _rest(registry: RoutineRegistry, routine: Routine) -> None:
    async def step() -> None:
        await routine.append(RoutineSwitched(status="paused", why=_GONE))

    try:
        await registry.keeper.hold(routine, step)
    except PerdureError as error:
        _log.error("routine %r: %s", routine.routine_id, error)
