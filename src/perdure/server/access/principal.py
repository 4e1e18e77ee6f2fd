"""What a token grants: whose it is, and what its role may.

An admin has every session. Everybody else has the sessions of their own principal, whatever token
of it made them, and for them the others are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

from perdure import clock

Role = Literal["admin", "user", "viewer", "runtime"]
ROLES: tuple[Role, ...] = get_args(Role)

Right = Literal["read", "write", "measure", "operate", "dial_in"]
"""`measure` is /metrics; `operate` is what concerns the whole server; `dial_in` is a runtime's."""

RIGHTS: Mapping[Role, frozenset[Right]] = {
    "admin": frozenset(get_args(Right)),
    "user": frozenset({"read", "write"}),
    "viewer": frozenset({"read", "measure"}),
    "runtime": frozenset({"dial_in"}),
}
"""What each role may."""

OWNER = "owner"
"""The principal of the one token that a server has by default; no other token is of that name."""


class Grant(Struct, frozen=True):
    """What one token grants, until `expires_at` if there is such a time."""

    token_id: str
    principal: str
    role: Role
    expires_at: datetime | None = None

    @property
    def owner(self) -> str | None:
        """Whose the sessions are that it makes; those of the one default token are the admins'."""
        return None if self.principal == OWNER else self.principal

    @property
    def scope(self) -> str | None:
        """The principal whose sessions it has; None: every session there is."""
        return None if self.role == "admin" else self.principal

    def has(self, owner: str | None) -> bool:
        """Whether it has a session of this owner."""
        return self.scope is None or self.scope == owner

    def has_expired(self) -> bool:
        """Whether its time is over, by the clock on the wall."""
        return self.expires_at is not None and self.expires_at <= clock.now()

    def may(self, right: Right) -> bool:
        """Whether its role has the right."""
        return right in RIGHTS[self.role]
