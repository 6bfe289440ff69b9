"""Signatures of senders and recipients: a carrier is a stranger, who may alter nothing and forge nothing.

A core is given a `Proofs`, which signs as this host and verifies what others have signed. `Unsigned` is for
hosts that trust each other, such as those of one machine or of a simulation.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tidings.adhoc.messages import MessageId


class Proofs(Protocol):
    """Signatures of one host, and verification of all others."""

    def sign(self, data: bytes) -> bytes:
        """Sign as this host."""

    def verify(self, host: str, data: bytes, proof: bytes) -> bool:
        """Whether that host has signed these bytes."""


class Unsigned:
    """No signatures: everything is believed."""

    def sign(self, data: bytes) -> bytes:  # noqa: ARG002
        """Sign nothing."""
        return b""

    def verify(self, host: str, data: bytes, proof: bytes) -> bool:  # noqa: ARG002
        """Believe it."""
        return True


def acknowledged(id: MessageId, recipient: str) -> bytes:
    """The bytes that a recipient signs."""
    return msgspec.msgpack.encode((*id, recipient))
