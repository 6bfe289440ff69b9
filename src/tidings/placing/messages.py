"""Requests by which neighbours hand patterns to each other, and return what they find."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidings.errors import Refused, TidingsError
from tidings.patterns.watching import Seen

PIECE_SIZE = 256 << 10
"""Bytes of state, or of results, in one request."""


class ComputeRequest(Struct, frozen=True):
    """The arguments of `link.compute`: a pattern to be evaluated, with the filters that its steps may have.

    `is_there`: it was handed over; the question is whether it is still there, and these are its filters now.
    """

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    pattern: str
    steps: tuple[str, ...]
    passive: bool = False
    lasting: bool = False
    is_there: bool = False


class MovedState(Struct, frozen=True):
    """The arguments of `link.compute.state`: a piece of the state of a pattern, the last one if `done`."""

    id: str
    moves: int
    first: bool
    done: bool
    keys: list[tuple[bytes, bytes]] = []
    results: list[tuple[int, bytes]] = []
    watermark_us: int | None = None
    seen: Seen = {}
    next: int = 1


class FoundResults(Struct, frozen=True):
    """The arguments of `link.compute.found`: results by number, none to ask if the pattern is wanted."""

    id: str
    results: list[tuple[int, bytes]] = []


class NamedPlacement(Struct, frozen=True):
    """The arguments of `link.compute.recall` and `link.compute.end`."""

    id: str


def is_unknown(error: TidingsError) -> bool:
    """Whether the other node does not have the pattern."""
    return isinstance(error, Refused) and error.code == "not-found"


def passed_on(error: TidingsError) -> TidingsError:
    """Return the error of a node further on: one that is out of reach is no reason to forget anything."""
    if is_unknown(error):
        return error
    return Refused("no-way", f"the node that has asked is out of reach: {error}")
