"""The account of messages that are put at some nodes and read at others: what was promised, what has come.

A message that was not acknowledged may be handed out again, so it is told by the time at which its queue took
it in, which no two messages of a node share, whether a message has come again or is there twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from tidings.client.message import Message


class Place(NamedTuple):
    """A message as whoever put it knows it."""

    queue: str
    sender: str
    number: int


class Arrival(NamedTuple):
    """A message as the queue knows it in which it is."""

    received: datetime
    id: str


class HandedOn:
    """See the module; each thing that must not be is an AssertionError when it comes, or in `check`."""

    def __init__(self) -> None:
        self.accepted: dict[Place, None] = {}  # in the order in which each sender has put them
        self.arrived: dict[Place, Arrival] = {}
        self.marked = 0
        self._known: set[Place] = set()  # put, or about to be
        self._settled: set[Place] = set()  # must never come again
        self._changed = asyncio.Event()

    def __str__(self) -> str:
        return f"{len(self.accepted)} accepted, {len(self.arrived)} arrived, {self.marked} marked"

    @property
    def backlog(self) -> int:
        """How many more were accepted than have come; it is asked for often, and need not be exact."""
        return len(self.accepted) - len(self.arrived)

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Until something is so that is told here."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    # What is told

    def put(self, places: list[Place]) -> None:
        """These are about to be put."""
        self._known.update(places)

    def accept(self, places: list[Place]) -> None:
        """They were put, as the node has said."""
        self.accepted.update(dict.fromkeys(places))
        self._changed.set()

    def take(self, queue: str, message: Message) -> Place:
        """A message has come."""
        place = Place(queue, str(message["by"]), int(message["n"]))
        assert message.source == place.sender, f"{place} comes from {message.source}"
        return self.note(place, Arrival(message.received, message.id), message.redelivered)

    def note(self, place: Place, arrival: Arrival, is_marked: bool) -> Place:
        """The same in its own words."""
        assert place in self._known, f"{place} was never put"
        is_new = place not in self.arrived
        assert self.arrived.setdefault(place, arrival) == arrival, f"{place} has arrived twice"
        assert place not in self._settled, f"{place} came again, though it was acknowledged"
        assert is_new or is_marked, f"{place} came again, and is not marked"
        self.marked += is_marked
        self._changed.set()
        return place

    def settle(self, places: list[Place]) -> None:
        """They were acknowledged, as the node has said."""
        self._settled.update(places)

    # What holds at the end

    def check(self) -> None:
        """See that all that was accepted has come once, and in order; nothing may be under way any more."""
        assert self._known == self.accepted.keys()
        lost = [place for place in self.accepted if place not in self.arrived]
        assert not lost, f"{lost[0]} is lost, and {len(lost) - 1} others"
        ids = {arrival.id for arrival in self.arrived.values()}
        assert len(ids) == len(self.arrived), "two messages have the same id"
        put, come = streams(self.accepted), streams(sorted(self.arrived, key=self.arrived.__getitem__))
        broken = [stream for stream, numbers in put.items() if come[stream] != numbers]
        assert not broken, f"these are not in the order in which they were put: {broken}"


def streams(places: Iterable[Place]) -> dict[tuple[str, str], list[int]]:
    """The numbers of each sender in each queue, in their order."""
    told: dict[tuple[str, str], list[int]] = {}
    for place in places:
        told.setdefault((place.queue, place.sender), []).append(place.number)
    return told
