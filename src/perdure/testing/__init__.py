"""What tests of a store, a loop or an application need: contracts to inherit and fakes to use.

Names load when they are asked for, so that only the contracts need pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.fakes import ManualClock
    from perdure.testing.journal_contract import JournalContract
    from perdure.testing.runtime_contract import RuntimeContract
    from perdure.testing.scripted_loop import (
        Call,
        Fail,
        Hang,
        Listen,
        Repeat,
        Say,
        ScriptedLoop,
        Wait,
        scripted,
        scripted_by_message,
        write_script,
    )
    from perdure.testing.store_contract import StoreContract

_HOMES = {
    "Call": "scripted_loop",
    "Fail": "scripted_loop",
    "Hang": "scripted_loop",
    "Listen": "scripted_loop",
    "JournalContract": "journal_contract",
    "ManualClock": "fakes",
    "Repeat": "scripted_loop",
    "RuntimeContract": "runtime_contract",
    "Say": "scripted_loop",
    "ScriptedLoop": "scripted_loop",
    "StoreContract": "store_contract",
    "Wait": "scripted_loop",
    "scripted": "scripted_loop",
    "scripted_by_message": "scripted_loop",
    "write_script": "scripted_loop",
}

_CONTRACTS = ("JournalContract", "RuntimeContract", "StoreContract")

__all__ = [
    "Call",
    "Fail",
    "Hang",
    "JournalContract",
    "Listen",
    "ManualClock",
    "Repeat",
    "RuntimeContract",
    "Say",
    "ScriptedLoop",
    "StoreContract",
    "Wait",
    "scripted",
    "scripted_by_message",
    "write_script",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _CONTRACTS:
        _explain_asserts()
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def _explain_asserts() -> None:
    """Has pytest show what a contract's failed assert compared, as it does in a test's own file."""
    import pytest

    homes = (
        *("append_cases", "byte_cases", "writer_cases"),
        *("snapshot_cases", "kind_cases", "journal_contract"),
        *("runtime_cases", "escape_cases", "runtime_contract"),
    )
    for home in homes:
        module = f"{__name__}.{home}"
        if module not in sys.modules:
            pytest.register_assert_rewrite(module)
