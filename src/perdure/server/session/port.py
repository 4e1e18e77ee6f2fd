"""What the registry and its actors need of others: a feed to tell, and loops to run."""

from __future__ import annotations

from typing import Protocol

from perdure.errors import LoopError, PerdureError
from perdure.events import MessageUpdate
from perdure.loop import Loop, LoopFactory
from perdure.server.session.look import SessionLook
from perdure.server.session.turn import describe


class FeedPort(Protocol):
    """Who hears what is not an entry. Both calls are synchronous, on the event loop, and cheap.

    Entries are not told: a feed reads them from the store, on the store's hints.
    """

    def delta(self, session_id: str, turn_id: str, update: MessageUpdate, /) -> None:
        """More text of a message in the making, after the same text was added to its partial."""

    def notice(self, session_id: str, turn_id: str, text: str, /) -> None:
        """What the loop of a turn wants its watchers to know now; nobody keeps it."""

    def status(self, look: SessionLook, /) -> None:
        """The session's status, turn or queue changed; the entries that did it are stored.

        The last one of a deleted session has the status `deleted`.
        """


class FeedInFront:
    """A FeedPort in front of another one, which hears everything first, and just as it is."""

    def __init__(self, feed: FeedPort) -> None:
        self._feed = feed

    def delta(self, session_id: str, turn_id: str, update: MessageUpdate, /) -> None:
        """More text of a message in the making."""
        self._feed.delta(session_id, turn_id, update)

    def notice(self, session_id: str, turn_id: str, text: str, /) -> None:
        """What the loop of a turn wants its watchers to know now."""
        self._feed.notice(session_id, turn_id, text)

    def status(self, look: SessionLook, /) -> None:
        """A session's status changed."""
        self._feed.status(look)


class Loops(Protocol):
    """The loops that this server can run, by name."""

    @property
    def default(self) -> str:
        """The name of the loop of sessions that chose none."""

    async def prepare(self, name: str, /) -> None:
        """Imports what this loop needs, off the event loop; `factory(name)` is quick after it.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        ...

    def factory(self, name: str, /) -> LoopFactory:
        """The factory of this name.

        Raises:
            ConfigurationError, MissingExtraError: there is none, or it is not installed.

        """
        ...


async def takes_commands(loops: Loops, name: str | None) -> bool:
    """Whether this loop runs what it is sent as a shell's command: prose in it has to be comments.

    Its factory says so by an attribute `takes_commands`. One that is not there takes nothing.
    """
    name = name or loops.default
    try:
        await loops.prepare(name)
        return getattr(loops.factory(name), "takes_commands", False) is True
    except PerdureError:
        return False


def can_steer(loops: Loops, name: str) -> bool:
    """Whether runs of this loop take in messages while they go on.

    Raises:
        ConfigurationError, MissingExtraError: there is none, or it is not installed.

    """
    return getattr(loops.factory(name), "steers", False) is True


def make_loop(loops: Loops, name: str) -> Loop:
    """The loop of one run, by its name.

    Raises:
        LoopError: the loop cannot start. ConfigurationError, MissingExtraError: nor be found.

    """
    try:
        return loops.factory(name)()
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:  # somebody else's factory: the loop's own failure
        raise LoopError(f"the loop {name!r} cannot start: {describe(error)}") from error
