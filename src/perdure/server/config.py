"""The server's settings: defaults, then `perdure.toml`, then `PERDURE_…`, then the command line.

A later source wins, key by key. A key that does not exist and a value of the wrong type are refused
with the key and the place it came from.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from perdure.errors import ConfigurationError
from perdure.server.session.limit import Limits
from perdure.stores import shown_url

FILE_NAME = "perdure.toml"
HOOKS_NAME = "hooks.json"
PREFIX = "PERDURE_"

SAFE_TOKEN_CHARS = 16
"""A token that others can try from elsewhere has so many at least."""

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


T = TypeVar("T", bound=Struct)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. Relative paths are relative to the working folder.

    `store` None is a SQLite file in `data`; `loop` None is the first one that can run here, and
    `loops` are the `module:attribute`s that a session may choose beside it. `runtime` None gives
    sessions that choose none no tools of a workspace. `token` None is one
    that is made at first start and kept in `data`; `tokens` None is `tokens.toml` there. `hosts`
    are further Host names to answer to, `origins` further origins (`https://name`) that a browser
    may send; `proxies` are addresses or networks whose X-Forwarded-Proto and X-Forwarded-For count.
    `max_streams` and `requests_per_s` are for each principal. What bounds sessions and
    turns is explained in `limit.Limits`. `retain_days` None keeps sessions for ever; where it
    is set old ones are named in the log, and deleted only where `retain_dry_run` is false.
    `approve` are patterns (`*`, `?`, `[…]`) of the tools whose calls wait for a person.
    `hooks` None is a `hooks.json` in the working folder and one in `data`, if they are there.

    `tables` are the file's tables, as they are: each belongs to the room that reads it, with
    `read_table`. Neither the environment nor the command line sets them.
    """

    store: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8377
    loop: str | None = None
    loops: tuple[str, ...] = ()
    offered_loops: Literal["all", "named"] = "all"
    runtime: str | None = None
    workspace: str = "."
    data: str = "perdure-data"
    hooks: str | None = None
    token: Annotated[str, Meta(pattern=r"^[!-~]{1,512}\Z")] | None = None
    tokens: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    heartbeat_s: Annotated[float, Meta(gt=0, le=14)] = 10.0
    max_streams: Positive = 500
    requests_per_s: Annotated[float, Meta(ge=1)] = 1000.0
    max_body_bytes: Positive = 32 * 1024 * 1024
    backlog_bytes: Positive = 4 * 1024 * 1024
    snapshot_every: Positive = Limits.snapshot_every
    turn_limit_s: Seconds | None = Limits.turn_limit_s
    quarantine_after: Positive = Limits.quarantine_after
    idle_after_s: Seconds = Limits.idle_after_s
    max_live_actors: Positive = Limits.max_live_actors
    approve: tuple[str, ...] = ()
    approval_limit_s: Seconds | None = Limits.approval_limit_s
    compact_at: Annotated[float, Meta(gt=0, le=1)] | None = Limits.compact_at
    retain_days: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    retain_dry_run: bool = True
    grace_s: Annotated[float, Meta(ge=0)] = 5.0
    log_format: Literal["text", "json"] = "text"
    tables: Mapping[str, Mapping[str, Any]] = {}

    def __repr__(self) -> str:
        """Everything but the secrets."""
        shown = {name: getattr(self, name) for name in NAMES}
        shown["token"] = None if self.token is None else "…"
        shown["store"] = None if self.store is None else shown_url(self.store)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def store_url(self) -> str:
        """The store's URL."""
        return self.store or f"sqlite:///{Path(self.data) / 'sessions.db'}"

    @property
    def tokens_path(self) -> Path:
        """The file of tokens, which need not be there unless `tokens` names it."""
        return Path(self.tokens or Path(self.data) / "tokens.toml")

    @property
    def limits(self) -> Limits:
        """What bounds sessions and turns."""
        return Limits(**{each.name: getattr(self, each.name) for each in fields(Limits)})

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def hook_files(self) -> tuple[Path, ...]:
        """The files of hooks to read."""
        if self.hooks is not None:
            return (Path(self.hooks),)
        usual = (Path(HOOKS_NAME), Path(self.data) / HOOKS_NAME)
        return tuple(path for path in usual if path.exists())

    def read_table(self, name: str, kind: type[T]) -> T:
        """The file's table of this name as a Struct of this kind, which refuses unknown keys.

        Raises:
            ConfigurationError: it does not fit; names the file, the key and what there is.

        """
        try:
            return msgspec.convert(self.tables.get(name, {}), kind)
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"[{name}] in {FILE_NAME} is not valid: {error}; there are "
                + ", ".join(kind.__struct_fields__)
            ) from error

    def check(self) -> None:
        """Refuses combinations that cannot be meant.

        Raises:
            ConfigurationError: the server would be open to others with a token nobody chose or one
                that is easy to guess, its tokens file is not there, a proxy has no address, or its
                workspace is no folder.

        """
        has_tokens = self.tokens_path.exists()
        if not self.is_loopback and self.token is None and not has_tokens:
            raise ConfigurationError(
                f"host {self.host!r} is reachable from other machines: set a token of your own "
                f"first ({PREFIX}TOKEN, or token in {FILE_NAME}), make tokens for people (perdure "
                "token add), or listen on 127.0.0.1"
            )
        for proxy in self.proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                text = f"proxies has {proxy!r}, which is no address and no network: {error}"
                raise ConfigurationError(text) from error
        is_far = not self.is_loopback or self.proxies
        if is_far and self.token is not None and len(self.token) < SAFE_TOKEN_CHARS:
            raise ConfigurationError(
                "the server is reachable from other machines, and the token that is set is easy to "
                f"guess: give it {SAFE_TOKEN_CHARS} characters, or listen on 127.0.0.1 alone"
            )
        if self.tokens is not None and not has_tokens:
            raise ConfigurationError(
                f"there is no tokens file {self.tokens!r}: perdure token add makes it"
            )
        if not Path(self.workspace).is_dir():
            raise ConfigurationError(
                f"the workspace {self.workspace!r} is no folder: create it, or name another"
            )


TABLES = frozenset({"loops", "mcp", "plugins", "routines", "runtimes", "workflows"})
"""The tables that a file may have."""

NAMES = tuple(name for name in Settings.__struct_fields__ if name != "tables")
LISTS = frozenset({"approve", "hosts", "loops", "origins", "proxies"})

EXPLAINED = {
    "store": "where the sessions are: sqlite:///FILE",
    "host": "the address to listen on",
    "port": "the port; 0: any free one",
    "loop": "what answers: shell, provider:model or module:attribute",
    "loops": "further module:attributes that a session may choose, with commas",
    "offered_loops": "all; named: only loops that the settings, plugins or [loops.NAME] name",
    "runtime": "the runtime of sessions that chose none; none: they have no tools of a workspace",
    "workspace": "the folder where tools run",
    "data": "the folder for the server's own files, its token for one",
    "hooks": "a file of hooks; else hooks.json in this folder and in the data folder",
    "token": "the token to ask for, 1 to 512 visible characters, 16 beyond loopback; else made",
    "tokens": "the file of tokens for several people; tokens.toml in the data folder",
    "hosts": "further Host names to answer to, with commas",
    "origins": "further origins that a browser may send (https://name), with commas",
    "proxies": "addresses of proxies in front, whose X-Forwarded-Proto and -For count, with commas",
    "heartbeat_s": "seconds between the heartbeats of a stream",
    "max_streams": "so many streams each principal may have open at once",
    "requests_per_s": "so many requests a second each principal may make, over some seconds",
    "max_body_bytes": "the largest body of a request that is taken",
    "backlog_bytes": "how much may wait for a viewer that does not read, before it is cut off",
    "snapshot_every": "the state of a session is kept every so many entries",
    "turn_limit_s": "a turn that runs for longer fails; none: it may take as long as it takes",
    "quarantine_after": "a turn in which the server died that often is failed",
    "idle_after_s": "a session that nobody uses leaves memory after so long",
    "max_live_actors": "so many sessions are in memory at most",
    "approve": "tools whose calls wait for an approval, by name or pattern, with commas",
    "approval_limit_s": "a call that nobody approves for so long counts as refused",
    "compact_at": "a context that is full to this share is compacted before a turn; none: never",
    "retain_days": "sessions of that age are named in the log, as what would be deleted",
    "retain_dry_run": "false: they are deleted",
    "grace_s": "how long running turns may go on when the server is told to stop",
    "log_format": "the log's lines on standard error: text or json",
}
"""What each setting is, in one line."""


def settings_of(given: Settings | Mapping[str, object] | None) -> Settings:
    """The settings that are given as they are, by name, or not at all; nothing else is read.

    Raises:
        ConfigurationError: a name is unknown or a value is of the wrong type; says which.

    """
    if isinstance(given, Settings):
        return given
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(
            f"settings are a Settings or a mapping of names to values, not {given!r}"
        )
    values = {name: _split(name, value) for name, value in (given or {}).items()}
    tables: Any = values.pop("tables", {})
    return Settings(**_checked(values, repr, strict=False), tables=tables)


def load_settings(
    arguments: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The settings of a server that is started in `folder` with these arguments.

    An argument that is None was not given.

    Raises:
        ConfigurationError: a key is unknown or a value is of the wrong type; says which, and where.

    """
    environment = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    found |= _from_file((folder or Path()) / FILE_NAME)
    found |= _from_environment(environment)
    found |= _checked(
        {key: _split(key, value) for key, value in (arguments or {}).items() if value is not None},
        lambda key: f"--{key.replace('_', '-')}",
        strict=False,
    )
    return Settings(**found)


def _split(name: str, value: object) -> object:
    """The items of a list that was given as one text."""
    if name in LISTS and isinstance(value, str):
        return [each for each in value.split(",") if each]
    return value


def _from_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    names = {name for name in TABLES & content.keys() if _is_table(name, content[name])}
    tables = {name: content.pop(name) for name in names}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigurationError(f"{name!r} in {path} is a table: write [{name}]")
    found = _checked(content, lambda key: f"{key!r} in {path}", strict=True)
    return found | {"tables": tables} if tables else found


def _is_table(name: str, value: object) -> bool:
    """Whether it is meant as a table: `loops` can be a setting, too."""
    return name not in NAMES or isinstance(value, dict)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Other programs may use the prefix too: only what is nearly a setting is refused."""
    given: dict[str, object] = {}
    known = {PREFIX + name.upper(): name for name in NAMES}
    for variable, value in environment.items():
        if variable in known:
            given[known[variable]] = _split(known[variable], value)
        elif variable.startswith(PREFIX):
            near = difflib.get_close_matches(variable, known, 1, 0.88)
            if near:
                raise ConfigurationError(f"there is no {variable}; did you mean {near[0]}?")
    return _checked(given, lambda key: PREFIX + key.upper(), strict=False)


def _checked(given: Mapping[str, object], where: Any, *, strict: bool) -> dict[str, Any]:
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    del types["tables"]
    checked: dict[str, Any] = {}
    for key, value in given.items():
        if key not in types:
            raise ConfigurationError(
                f"{where(key)} is no setting; there are {', '.join(sorted(types))}, and the tables "
                + ", ".join(f"[{name}]" for name in sorted(TABLES))
            )
        try:
            checked[key] = msgspec.convert(value, types[key], strict=strict)
        except msgspec.ValidationError as error:
            shown = "" if key == "token" else f" (it is {value!r})"
            raise ConfigurationError(f"{where(key)} is not valid: {error}{shown}") from error
    return checked
