from __future__ import annotations

import typing

import pytest

from perdure.codec import RESERVED
from perdure.entry import Compaction, Custom, Message
from perdure.fact import KnownFact

KINDS = (*typing.get_args(KnownFact), Message, Compaction, Custom)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_entry_has_a_field_that_stores_and_streams_add(kind: type) -> None:
    assert set(RESERVED).isdisjoint(kind.__struct_encode_fields__)  # type: ignore[attr-defined] # a Struct
