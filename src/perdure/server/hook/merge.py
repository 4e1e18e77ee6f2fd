"""The outcomes of all hooks of one event, as one.

A refusal counts more than a question, and that more than a permission; of two changed inputs the
later handler's counts, in the order of the files; texts are kept, all, in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.entry import Json
from perdure.hook import HookOutcome, Permission

_STRONGEST_FIRST: tuple[Permission, ...] = ("deny", "ask", "allow")


def merge(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """One outcome of many; no outcomes are one that changes nothing."""
    given = {each.permission for each in outcomes}
    permission = next((each for each in _STRONGEST_FIRST if each in given), None)
    deciding = [each for each in outcomes if permission and each.permission == permission]
    changed: Json = None
    for each in outcomes:
        if each.changed_input is not None and permission != "deny":
            changed = each.changed_input
    ends = _joined([each.ends for each in outcomes])
    return HookOutcome(
        refused=_joined([each.refused for each in outcomes]),
        permission=permission,
        reason=_joined([each.reason for each in deciding]),
        changed_input=changed,
        context=tuple(text for each in outcomes for text in each.context),
        goes_on=None if ends is not None else _joined([each.goes_on for each in outcomes]),
        ends=ends,
        notices=tuple(text for each in outcomes for text in each.notices),
    )


def _joined(texts: Sequence[str | None]) -> str | None:
    said = dict.fromkeys(text for text in texts if text is not None)
    return "\n".join(said) if said else None
