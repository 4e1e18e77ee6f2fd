"""What a routine is to do: what somebody wrote of it, checked, and made complete.

`Wanted` is what can be written, the same in the API and in `perdure.toml`; a `Definition` is what
is stored, with nothing left open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from perdure.codec import clean_text, encode
from perdure.entry import File, Text
from perdure.errors import InvalidRoutineError, InvalidSessionIdError
from perdure.fact import AfterOutage, Origin, Overlap, RoutineDefined
from perdure.server.keeping.identity import id_problem
from perdure.server.routine.schedule import Schedule, find_zone, local
from perdure.store import check_session_id

MAX_MESSAGE_BYTES = 32 * 1024
"""Of a routine's message, which is in memory as long as the routine is."""

MAX_YEAR = 2999
_BEYOND = f"it is not between the years 1970 and {MAX_YEAR}"
MAX_JITTER_S = 24 * 3600.0
MAX_SPAN_S = 10 * 366 * 24 * 3600.0
MAX_RESENDS = 10

Span = Annotated[float, Meta(ge=1, le=MAX_SPAN_S)]
_SCHEDULE = ("cron", "every_s", "starts_at", "at", "zone")
_MESSAGE = ("text", "parts")


class Wanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person writes of a routine; what is left out has its default, or stays as it is."""

    cron: str | UnsetType | None = UNSET
    zone: str | UnsetType = UNSET
    every_s: Span | UnsetType | None = UNSET
    starts_at: datetime | UnsetType | None = UNSET
    at: datetime | UnsetType | None = UNSET
    text: str | UnsetType = UNSET
    parts: tuple[Text | File, ...] | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    new_session: bool | UnsetType = UNSET
    loop: str | UnsetType | None = UNSET
    fork_of: str | UnsetType | None = UNSET
    after_outage: AfterOutage | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    deadline_s: Span | UnsetType | None = UNSET
    jitter_s: Annotated[float, Meta(ge=0, le=MAX_JITTER_S)] | UnsetType = UNSET
    resends: Annotated[int, Meta(ge=0, le=MAX_RESENDS)] | UnsetType = UNSET

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that were written."""
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not UNSET}


class Definition(Struct, frozen=True, omit_defaults=True):
    """What a routine does. `session_id` None is a new session for each run."""

    parts: tuple[Text | File, ...]
    cron: str | None = None
    zone: str = "UTC"
    every_s: float | None = None
    starts_at: datetime | None = None
    at: datetime | None = None
    session_id: str | None = None
    incarnation: str | None = None
    loop: str | None = None
    fork_of: str | None = None
    after_outage: AfterOutage = "run_once"
    overlap: Overlap = "skip"
    deadline_s: float | None = None
    jitter_s: float = 0.0
    resends: int = 0
    origin: Origin = "api"
    owner: str | None = None

    @property
    def schedule(self) -> Schedule:
        """When it is due."""
        return Schedule(self.cron, self.zone, self.every_s, self.starts_at, self.at)

    def as_fact(self, after: datetime) -> RoutineDefined:
        """The fact that stores it."""
        return RoutineDefined(after=after, **{n: getattr(self, n) for n in _FIELDS})

    def does_what(self, other: Definition) -> bool:
        """Whether both say the same, wherever an interval is counted from."""
        return _comparable(self) == _comparable(other)


_FIELDS = Definition.__struct_fields__


def read_definition(fact: RoutineDefined) -> Definition | None:
    """The definition that a fact stores; None where a newer version wrote what this cannot send."""
    if not all(isinstance(part, Text | File) for part in fact.parts):
        return None
    return Definition(**{name: getattr(fact, name) for name in _FIELDS})


def check_routine_id(routine_id: str) -> str:
    """Returns the id unchanged if a routine can have it.

    Raises:
        InvalidRoutineError: it breaks the rules of session ids, or has more than 200 bytes.

    """
    if (problem := id_problem(routine_id)) is not None:
        raise InvalidRoutineError("routine_id", problem)
    return routine_id


def make_schedule(wanted: Wanted, now: datetime, zone_name: str = "UTC") -> Schedule:
    """The schedule that was written; an interval begins now where it does not say.

    `zone_name` is the zone where none was written.

    Raises:
        InvalidRoutineError: it is none.

    """
    given = {"zone": zone_name} | wanted.given(*_SCHEDULE)
    zone = find_zone(given["zone"])
    for name in ("starts_at", "at"):
        moment = given.get(name)
        if moment is not None:
            try:
                aware = moment.tzinfo is not None
                given[name] = moment.astimezone(UTC) if aware else local(moment, zone)
            except OverflowError as error:
                raise InvalidRoutineError(name, _BEYOND) from error
            if not 1970 <= given[name].year <= MAX_YEAR:
                raise InvalidRoutineError(name, _BEYOND)
    if given.get("every_s") is not None and given.get("starts_at") is None:
        given["starts_at"] = now.replace(microsecond=0)
    schedule = Schedule(**given)
    schedule.check()
    return schedule


def define(
    routine_id: str, wanted: Wanted, now: datetime, base: Definition | None = None
) -> Definition:
    """The definition that was written: a new one, or a change of `base`.

    A schedule, and a message, is replaced as a whole; its zone stays unless another is given.
    Whether there is such a session or loop is not looked at.

    Raises:
        InvalidRoutineError: a field is missing or wrong, and which.

    """
    given = wanted.given(*_SCHEDULE)
    made = base if base is not None else Definition(parts=())
    if base is not None and list(given) == ["zone"]:
        made = replace(made, zone=find_zone(given["zone"]).key)
    elif given or base is None:
        schedule = make_schedule(wanted, now, base.zone if base is not None else "UTC")
        made = replace(made, **asdict(schedule))
    if wanted.given(*_MESSAGE) or base is None:
        made = replace(made, parts=_message(wanted))
    policies = ("after_outage", "overlap", "deadline_s", "jitter_s", "resends", "loop", "fork_of")
    made = replace(made, **wanted.given(*policies))
    return _with_session(routine_id, wanted, made, base)


def _with_session(
    routine_id: str, wanted: Wanted, made: Definition, base: Definition | None
) -> Definition:
    is_new = wanted.given("new_session").get("new_session")
    if is_new is None:
        has_id = wanted.session_id is not UNSET
        is_new = base is not None and base.session_id is None and not has_id
    if is_new:
        if wanted.session_id is not UNSET:
            raise InvalidRoutineError(
                "session_id", "with new_session each run gets a session of its own"
            )
        same_fork = base is not None and base.fork_of == made.fork_of
        incarnation = base.incarnation if base is not None and same_fork else None
        made = replace(made, session_id=None, incarnation=incarnation if made.fork_of else None)
    else:
        same = base.session_id if base is not None else None
        session_id = wanted.given("session_id").get("session_id", same or routine_id)
        try:
            check_session_id(session_id)
        except InvalidSessionIdError as error:
            raise InvalidRoutineError("session_id", error.reason) from error
        incarnation = made.incarnation if wanted.session_id is UNSET and same else None
        made = replace(made, session_id=session_id, incarnation=incarnation)
    if made.fork_of is not None:
        if not is_new:
            raise InvalidRoutineError("fork_of", "only new sessions are forks: set new_session")
        try:
            check_session_id(made.fork_of)
        except InvalidSessionIdError as error:
            raise InvalidRoutineError("fork_of", error.reason) from error
        if made.loop is not None:
            raise InvalidRoutineError("loop", "a fork has the loop of the session it is made of")
    return made


def _message(wanted: Wanted) -> tuple[Text | File, ...]:
    given = wanted.given(*_MESSAGE)
    if len(given) != 1:
        raise InvalidRoutineError("text", 'a routine has a message: either "text" or "parts"')
    parts = (Text(clean_text(given["text"])),) if "text" in given else tuple(given["parts"])
    for part in parts:
        if isinstance(part, File) and (part.data is None) == (part.url is None):
            raise InvalidRoutineError("parts", 'a file has either "data" (base64) or "url"')
    if not any(isinstance(part, File) or part.text for part in parts):
        raise InvalidRoutineError("text", "the message is empty")
    if len(encode(list(parts))) > MAX_MESSAGE_BYTES:
        raise InvalidRoutineError(
            "parts",
            f"the message has more than {MAX_MESSAGE_BYTES} bytes; send the address of a file",
        )
    return parts


def _comparable(definition: Definition) -> dict[str, Any]:
    fields = asdict(definition)
    for name in ("starts_at", "incarnation", "origin", "owner"):
        del fields[name]
    return fields


def start_of(schedule: Schedule, due: datetime, jitter_s: float, fraction: float) -> datetime:
    """When the run of a due time starts: with jitter, but always before the next is due."""
    if not jitter_s:
        return due
    following = schedule.next_after(due)
    most_s = jitter_s
    if following is not None:
        most_s = min(most_s, (following - due).total_seconds() * 0.9)
    return due + timedelta(seconds=round(most_s * fraction, 3))
