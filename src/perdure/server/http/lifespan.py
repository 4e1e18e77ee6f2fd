"""Begins an application at its first request, where nobody ran its lifespan.

What an application is mounted in runs its own lifespan, and most frameworks do not run that of what
is mounted. Begun like that it ends with the event loop: whoever runs one (`asyncio.run` does)
cancels the tasks that are left, and this one then closes everything in order.
"""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette

from perdure.server.service import Service


class OwnLifespan:
    """Runs the lifespan of `app` from the first `begin` on; once in each event loop that asks."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._begun = asyncio.Event()
        self.held: asyncio.Task[None] | None = None
        """The task that runs it; None where nobody has asked."""

    async def begin(self) -> None:
        """Returns when the application has started; of many who ask at once, one starts it.

        Raises:
            PerdureError: it cannot start, which is tried again when somebody asks again.

        """
        loop = asyncio.get_running_loop()
        held = self.held
        if held is None or held.done() or held.get_loop() is not loop:
            self._begun = asyncio.Event()
            held = self.held = loop.create_task(self._hold(self._begun))
        waiting = loop.create_task(self._begun.wait())
        try:
            await asyncio.wait([held, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if held.done():
            held.result()

    async def _hold(self, begun: asyncio.Event) -> None:
        app = self._app
        try:
            async with app.router.lifespan_context(app):
                begun.set()
                await asyncio.Event().wait()
        finally:
            if hasattr(app.state, "service"):
                del app.state.service


async def service_of(app: Starlette) -> Service:
    """The service behind an application, which the first request may have to begin.

    Raises:
        PerdureError: it cannot begin; another server has the store, say.

    """
    if not hasattr(app.state, "service"):
        own: OwnLifespan = app.state.own_lifespan
        await own.begin()
    service: Service = app.state.service
    return service
