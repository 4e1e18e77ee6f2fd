from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from perdure.entry import Json, Message, Text, ToolCall, ToolResult
from perdure.errors import HookFailedError, HookRefusedError, RuntimeLostError
from perdure.fact import (
    HookRan,
    LateResult,
    MessageJoined,
    RuntimeLost,
    SessionStarted,
    ToolDispatched,
)
from perdure.loop import ToolSpec, Verdict
from perdure.server.journal import JournalStore
from perdure.server.session.batch import Input
from perdure.server.session.limit import Limits
from perdure.server.session.surroundings import (
    EndSource,
    Nothing,
    NoTools,
    Scope,
    StartSource,
    Toolbox,
)
from perdure.testing import Call, Listen, Say, ScriptedLoop, write_script
from perdure.tree import Tree
from perdure.view import model_view
from tests.server.house import ID, House, Loops
from tests.unit.checks import check_model_view


class Around(Nothing):
    """Says what it was told to say, at each point; remembers what it was asked."""

    hears_starts = True

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.ends: list[str] = []
        self.is_ending = False
        self.hold = asyncio.Event()
        self.hold.set()
        self.said: dict[str, Sequence[str]] = {}
        self.reasons: list[str] = []
        self.refuses: str | None = None
        self.lost = False
        self.confirmed: list[str] = []

    async def started(self, scope: Scope, source: StartSource, /) -> None:
        self.starts.append(source)
        scope.say(self.said.get("start", ()))

    async def ended(self, scope: Scope, source: EndSource, /) -> None:
        self.is_ending = True
        await self.hold.wait()
        self.ends.append(source)
        await scope.note([HookRan("SessionEnd", "test", None, None, 0, 0.0, source)])

    async def begin(self, scope: Scope, given: Input, /) -> None:
        if self.refuses is not None and self.refuses in given.message.text:
            raise HookRefusedError("UserPromptSubmit", "not this")
        scope.say(self.said.get("begin", ()))

    async def called(self, scope: Scope, call: ToolCall, result: ToolResult, /) -> None:
        scope.say(self.said.get(call.name, ()))
        if call.name == "last":
            scope.end("enough")

    async def finish(self, scope: Scope, said: str, again: int, /) -> str | None:
        return self.reasons[again] if again < len(self.reasons) else None

    def toolbox(self, scope: Scope, /) -> Toolbox:
        return Box(self)


class Box(NoTools):
    """One tool, somewhere else."""

    def __init__(self, around: Around) -> None:
        self._around = around

    async def tools(self) -> Sequence[ToolSpec]:
        return [ToolSpec("there", "is somewhere", {"type": "object"})]

    async def call(
        self, call: ToolCall, arguments: Json, *, key: str, show: Callable[[str], object]
    ) -> ToolResult:
        if self._around.lost:
            raise RuntimeLostError("r1", "the cable was cut")
        show("on ")
        return ToolResult(call.call_id, (Text(f"on {key}"),), name=call.name)

    async def confirm(self, key: str) -> None:
        self._around.confirmed.append(key)


@pytest.fixture
def around() -> Around:
    return Around()


@pytest.fixture
async def house(store: JournalStore, around: Around) -> AsyncIterator[House]:
    house = House(store, surroundings=around)
    await house.create()
    yield house
    await house.close()


async def view(house: House) -> list[Message]:
    tree = Tree(await house.log())
    found = model_view(tree.path(tree.leaf_id))
    check_model_view(found)
    return found


async def test_a_start_is_told_once_and_a_resume_once_for_each_waking(
    house: House, around: Around
) -> None:
    await house.send("one")
    await house.rest()
    await house.send("two")
    await house.rest()
    assert around.starts == ["startup"]
    house = house.restart()
    await house.registry.look(ID)
    await house.registry.entries(ID)
    assert around.starts == ["startup"]
    await house.send("three")
    await house.rest()
    await house.send("four")
    await house.rest()
    assert around.starts == ["startup", "resume"]
    sources = [e.view.source for e in await house.log() if isinstance(e.view, SessionStarted)]
    assert sources == ["startup", "resume"]


async def test_a_turn_that_is_stopped_before_it_begins_takes_no_start_away(
    house: House, around: Around
) -> None:
    sent = await house.send("one")
    actor = house.registry._roster.get(ID)
    assert actor is not None
    assert actor.turn is not None
    actor.turn.ask_to_end("stopped", None)  # its task has not taken a step yet
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "stopped")]
    assert around.starts == []
    await house.send("two")
    await house.rest()
    assert around.starts == ["resume"]  # that it started up is stored, and is told once at most


async def test_the_fact_of_a_start_is_stored_before_anybody_is_told(
    store: JournalStore, around: Around
) -> None:
    house = House(store, surroundings=around)
    await house.create()
    seen: list[str] = []

    async def started(scope: Scope, source: StartSource, /) -> None:
        seen.extend(await house.types())

    around.started = started  # type: ignore[method-assign] # asks the store in its middle
    await house.send("one")
    await house.rest()
    assert seen[-1] == "session_started"
    await house.close()


async def test_a_child_starts_as_a_fork_and_a_compacted_session_starts_again(
    house: House, around: Around
) -> None:
    await house.send("one")
    await house.rest()
    await house.send("two")
    await house.rest()
    await house.registry.fork(ID, "child")
    await house.registry.send("child", [Text("hello")])
    await house.until(lambda look: look.turn is None, "child")
    await house.registry.compact(ID, keep_turns=1)
    await house.send("three")
    await house.rest()
    assert around.starts == ["startup", "fork", "compact"]


async def test_the_end_is_told_at_offload_shutdown_and_deletion(
    house: House, around: Around
) -> None:
    house = house.restart(limits=Limits(max_live_actors=1))
    await house.send("one")
    await house.rest()
    await house.registry.create("other")
    await house.registry.send("other", [Text("hello")])
    await house.until(lambda look: look.turn is None, "other")
    await house.until(lambda _: house.registry._roster.get(ID) is None)
    assert around.ends == ["offload"]
    assert (await house.types())[-1] == "hook_ran"
    await house.registry.delete("other")
    assert around.ends == ["offload", "delete"]
    await house.send("again")
    await house.rest()
    assert around.starts == ["startup", "startup", "resume"]
    await house.registry.close()
    assert around.ends == ["offload", "delete", "shutdown"]


async def test_a_start_that_meets_an_end_is_told_after_it(house: House, around: Around) -> None:
    await house.send("one")
    await house.rest()
    actor = house.registry._roster.get(ID)
    assert actor is not None
    around.hold.clear()
    leaving = asyncio.create_task(actor.offload(lambda: True))
    await house.until(lambda _: around.is_ending)
    await house.send("two")
    await asyncio.sleep(0.02)
    assert (around.starts, around.ends) == (["startup"], [])
    around.hold.set()
    await house.rest()
    await leaving
    assert (around.starts, around.ends) == (["startup", "resume"], ["offload"])
    assert (await house.texts())[-1] == "two"


async def test_what_is_said_at_the_beginning_is_a_meta_message_that_the_model_gets(
    house: House, around: Around
) -> None:
    around.said = {"start": ["you are here"], "begin": ["it rains"]}
    loop = ScriptedLoop()
    house = house.restart(Loops(loop))
    await house.send("hello")
    await house.rest()
    given = [(m.text, m.meta) for m in loop.views[0]]
    assert given == [("hello", False), ("you are here", True), ("it rains", True)]


async def test_a_refused_message_ends_its_turn_and_leaves_the_conversation(
    house: House, around: Around
) -> None:
    around.refuses = "secret"
    await house.send("fine")
    await house.rest()
    await house.send("a secret")
    look = await house.rest()
    assert (await house.ends())[-1][1] == "refused"
    assert (look.status, look.cause) == ("failed", "not this")
    assert [m.text for m in await view(house)] == ["fine", "fine"]
    await house.send("fine again")
    await house.rest()
    assert "a secret" not in [m.text for m in await view(house)]


async def test_what_is_said_of_a_call_follows_its_whole_batch(house: House, around: Around) -> None:
    around.said = {"one": ["of one"], "two": ["of two"]}
    script = write_script(Say("x", calls=[Call("one"), Call("two")]), Listen(), Say("end"))
    await house.send(script)
    await house.rest()
    roles = [(m.role, m.meta) for m in await view(house)]
    assert roles == [
        ("user", False),
        ("assistant", False),
        ("tool", False),
        ("tool", False),
        ("user", True),
        ("user", True),
        ("assistant", False),
        ("assistant", False),
    ]


async def test_a_reason_to_go_on_starts_another_run_of_the_same_turn(
    house: House, around: Around
) -> None:
    around.reasons = ["the tests are red", "still red"]
    loop = ScriptedLoop([Say("one")], [Say("two")], [Say("three")])
    house = house.restart(Loops(loop))
    sent = await house.send("go")
    await house.rest()
    assert await house.ends() == [(sent.turn_id, "completed")]
    texts = [m.text for m in await view(house)]
    assert texts == ["go", "one", "the tests are red", "two", "still red", "three"]
    assert [m.text for m in loop.views[1]][-1] == "the tests are red"


async def test_a_steered_message_joins_the_running_turn(house: House) -> None:
    sent = await house.send(write_script(Say("working"), Listen(), Say("end")))
    await house.until(lambda look: look.last_seq >= 4)
    steered = await house.send("to the left", if_running="steer", key="k")
    await house.until(lambda look: look.turn is None and not look.queued)
    assert await house.ends() == [(sent.turn_id, "completed")]
    texts = [m.text for m in await view(house)]
    assert texts[-4:] == ["working", "to the left", "to the left", "end"]
    (joined,) = [e.view for e in await house.log() if isinstance(e.view, MessageJoined)]
    assert joined.message_id == steered.message_id
    again = await house.send("to the left", if_running="steer", key="k")
    assert (again.message_id, again.turn_id) == (steered.message_id, sent.turn_id)


async def test_a_steered_message_that_comes_too_late_runs_next(house: House) -> None:
    await house.send(write_script(Say("working", delay_s=0.05), Say("end")))
    await house.send("too late", if_running="steer")
    await house.until(lambda look: look.turn is None and not look.queued)
    assert (await house.texts())[-2:] == ["too late", "too late"]
    assert [reason for _, reason in await house.ends()] == ["completed", "completed"]


async def test_a_tool_around_the_run_gets_the_key_of_its_call(house: House, around: Around) -> None:
    sent = await house.send(write_script(Say("x", calls=[Call("there", runs=True, call_id="c")])))
    await house.rest()
    result = (await view(house))[-1].tool_results[0]
    assert result.text.startswith(f"on {sent.turn_id}:")
    assert around.confirmed == [result.text.removeprefix("on ")]


async def test_a_lost_runtime_interrupts_the_turn_after_one_fact_and_one_result_each(
    house: House, around: Around
) -> None:
    around.lost = True
    calls = [Call("there", runs=True, call_id="a"), Call("there", runs=True, call_id="b")]
    await house.send(write_script(Say("x", calls=calls)))
    look = await house.rest()
    assert look.status == "interrupted"
    assert "the cable was cut" in (look.cause or "")
    lost = [e.view for e in await house.log() if isinstance(e.view, RuntimeLost)]
    assert [(each.runtime_id, each.cause) for each in lost] == [("r1", "the cable was cut")]
    results = [r for m in await view(house) for r in m.tool_results]
    assert [(each.call_id, each.interrupted) for each in results] == [("a", True), ("b", True)]
    before = await view(house)
    late_one = ToolResult("a", (Text("late"),), name="there")
    dispatched = [e.view for e in await house.log() if isinstance(e.view, ToolDispatched)]
    key = next(each.idempotency_key for each in dispatched if each.call_id == "a")
    await house.registry.note_late(ID, key, late_one)
    await house.registry.note_late(ID, key, late_one)
    for foreign in ("key", "", ":", f"{key}x", key.rpartition(":")[0] + ":b"):
        await house.registry.note_late(ID, foreign, late_one)
    assert await view(house) == before
    late = [e.view for e in await house.log() if isinstance(e.view, LateResult)]
    assert [each.call_id for each in late] == ["a"]
    around.lost = False
    await house.registry.resend(ID)
    await house.until(lambda look: look.status == "idle")
    dispatched = [e.view for e in await house.log() if isinstance(e.view, ToolDispatched)]
    key = [each.idempotency_key for each in dispatched if each.call_id == "a"][-1]
    count = len(await house.log())
    await house.registry.note_late(ID, key, late_one)
    assert len(await house.log()) == count, "the call has a result of its own by now"


async def test_a_late_result_is_kept_where_only_another_call_of_its_id_has_one(
    house: House, around: Around
) -> None:
    script = write_script(Say("x", calls=[Call("there", runs=True, call_id="a")]))
    around.lost = True
    await house.send(script)
    await house.rest()
    around.lost = False
    await house.send(script)
    await house.rest()
    keys = [e.view.idempotency_key for e in await house.log() if isinstance(e.view, ToolDispatched)]
    for key in keys:
        await house.registry.note_late(ID, key, ToolResult("a", (Text("late"),)))
    late = [e.view for e in await house.log() if isinstance(e.view, LateResult)]
    assert [each.call_id for each in late] == ["a"], "the first call's, and not the second one's"


async def test_the_end_of_a_turn_can_be_waited_for(house: House) -> None:
    sent = await house.send(write_script(Say("one", delay_s=0.02)))
    assert sent.turn_id is not None
    end = await house.registry.until_ended(ID, sent.turn_id)
    assert end is not None
    assert (end.turn_id, end.reason) == (sent.turn_id, "completed")
    assert await house.registry.turn_end(ID, sent.turn_id) == end
    assert await house.registry.turn_end(ID, "never") is None


async def test_a_turn_can_be_ended_from_around_it(house: House) -> None:
    await house.send(write_script(Say("x", calls=[Call("last")]), Say("never", delay_s=0.2)))
    await house.rest()
    look = await house.look()
    assert look.last_turn is not None
    assert (look.last_turn.reason, look.last_turn.cause) == ("stopped", "enough")
    assert "never" not in await house.texts()


async def test_a_failure_around_a_call_ends_the_turn_and_wedges_nothing(
    house: House, around: Around
) -> None:
    async def permit(scope: Scope, call: ToolCall, /) -> Verdict:
        raise HookFailedError("nobody could be asked")

    around.permit = permit  # type: ignore[method-assign] # fails, as a store may
    await house.send(write_script(Say("x", calls=[Call("one"), Call("two")])))
    look = await house.rest()
    assert look.status == "failed"
    assert "nobody could be asked" in (look.cause or "")
    await view(house)
