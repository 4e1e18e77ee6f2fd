"""Random programs of the agent's verbs: a reopened agent sees what the one before saw."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import perdure
from perdure import DurableAgent, Message, Text, ToolCall, ToolResult
from perdure.entry import Compaction
from tests.unit.checks import check_model_view
from tests.unit.looping import Probe, SlowStore

T = TypeVar("T")
call_ids = st.sampled_from("ab")


class Conversation(RuleBasedStateMachine):
    """The model: a plain list of (id, parent id), and the leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.names = iter(range(10**6))

    def do(self, step: Awaitable[T]) -> T:
        async def main() -> T:
            return await step

        return self.loop.run_until_complete(main())

    @initialize()
    def open(self) -> None:
        self.store, self.probe = SlowStore(), Probe()
        self.agent: DurableAgent = self.do(perdure.open("s", self.probe, store=self.store))
        self.parents: dict[str, str | None] = {}
        self.leaf_id: str | None = None
        self.last_id: str | None = None

    def grow(self, before: int) -> None:
        """What was stored since is one chain from the leaf."""
        for each in self.agent.entries()[before:]:
            if each.entry.in_tree:
                assert each.parent_id == self.leaf_id
                self.parents[each.id] = self.leaf_id
                self.leaf_id = self.last_id = each.id

    @rule(
        drafts=st.lists(
            st.one_of(
                st.sampled_from(["x", "y"]),
                st.builds(
                    lambda ids: Message("assistant", tuple(ToolCall(i, "t") for i in ids)),
                    st.lists(call_ids, max_size=2, unique=True),
                ),
                call_ids.map(lambda i: Message("tool", (ToolResult(i, (Text("r"),)),))),
                st.just("meta").map(lambda word: perdure.text(word, meta=True)),
            ),
            max_size=3,
        )
    )
    def append(self, drafts: list[Any]) -> None:
        before = len(self.agent.entries())
        fresh = [
            draft if isinstance(draft, str) else Message(draft.role, draft.parts, meta=draft.meta)
            for draft in drafts
        ]
        self.do(self.agent.append(*fresh))
        self.grow(before)

    @rule(stop_at=st.integers(0, 20))
    def run_and_maybe_leave(self, stop_at: int) -> None:
        before = len(self.agent.entries())

        async def run() -> None:
            count = 0
            async for _ in self.agent.run("go"):
                if count == stop_at:
                    break
                count += 1
            await self.agent.repair()

        self.do(run())
        assert self.probe.is_quiet
        self.grow(before)

    @rule()
    def repair(self) -> None:
        before = len(self.agent.entries())
        view = self.agent.messages()
        receipt = self.do(self.agent.repair())
        assert (receipt is None) == (len(self.agent.entries()) == before)
        assert [m.parts for m in self.agent.messages()] == [m.parts for m in view]
        self.grow(before)

    @rule(keep_turns=st.integers(0, 2))
    def compact(self, keep_turns: int) -> None:
        before = len(self.agent.entries())
        receipt = self.do(self.agent.compact(keep_turns=keep_turns))
        self.grow(before)
        if receipt is not None:
            assert isinstance(receipt.entries[0].view, Compaction)
            assert "a summary" in self.agent.messages()[0].text

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        entry_id = data.draw(st.sampled_from([None, *self.parents]))
        self.agent.branch(entry_id)
        self.leaf_id = entry_id

    @rule()
    def reopen(self) -> None:
        before = self.agent.messages()
        self.do(self.agent.close())
        self.agent = self.do(perdure.open("s", self.probe, store=self.store))
        if self.leaf_id == self.last_id:
            assert self.agent.messages() == before
        self.leaf_id = self.last_id

    @precondition(lambda self: len(self.parents) < 200)
    @rule(moves=st.booleans())
    def fork(self, moves: bool) -> None:
        child = self.do(self.agent.fork(f"child {next(self.names)}"))
        assert child.messages() == self.agent.messages()
        assert [each.raw for each in child.entries()] == [each.raw for each in self.path()]
        if moves:
            self.do(child.append("only the child's"))

    def path(self) -> list[Any]:
        return list(self.agent._transcript.path)

    @invariant()
    def the_path_is_the_models(self) -> None:
        assert self.agent.leaf_id == self.leaf_id
        expected: list[str] = []
        at = self.leaf_id
        while at is not None:
            expected.append(at)
            at = self.parents[at]
        assert [entry.id for entry in self.path()] == expected[::-1]

    @invariant()
    def the_view_is_valid_and_what_a_fresh_agent_sees(self) -> None:
        view = self.agent.messages()
        check_model_view(view)
        fresh = self.do(perdure.open("s", store=self.store))
        assert [each.raw for each in fresh.entries()] == [each.raw for each in self.agent.entries()]
        fresh.branch(self.leaf_id)
        assert fresh.messages() == view

    def teardown(self) -> None:
        self.loop.close()


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
