"""The tokens of one model request, as its provider counted them."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.entry import Json

KINDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_creation.input_tokens",
}
"""What the model layer calls them, and what the conventions do."""


def usage_of(provider: Json) -> Mapping[str, int]:
    """By the names of the conventions; empty where the answer does not say."""
    usage = provider.get("usage") if isinstance(provider, dict) else None
    if not isinstance(usage, dict):
        return {}
    return {
        name: count
        for key, name in KINDS.items()
        if isinstance(count := usage.get(key), int) and not isinstance(count, bool) and count >= 0
    }
