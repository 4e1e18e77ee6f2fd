"""Plugins: what an installed package adds to Perdure, by an entry point of `perdure.plugins`.

An entry point names a `Plugin`, or a function that is given one to fill. Its name is the plugin's.
Nothing is imported before it is asked for. A plugin that cannot be loaded is kept as broken, with
the reason: whoever needs all of them (a server does: a missing hook may be a missing refusal)
calls `check`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.errors import ConfigurationError
from perdure.hook import EVENTS, HookEvent, HookFunction, HookOutcome, OnFailure
from perdure.loop import LoopFactory, as_factory
from perdure.store import SessionStore

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "perdure.plugins"
"""The group of entry points."""

TAKEN_LOOPS = frozenset({"shell"})
TAKEN_SCHEMES = frozenset({"memory", "jsonl", "sqlite", "postgres", "postgresql", "nats"})
"""What plugins cannot call their own: it is Perdure's."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=HookEvent)
HookAnswer = HookOutcome | Awaitable[HookOutcome | None] | None
"""What a hook's function gives: an outcome, or none, at once or when it is awaited."""

StoreOpener = Callable[[str], SessionStore]
"""Opens the store of a URL; nothing is read or written before its first verb."""


class Plugin:
    """What one package adds. Each verb decorates a function, or is called with it."""

    def __init__(self) -> None:
        self.name = ""
        """The name of its entry point, once it is loaded."""
        self.origin = ""
        """The distribution that brought it, with its version."""
        self.tools: list[Callable[..., Any]] = []
        self.loops: dict[str, LoopFactory] = {}
        self.hooks: list[HookFunction] = []
        self.stores: dict[str, StoreOpener] = {}
        self.routes: list[Any] = []

    def tool(self, function: F) -> F:
        """Adds a tool: a function with type hints, whose docstring the model reads."""
        self.tools.append(function)
        return function

    def loop(self, name: str) -> Callable[[F], F]:
        """Adds a loop factory: `perdure serve --loop NAME`, and what a session may choose.

        Raises:
            ConfigurationError: the name is none, or taken; or it is no factory.

        """
        _check(_NAME, name, "loop", {*TAKEN_LOOPS, *self.loops})

        def add(factory: F) -> F:
            self.loops[name] = as_factory(factory, f"the loop {name!r} of a plugin")
            return factory

        return add

    def hook(
        self,
        event: type[E],
        *,
        matcher: str = "",
        timeout_s: float = 60.0,
        on_failure: OnFailure = "continue",
    ) -> Callable[[Callable[[E], HookAnswer]], Callable[[E], HookAnswer]]:
        """Adds a hook: a function of the event, `async` or not, that may give a `HookOutcome`.

        Raises:
            ConfigurationError: there is no such event, or the time limit is none.

        """
        if event not in EVENTS.values():
            raise ConfigurationError(f"{event!r} is no event; there are {', '.join(EVENTS)}")
        if not 0 < timeout_s < float("inf"):
            raise ConfigurationError(f"the time limit of a hook is {timeout_s!r} seconds")

        def add(function: Callable[[E], HookAnswer]) -> Callable[[E], HookAnswer]:
            self.hooks.append(HookFunction(event, function, matcher, timeout_s, on_failure))
            return function

        return add

    def store(self, scheme: str) -> Callable[[F], F]:
        """Adds a kind of store: what opens the URLs that begin with `scheme://`.

        Raises:
            ConfigurationError: it is no scheme, or taken.

        """
        _check(_SCHEME, scheme, "scheme", {*TAKEN_SCHEMES, *self.stores})

        def add(opener: F) -> F:
            self.stores[scheme] = opener
            return opener

        return add

    def route(self, *routes: Any) -> None:
        """Adds Starlette routes under `/v1/plugins/NAME`; they are for admins alone."""
        self.routes.extend(routes)

    def __str__(self) -> str:
        kinds = ("tools", "loops", "hooks", "stores", "routes")
        counts = [f"{kind}: {len(getattr(self, kind))}" for kind in kinds if getattr(self, kind)]
        return f"{self.name} ({', '.join([self.origin, *counts])})"


class Plugins:
    """The plugins that are installed, less those that are `disabled` by name; loaded at first use.

    A disabled plugin is not imported.
    """

    def __init__(self, *, disabled: Iterable[str] = ()) -> None:
        self.disabled = frozenset(disabled)

    @cached_property
    def _found(self) -> tuple[dict[str, Plugin], dict[str, str]]:
        from importlib.metadata import entry_points

        sound: dict[str, Plugin] = {}
        broken: dict[str, str] = {}
        for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
            if entry.name in self.disabled:
                continue
            try:
                if entry.name in sound or entry.name in broken:
                    raise ConfigurationError("two packages bring a plugin of this name")
                plugin = _load(entry)
                _check_apart(plugin, sound)
                sound[entry.name] = plugin
            except (Exception, SystemExit) as error:  # the edge of somebody else's module
                sound.pop(entry.name, None)
                says = str(error) if isinstance(error, ConfigurationError) else repr(error)
                broken[entry.name] = f"{_origin(entry)}, {entry.value!r}: {says}"
        return sound, broken

    @property
    def sound(self) -> Mapping[str, Plugin]:
        """Those that could be loaded, by name."""
        return self._found[0]

    @property
    def broken(self) -> Mapping[str, str]:
        """Why each of the others could not, by name."""
        return self._found[1]

    def check(self) -> None:
        """Returns if there is no broken one.

        Raises:
            ConfigurationError: names each, why, and how to do without it.

        """
        if self.broken:
            named = "; ".join(f"{name!r} ({why})" for name, why in self.broken.items())
            listed = ", ".join(f'"{name}"' for name in sorted({*self.disabled, *self.broken}))
            raise ConfigurationError(
                f"a plugin cannot be loaded: {named}. Mend or uninstall it, or do without what it "
                f"adds: disabled = [{listed}] under [plugins] in perdure.toml"
            )

    def loop(self, name: str) -> LoopFactory | None:
        """The loop factory of this name, if a plugin has it."""
        return next((p.loops[name] for p in self.sound.values() if name in p.loops), None)

    @property
    def loop_names(self) -> tuple[str, ...]:
        """The names of the plugins' loops."""
        return tuple(sorted(name for p in self.sound.values() for name in p.loops))

    def store(self, scheme: str) -> StoreOpener | None:
        """What opens the URLs of this scheme, if a plugin does."""
        return next((p.stores[scheme] for p in self.sound.values() if scheme in p.stores), None)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The plugins' schemes, as `scheme://`."""
        return tuple(sorted(f"{name}://" for p in self.sound.values() for name in p.stores))


def _load(entry: EntryPoint) -> Plugin:
    if not _NAME.fullmatch(entry.name):
        raise ConfigurationError("its name is not of a-z, 0-9, _ and -, beginning with a letter")
    given: object = entry.load()
    if isinstance(given, Plugin):
        plugin = given
    elif callable(given) and not isinstance(given, type):
        plugin = Plugin()
        given(plugin)
    else:
        raise ConfigurationError("it is neither a Plugin nor a function that is given one")
    plugin.name, plugin.origin = entry.name, _origin(entry)
    return plugin


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "no package"


def _check_apart(plugin: Plugin, others: Mapping[str, Plugin]) -> None:
    for other in others.values():
        for kind in ("loops", "stores"):
            both = sorted({*getattr(plugin, kind)} & {*getattr(other, kind)})
            if both:
                raise ConfigurationError(f"the plugin {other.name!r} has {kind} {both} too")


def _check(pattern: re.Pattern[str], name: str, what: str, taken: Iterable[str]) -> None:
    if not pattern.fullmatch(name):
        raise ConfigurationError(f"{name!r} is no name of a {what}: {pattern.pattern}")
    if name in taken:
        raise ConfigurationError(f"the {what} {name!r} is taken")
