"""What stands around the turns of this server: its hooks, its rules of approval, its tools.

A call passes the hooks first: `deny` is final, `allow` needs no person. Then come the patterns of
the setting `approve`. Its tool is a plugin's, or else one of the session's runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from perdure.entry import Json, ToolCall, ToolResult
from perdure.errors import ConfigurationError, HookRefusedError
from perdure.fact import HookRan
from perdure.hook import (
    CompactTrigger,
    HookEvent,
    HookOutcome,
    Notification,
    PostToolUse,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    UserPromptSubmit,
)
from perdure.loop import Allowed, Refused, ToolSpec, Verdict, Waits
from perdure.server.hook.hooks import Hooks, go_on
from perdure.server.hook.transcript import Transcripts
from perdure.server.plugin_tool import PluginTools
from perdure.server.runtime.runtimes import Runtimes
from perdure.server.session.batch import Input
from perdure.server.session.surroundings import EndSource, NoTools, Scope, StartSource, Toolbox


class ServerSurroundings:
    """Hooks, rules and tools as the one port that actors ask."""

    def __init__(
        self,
        hooks: Hooks | None = None,
        *,
        approve: Sequence[str] = (),
        plugin_tools: PluginTools | None = None,
        runtimes: Runtimes | None = None,
        transcripts: Transcripts | None = None,
    ) -> None:
        self._transcripts = transcripts
        self._full_names: dict[tuple[str | None, str | None], Mapping[str, str]] = {}
        self._hooks = hooks or Hooks((), folder=Path())
        self._approve = tuple(approve)
        self._plugin_tools = plugin_tools
        self._runtimes = runtimes

    @property
    def hears_starts(self) -> bool:
        """Whether a hook wants to be told of starts or ends."""
        return self._hooks.has(SessionStart) or self._hooks.has(SessionEnd)

    def check_runtime(self, name: str, owner: str | None, /) -> None:
        """Returns if sessions of this owner may choose this runtime."""
        if self._runtimes is None:
            raise ConfigurationError(f"there is no runtime {name!r}: this server has none")
        self._runtimes.check(name, owner)

    def toolbox(self, scope: Scope, /) -> Toolbox:
        """The tools of the turn's runtime, and those of plugins."""
        there: Toolbox = NoTools()
        if self._runtimes is not None and (name := scope.runtime or self._runtimes.default):
            turn_id = scope.turn_id or ""
            there = self._runtimes.toolbox(
                name, session_id=scope.session_id, turn_id=turn_id, owner=scope.owner
            )
            there = _Heard(there, partial(self._hear, scope))
        if self._plugin_tools is None or not self._plugin_tools.names:
            return there
        return _Both(self._plugin_tools, there, scope)

    async def started(self, scope: Scope, source: StartSource, /) -> None:
        """SessionStart."""
        event = SessionStart(session_id=scope.session_id, turn_id=scope.turn_id, source=source)
        await self._fire(event, scope)

    async def begin(self, scope: Scope, given: Input, /) -> None:
        """UserPromptSubmit."""
        event = UserPromptSubmit(
            session_id=scope.session_id,
            turn_id=scope.turn_id,
            prompt=given.message.text,
            source=given.source,
        )
        outcome = await self._fire(event, scope)
        if outcome.refused is not None:
            raise HookRefusedError(event.name, outcome.refused)

    async def permit(self, scope: Scope, call: ToolCall, /) -> Verdict:
        """PreToolUse, then the patterns of tools that need an approval."""
        event = PreToolUse(
            session_id=scope.session_id,
            turn_id=scope.turn_id,
            tool_name=call.name,
            tool_input=call.arguments,
            call_id=call.call_id,
            full_name=self._full_name(scope, call),
        )
        outcome = await self._fire(event, scope)
        arguments = call.arguments if outcome.changed_input is None else outcome.changed_input
        match outcome.permission:
            case "deny":
                return Refused(outcome.reason or "a hook refused this call")
            case "ask":
                return Waits(outcome.reason, outcome.changed_input)
            case "allow":
                return Allowed(arguments)
            case None:
                if any(fnmatchcase(call.name, pattern) for pattern in self._approve):
                    return Waits(None, outcome.changed_input)
                return Allowed(arguments)

    async def called(self, scope: Scope, call: ToolCall, result: ToolResult, /) -> None:
        """PostToolUse."""
        event = PostToolUse(
            session_id=scope.session_id,
            turn_id=scope.turn_id,
            tool_name=call.name,
            tool_input=call.arguments,
            call_id=call.call_id,
            result=result,
            full_name=self._full_name(scope, call),
        )
        await self._fire(event, scope)

    async def waits(self, scope: Scope, calls: Sequence[ToolCall], /) -> None:
        """Notification: somebody is waited for."""
        names = ", ".join(call.name for call in calls)
        event = Notification(
            session_id=scope.session_id,
            turn_id=scope.turn_id,
            message=f"The session waits for an approval of {names}",
        )
        await self._fire(event, scope)

    async def finish(self, scope: Scope, said: str, again: int, /) -> str | None:
        """Stop."""
        event = Stop(
            session_id=scope.session_id,
            turn_id=scope.turn_id,
            stop_hook_active=again > 0,
            last_assistant_message=said,
        )
        outcome = await self._fire(event, scope)
        return go_on(outcome, so_far=again, session_id=scope.session_id)

    async def compacting(self, scope: Scope, /) -> None:
        """PreCompact."""
        trigger: CompactTrigger = "manual" if scope.turn_id is None else "auto"
        event = PreCompact(session_id=scope.session_id, turn_id=scope.turn_id, trigger=trigger)
        outcome = await self._fire(event, scope)
        if outcome.refused is not None:
            raise HookRefusedError(event.name, outcome.refused)

    async def ended(self, scope: Scope, source: EndSource, /) -> None:
        """SessionEnd."""
        event = SessionEnd(session_id=scope.session_id, turn_id=scope.turn_id, reason=source)
        await self._fire(event, scope)

    def _hear(self, scope: Scope, specs: Sequence[ToolSpec]) -> None:
        """Keeps the full names of a runtime's tools, as it listed them last."""
        names = {spec.name: spec.full_name for spec in specs if spec.full_name is not None}
        self._full_names.pop(key := (scope.runtime, scope.owner), None)
        if names:
            self._full_names[key] = names

    def _full_name(self, scope: Scope, call: ToolCall) -> str | None:
        if self._plugin_tools is not None and call.name in self._plugin_tools.names:
            return None
        return self._full_names.get((scope.runtime, scope.owner), {}).get(call.name)

    async def deleted(self, session_id: str, /) -> None:
        """No file of the session is kept."""
        if self._transcripts is not None:
            await self._transcripts.forget(session_id)

    async def _fire(self, event: HookEvent, scope: Scope) -> HookOutcome:
        async def note(fact: HookRan) -> None:
            await scope.note([fact])

        if not self._hooks.has(type(event)):
            return HookOutcome()
        transcript = None
        if self._transcripts is not None:
            transcript = partial(self._transcripts.path_of, scope.session_id)

        async def later(fact: HookRan) -> None:
            await scope.later([fact])

        outcome = await self._hooks.fire(event, note=note, transcript=transcript, later=later)
        scope.say(outcome.context)
        if outcome.ends is not None:
            scope.end(outcome.ends)
        return outcome


class _Heard:
    """A runtime's tools, of which somebody hears whenever they are listed."""

    def __init__(self, there: Toolbox, hear: Callable[[Sequence[ToolSpec]], None]) -> None:
        self._there = there
        self._hear = hear

    async def tools(self) -> Sequence[ToolSpec]:
        """Those of the runtime."""
        specs = await self._there.tools()
        self._hear(specs)
        return specs

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs the tool."""
        return await self._there.call(call, arguments, key=key, show=show)

    async def confirm(self, key: str) -> None:
        """Tells the runtime."""
        await self._there.confirm(key)


class _Both:
    """The tools of plugins, and those of a runtime that are called otherwise."""

    def __init__(self, plugin_tools: PluginTools, there: Toolbox, scope: Scope) -> None:
        self._plugin_tools = plugin_tools
        self._there = there
        self._scope = scope

    async def tools(self) -> Sequence[ToolSpec]:
        """All of them."""
        own = await self._plugin_tools.tools()
        there = await self._there.tools()
        return [*own, *(spec for spec in there if spec.name not in self._plugin_tools.names)]

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        """Runs the tool where it is."""
        if call.name not in self._plugin_tools.names:
            return await self._there.call(call, arguments, key=key, show=show)
        return await self._plugin_tools.call(
            call,
            arguments,
            session_id=self._scope.session_id,
            turn_id=self._scope.turn_id or "",
            key=key,
            show=show,
        )

    async def confirm(self, key: str) -> None:
        """Tells the runtime; what a plugin's tool gave was here already."""
        await self._there.confirm(key)
