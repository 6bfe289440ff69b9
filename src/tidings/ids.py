"""Ids: a counter within an epoch of a system.

A system is a program that numbers events; it counts 1, 2, 3 … within an epoch, and starts a higher epoch
whenever it may have forgotten how far it had counted. So an id costs no randomness, a receiver keeps one
number per (system, epoch) to know what it has had, and a gap in the numbers shows that something is missing.

As text an id is `SYSTEM.EPOCH.COUNTER`, the numbers in hexadecimal, each led by its count of digits as one
character (`1` for one digit … `g` for sixteen). So the ids of one system sort as text in the order in which
they were given out, and one id has one text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from tidings.errors import EventError

NUMBER_MAX = 2**63 - 1
SYSTEM_BYTES = 10

_LENGTHS = "0123456789abcdefg"
_SYSTEM = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER = re.compile(r"[1-9a-g](?:0|[1-9a-f][0-9a-f]*)")


class Origin(Struct, frozen=True, gc=False):
    """Origin of events: the system that numbers them, its epoch, and the authenticated sender."""

    system: str | None = None
    epoch: int = 0
    source: str | None = None


class ForwardedOrigin(Origin, frozen=True, gc=False):
    """The origin of events that another node has handed on: their numbers are counted there, not here.

    `passed` are the ids of the nodes that a publication has passed on its way from upstream to upstream, the
    first one, which took it in, before the others.
    """

    passed: tuple[str, ...] = ()


class Ids(Protocol):
    """Numbers the events of one system."""

    @property
    def origin(self) -> Origin:
        """The system and epoch the numbers belong to."""

    def next_counter(self) -> int:
        """The next number: 1, then 2, and so on without gaps."""

    def next_counters(self, count: int) -> int:
        """The first of so many numbers that follow each other, all of which are taken."""


class StoredIds:
    """Ids whose epoch was stored by the owner, who hands in a higher one at every start: needs no clock."""

    def __init__(self, system: str, epoch: int) -> None:
        check_system(system)
        if not 0 <= epoch <= NUMBER_MAX:
            raise EventError("$.epoch", f"{epoch} is not within 0..2**63-1")
        self.origin = Origin(system, epoch)
        self._counter = 0

    def next_counter(self) -> int:
        """The next number; to be called from one thread."""
        self._counter += 1
        return self._counter

    def next_counters(self, count: int) -> int:
        """The first of so many numbers; to be called from one thread."""
        first = self._counter + 1
        self._counter += count
        return first


class ClockIds(StoredIds):
    """Ids whose epoch is the time of the start, in microseconds: for owners who can store nothing.

    A clock set back across a restart repeats an epoch's range; owners who can store use StoredIds.
    """

    def __init__(self, system: str, now: float) -> None:
        super().__init__(system, int(now * 1_000_000))


def new_system(random_bytes: Callable[[int], bytes]) -> str:
    """A new name for a system, 16 characters: 80 random bits, so that nobody need be asked."""
    return base64.b32encode(random_bytes(SYSTEM_BYTES)).decode().lower()


def check_system(system: str) -> None:
    """Refuse what can't name a system: letters, digits, `_` and `-`, at most 64 of them."""
    if not _SYSTEM.fullmatch(system):
        raise EventError("$.system", f"{system!r} is not 1 to 64 letters, digits, '_' or '-'")


def make_id(system: str, epoch: int, counter: int) -> str:
    """The text of an id, which `parse_id` reads."""
    return f"{system}.{_number_text(epoch)}.{_number_text(counter)}"


def parse_id(text: str) -> tuple[str, int, int] | None:
    """(system, epoch, counter) of an id that `make_id` made, or None for any other text."""
    system, _, numbers = text.partition(".")
    epoch, _, counter = numbers.partition(".")
    parsed = _number(epoch), _number(counter)
    if parsed[0] is None or parsed[1] is None or not _SYSTEM.fullmatch(system):
        return None
    return system, parsed[0], parsed[1]


def _number_text(number: int) -> str:
    digits = f"{number:x}"
    return _LENGTHS[len(digits)] + digits


def _number(text: str) -> int | None:
    if not _NUMBER.fullmatch(text) or _LENGTHS[min(len(text) - 1, 16)] != text[0]:
        return None
    number = int(text[1:17], 16)
    return number if number <= NUMBER_MAX and len(text) <= 17 else None
