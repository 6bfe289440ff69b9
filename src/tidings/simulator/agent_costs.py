"""Costs of finding orphans: messages counted from the cores that send them, and the formulas of the spec."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct

from tidings.agents.orphans import DetectionWay, LeaseHolder, NoticeSender, costs
from tidings.simulator.agents import LEASE_S

NOTICE_S = 10.0


class DetectionCost(Struct, frozen=True):
    """The cost of finding orphans in one interval: as it was counted, and by the formula."""

    way: str
    counted: float
    formula: float


def detection_costs(participants: int, survivors: int, hops: int) -> Iterator[DetectionCost]:
    """Count what is sent in one interval by each way, in a star whose arms have so many hops.

    An event crosses the whole tree, `participants` × `hops` edges; a message to one crosses `hops`.
    """
    event, message = float(participants * hops), float(hops)
    counts: dict[DetectionWay, tuple[int, int]] = {
        "active worst": (_notices(participants, is_talkative=False), 0),
        "active best": (_notices(participants, is_talkative=True), 0),
        "basic": (2 * _requests(participants, is_shared=False), 0),
        "direct": (_requests(participants, is_shared=False), survivors),
        "channel": (2 * _requests(participants, is_shared=True), 0),
    }
    for way, (events, messages) in counts.items():
        formula = costs(way, participants, survivors, event, message)
        yield DetectionCost(way, events * event + messages * message, formula)


def _notices(participants: int, is_talkative: bool) -> int:
    """How many notices members send in one interval, in which each has said something or nothing."""
    senders = [NoticeSender(NOTICE_S, 0.0) for _ in range(participants)]
    for one in senders if is_talkative else []:
        one.said(NOTICE_S / 2)
    return sum(one.wake(NOTICE_S) for one in senders)


def _requests(participants: int, is_shared: bool) -> int:
    """How many locations ask in one interval; where a grant serves all, only the first that has to."""
    chance = random.Random(participants)
    holders = [LeaseHolder(LEASE_S, chance.random, 0.0) for _ in range(participants)]
    asked = 0
    for one in sorted(holders, key=lambda holder: holder.ask_at):
        now = one.ask_at
        if now > 2 / 3 * LEASE_S or not one.asks(now):  # it has got a lease by another's request
            continue
        asked += 1
        for other in holders if is_shared else [one]:
            other.answered("yes", now)
            other.ask_at = max(other.ask_at, LEASE_S)  # the next interval
    return asked
