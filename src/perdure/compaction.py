"""Where a conversation can be cut so that its beginning becomes a summary. Pure.

A cut stands before a user's message and never inside a batch of calls and results. It is made on
the whole effective path: an earlier summary is part of what is summarised.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perdure.codec import Entry
from perdure.entry import Message
from perdure.errors import ConfigurationError
from perdure.view import effective_path, model_view

DEFAULT_PROMPT = (
    "Summarise the conversation so far for yourself, so that you can go on without it: what was "
    "asked, what was done and found (names, paths, numbers and decisions exactly), what failed and "
    "why, and what is still open. Answer with the summary only and call no tool."
)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to summarise, and the first entry that the model goes on seeing (None: none)."""

    messages: Sequence[Message]
    first_kept_id: str | None


def plan_compaction(path: Sequence[Entry], keep_turns: int) -> CompactionPlan | None:
    """The cut that keeps the last `keep_turns` turns whole; None if nothing comes before them.

    A turn begins at a user's message that is not `meta`; system and `meta` messages alone are
    nothing to summarise. O(effective path).

    Raises:
        ConfigurationError: `keep_turns` is negative.
    """
    if keep_turns < 0:
        raise ConfigurationError(f"keep_turns is 0 or more, not {keep_turns}")
    compaction, kept = effective_path(path)
    starts = [index for index, entry in enumerate(kept) if _begins_turn(entry)]
    if len(starts) < keep_turns or not kept:
        return None
    cut = starts[-keep_turns] if keep_turns else len(kept)
    inside = _inside_batches(kept)
    while cut in inside:
        before = bisect_right(starts, inside[cut])
        cut = starts[before - 1] if before else 0
    if not any(_is_worth_a_summary(entry) for entry in kept[:cut]):
        return None
    earlier = [compaction] if compaction is not None else []
    return CompactionPlan(
        [*model_view(earlier), *model_view(kept[:cut])],
        kept[cut].id if cut < len(kept) else None,
    )


class Fill(NamedTuple):
    """How many tokens of a model's context window a conversation takes up."""

    tokens: int
    context_window: int

    @property
    def share(self) -> float:
        """Of the window, 0 to 1; above 1 it is over-full."""
        return self.tokens / self.context_window


def fill_of(path: Sequence[Entry]) -> Fill | None:
    """The fill that the newest answer on the path had; None where nobody said, or none is known.

    A loop says it in its message's `provider`: `usage` (`input_tokens`, `output_tokens`) and
    `context_window`. What came before the newest compaction says nothing of what there is now.
    """
    for entry in reversed(path):
        if entry.type == "compaction":
            return None
        view = entry.view if entry.type == "message" else None
        if isinstance(view, Message) and view.role == "assistant":
            provider = view.provider if isinstance(view.provider, dict) else {}
            usage, window = provider.get("usage"), provider.get("context_window")
            if isinstance(usage, dict) and isinstance(window, int) and window > 0:
                counts = (usage.get("input_tokens"), usage.get("output_tokens"))
                return Fill(sum(n for n in counts if isinstance(n, int)), window)
    return None


MOST_KEPT_TURNS = 4
MOST_KEPT_SHARE = 0.25
"""Of a context that is nearly full, turns are kept as they are only up to this share of it."""


def plan_relief(path: Sequence[Entry], fill: Fill, *, new_turns: int = 0) -> CompactionPlan | None:
    """The cut for a context that is nearly full; None if nothing can be summarised.

    It keeps the last turns that are small enough, `MOST_KEPT_TURNS` at most, and always the
    `new_turns` that no model has seen.
    """
    _, seen = effective_path(path)
    sizes = {entry.id: len(entry.raw) for entry in seen}
    total = sum(sizes.values()) or 1
    for keep_turns in range(MOST_KEPT_TURNS + new_turns, new_turns, -1):
        plan = plan_compaction(path, keep_turns)
        if plan is None:
            continue
        kept, is_kept = 0, False
        for entry in seen:
            is_kept = is_kept or entry.id == plan.first_kept_id
            kept += sizes[entry.id] if is_kept else 0
        if kept / total * fill.share <= MOST_KEPT_SHARE:
            return plan
    return plan_compaction(path, new_turns)


def _is_worth_a_summary(entry: Entry) -> bool:
    view = entry.view
    return isinstance(view, Message) and view.role != "system" and not view.meta


def _begins_turn(entry: Entry) -> bool:
    view = entry.view
    return isinstance(view, Message) and view.role == "user" and not view.meta


def _inside_batches(kept: Sequence[Entry]) -> Mapping[int, int]:
    """For each cut that would fall inside a batch: where the first batch around it begins."""
    inside: dict[int, int] = {}
    end = 0
    for first, last in _batch_spans(kept):
        inside.update(dict.fromkeys(range(max(first, end) + 1, last + 1), first))
        end = max(end, last)
    return inside


def _batch_spans(kept: Sequence[Entry]) -> list[tuple[int, int]]:
    """For each message with calls: its index and that of the last result of its batch."""
    spans: list[tuple[int, int]] = []
    owner: dict[str, int] = {}
    for index, entry in enumerate(kept):
        view = entry.view
        if not isinstance(view, Message):
            continue
        if view.role == "assistant" and view.tool_calls:
            owner.update({call.call_id: len(spans) for call in view.tool_calls})
            spans.append((index, index))
        for result in view.tool_results:
            if result.call_id in owner:
                at = owner[result.call_id]
                spans[at] = (spans[at][0], index)
    return spans
