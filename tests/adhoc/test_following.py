"""Queues that follow their main reader, from host to host."""

import msgspec
import pytest
from adhoc.town import Town

from tidings.adhoc.following import PERIODS, QueueOffer
from tidings.adhoc.frames import Announcement, Naming
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.registry import LEASE_S

PERIOD_S = LEASE_S / PERIODS


def _town(*more):
    town = Town("h", "r", *more)
    town.at["h"].hold_queue("jobs")
    town.hosts["h"].registry.held["jobs"].follows = True
    for name in ("r", *more):
        town.meet("h", name)
    return town


def _read(town, name, periods, since=100.0, own=0):
    """Have clients of a host want to read for so many periods, and those of the holder for fewer."""
    now = since
    for period in range(periods):
        now = since + period * PERIOD_S
        town.call(name, town.at[name].wish("jobs", now), now)
        town.call(name, town.at[name].wish("jobs", now + 1), now + 1)  # in the same period
        if period < own:
            town.at["h"].following.note("jobs", "h", now)
            town.at["h"].following.note("jobs", "h", now + 1)
    town.meet("h", name, now + 2)
    town.call("h", town.at["h"].offer(now + 3), now + 3)
    town.meet("h", name, now + 4)
    return now + 4


@pytest.mark.parametrize(
    ("periods", "own", "moves"), [(4, 0, False), (6, 0, True), (12, 4, True), (12, 9, False)]
)
def test_a_queue_goes_where_it_is_wanted_twice_as_often(periods, own, moves):
    town = _town("x")
    now = _read(town, "r", periods, own=own)
    assert town.taken("r") == (["jobs"] if moves else [])
    town.meet("h", "r", now + 1)
    town.meet("h", "x", now + 2)
    for name in "hrx":
        assert town.hosts[name].registry.find("jobs", now + 2).holder == ("r" if moves else "h")
    assert town.left("h") == ([("jobs", "r")] if moves else [])


def test_a_queue_follows_from_host_to_host_and_back():
    town = _town("x")
    now = _read(town, "r", 6)
    for name, before in (("x", "r"), ("h", "x")):
        for _ in range(8):
            now += PERIOD_S
            town.meet(before, name, now)
            town.call(name, town.at[name].wish("jobs", now), now)
        now += 5 * LEASE_S  # what was wanted before weighs less
        town.meet(before, name, now)
        for _ in range(8):
            now += PERIOD_S
            town.call(name, town.at[name].wish("jobs", now), now)
        town.meet(before, name, now + 1)
        town.call(before, town.at[before].offer(now + 2), now + 2)
        town.meet(before, name, now + 3)
        town.meet(before, name, now + 4)
        assert town.left(before)[-1] == ("jobs", name)
        now += 5
    assert town.hosts["h"].registry.held["jobs"].follows


def test_an_offer_lasts_for_a_lease():
    town = _town("x")
    (offer,) = _offers(town)
    registry = town.hosts["x"].registry
    taken = Announcement("jobs", "queue", "r", 1, 1, 60.0, naming=offer.naming)
    assert registry.find("jobs", 100.0).stamp < offer.naming.stamp
    later = 100.0 + LEASE_S + LEASE_S / 3
    town.meet("h", "x", later)
    assert registry.find("jobs", later).stamp > offer.naming.stamp
    for name in "hx":
        town.hosts[name].registry.hear([taken], later)
        assert town.hosts[name].registry.find("jobs", later).holder == "h"
    town.meet("h", "r", later)
    town.at["r"].wish("jobs", later)
    assert _take(town, "h", offer, later) == 1


def _offers(town):
    following = town.at["h"].following
    for period in range(6):
        following.note("jobs", "r", period * PERIOD_S)
    return [offer for _, _, offer in following.offers(6 * PERIOD_S)]


def _take(town, sender, offer, now):
    """Have host r take an offer that comes from a host; how many were refused."""
    raw = offer if isinstance(offer, bytes) else msgspec.msgpack.encode(offer)
    message = CarriedMessage(
        MessageId(sender, 1, 10_000), ("r",), size=len(raw), raw=raw, destination="offer:jobs"
    )
    town.meet("h", "r", now)
    town.call("r", town.at["r"].accept(message, now), now)
    return town.hosts["r"].tallies["refused", "offer"]


def test_offers_are_taken_from_the_holder_by_the_host_that_wants_to_read():
    town = _town("x")
    (good,) = _offers(town)
    naming = good.naming
    wrong = [
        ("h", b"junk"),
        ("x", good),
        ("h", QueueOffer(Naming("h", naming.epoch, naming.number, ("x",), b"", True))),
        ("h", QueueOffer(Naming("h", naming.epoch, naming.number, ("r",)))),
        ("h", QueueOffer(Naming("h", 0, 1, ("r",), b"", True))),
    ]
    assert _take(town, "h", good, 400.0) == 1  # nobody wants to read here
    town.at["r"].wish("jobs", 400.0)
    for sender, offer in wrong:
        refused = town.hosts["r"].tallies["refused", "offer"]
        message_at = 401.0 + refused
        town.hosts["r"].seen._senders.clear()
        assert _take(town, sender, offer, message_at) == refused + 1, offer
    town.hosts["r"].seen._senders.clear()
    _take(town, "h", good, 500.0)
    assert town.taken("r") == ["jobs"]


def test_a_queue_that_follows_nobody_is_offered_to_nobody():
    town = _town()
    town.hosts["h"].registry.held["jobs"].follows = False
    _read(town, "r", 9)
    assert town.taken("r") == []
    assert town.hosts["h"].tallies["refused", "reader"] > 0


def test_a_host_that_may_not_hold_it_is_no_reader():
    town = _town()
    town.hosts["h"].may_deputise = lambda _place, host: host != "r"
    _read(town, "r", 9)
    assert town.taken("r") == []
