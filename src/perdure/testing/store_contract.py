"""The conformance suite of `perdure.store.Store`: inherit it, say how to open a store, run pytest.

```python
class TestMyStore(StoreContract):
    durable = True

    async def open_store(self, path: Path) -> MyStore:
        return MyStore(path / "sessions")
```

It runs under anything that awaits `async def test_…` methods, such as pytest-asyncio's auto mode.
What only a crash can show (torn writes, failed syncs) is left to a store's own tests.
"""

from __future__ import annotations

from perdure.testing.append_cases import AppendCases
from perdure.testing.byte_cases import ByteCases
from perdure.testing.writer_cases import WriterCases


class StoreContract(AppendCases, WriterCases, ByteCases):
    """What every store promises; a subclass says how to open one, and if it is `durable`."""
