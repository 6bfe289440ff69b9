"""Invitations by which nodes join, as those who manage a node see them."""

from __future__ import annotations

from msgspec import Struct

INVITATION_S = 3_600.0
"""Seconds until an invitation expires, unless another time is given."""


class MadeInvitation(Struct, frozen=True):
    """A new invitation: the line for the new node, which holds a secret, and until when it is good.

    `until` is in seconds since 1970; `addresses` are those at which the new node will look for this one.
    """

    line: str
    name: str
    until: int
    addresses: list[str] = []

    def __repr__(self) -> str:
        return f"<MadeInvitation of {self.name}>"


class InvitationInfo(Struct, frozen=True):
    """An invitation: the node that is invited, the hosts in its certificate, and the state.

    `state` is `open`, `joining`, `used`, `revoked` or `expired`.
    """

    name: str
    state: str
    until: int
    hosts: list[str] = []
