"""What tests of a store, a loop or an application need: contracts to inherit and fakes to use.

Names load when they are asked for, so that only the contracts need pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.testing.journal_contract import JournalContract
    from perdure.testing.store_contract import StoreContract

_MODULES = {
    "JournalContract": "journal_contract",
    "StoreContract": "store_contract",
}

__all__ = ["JournalContract", "StoreContract"]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
