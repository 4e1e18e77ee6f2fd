"""The provider mock, one process for all tests of loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from perdure.loops.model import Model
from tests.loops.handmade import ask, collect
from tests.loops.modelling import NAMES, Make, maker
from tests.provider.mock import Provider, recording, running_mock


@pytest.fixture(scope="session")
def mock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_mock(tmp_path_factory.mktemp("provider")) as url:
        asyncio.run(warm_up(url))
        yield url


async def warm_up(url: str) -> None:
    """The providers' libraries take seconds to import and prepare: not while a test is timed."""
    async with recording(url) as provider:
        for name in ("openai-chat", "openai-responses", "anthropic"):
            await provider.teach({"match": {}, "response": {"content": "Ready."}})
            model = Model(f"{name}:warm-up", base_url=provider.base_url(name), api_key="k")
            await collect(model(), ask("warm up"))


@pytest.fixture
async def provider(mock_url: str) -> AsyncIterator[Provider]:
    async with recording(mock_url) as running:
        yield running


@pytest.fixture(params=list(NAMES))
def protocol(request: pytest.FixtureRequest) -> str:
    name = request.param
    assert isinstance(name, str)
    return name


@pytest.fixture
def model(provider: Provider, protocol: str) -> Make:
    return maker(provider, protocol)
