"""Registries of hosts: leases, entries by hand, announcements that travel with meetings."""

from math import inf

import pytest
from adhoc.hosts import host, meet, note

from tidings.adhoc.frames import Announcement, decode_frame, encode_frame
from tidings.adhoc.proofs import Unsigned
from tidings.adhoc.registry import LEASE_S, LEASE_S_MAX, PlaceRegistry
from tidings.errors import UserError


def test_an_announcement_goes_from_host_to_host_until_its_lease_ends():
    one, two, three = host("1"), host("2"), host("3")
    one.registry.hold("jobs")
    meet(one, two, now=0.0)
    meet(two, three, now=1_000.0)
    assert three.registry.find("jobs", 1_000.0).holder == "1"
    assert three.registry.find("jobs", LEASE_S - 1).holder == "1"
    assert three.registry.find("jobs", LEASE_S) is None


def test_a_holder_that_is_met_again_renews_the_lease():
    one, two = host("1"), host("2")
    one.registry.hold("jobs")
    meet(one, two, now=0.0)
    meet(one, two, now=3_000.0)
    assert two.registry.find("jobs", 3_000.0 + LEASE_S - 1) is not None


def _exchange(hosts, effects, now):
    """Deliver the frames of hosts that are together, and what follows of them."""
    waiting = [(name, send) for name, some in effects.items() for send in note(hosts[name], some)]
    count = 0
    while waiting:
        name, send = waiting.pop(0)
        frame = decode_frame(encode_frame(send.frame))
        answer = hosts[send.peer].receive(name, frame, now)
        waiting += [(send.peer, one) for one in note(hosts[send.peer], answer)]
        count += 1
    return count


def test_hosts_that_stay_together_hear_of_what_is_held_and_renewed():
    hosts = {name: host(name) for name in "123"}
    for one, other in ("12", "23"):
        begun = {one: hosts[one].meet(other, 0.0), other: hosts[other].meet(one, 0.0)}
        _exchange(hosts, begun, 0.0)
    hosts["1"].registry.hold("jobs")
    assert hosts["1"].wake_at < 0.0
    assert _exchange(hosts, {"1": hosts["1"].wake(0.0)}, 0.0) == 2
    assert hosts["3"].registry.find("jobs", 0.0).holder == "1"
    now = 0.0
    while (now := hosts["1"].wake_at) < 3 * LEASE_S:
        assert _exchange(hosts, {"1": hosts["1"].wake(now)}, now) == 2
        assert hosts["1"].wake_at > now
    assert hosts["3"].registry.find("jobs", 3 * LEASE_S).holder == "1"
    hosts["1"].registry.remove("jobs")
    assert hosts["1"].wake(now) == []
    assert hosts["1"].wake_at == inf


def test_an_entry_by_hand_has_no_end_and_is_not_told_to_others():
    one, two = host("1"), host("2")
    one.registry.add("jobs", "9")
    assert one.registry.find("jobs", 1e9).holder == "9"
    meet(one, two)
    assert two.registry.find("jobs", 0.0) is None


def test_another_host_can_not_take_over_a_name_while_its_lease_runs():
    registry = PlaceRegistry("1", Unsigned())
    assert registry.hear([Announcement("jobs", "queue", "2", 1, 1, 100.0)], 0.0) == 0
    registry.hear([Announcement("jobs", "queue", "3", 9, 9, 100.0)], 50.0)
    assert registry.find("jobs", 50.0).holder == "2"
    registry.hear([Announcement("jobs", "queue", "3", 9, 9, 100.0)], 101.0)
    assert registry.find("jobs", 101.0).holder == "3"


def test_announcements_that_can_not_be_are_refused_and_long_leases_cut():
    registry = PlaceRegistry("1", Unsigned(), places_max=2)
    bad = [
        Announcement("a", "queue", "2", 1, 1, left_s) for left_s in (0.0, -1.0, float("inf"), float("nan"))
    ]
    assert registry.hear([*bad, Announcement("b", "queue", "1", 1, 1, 10.0)], 0.0) == 5
    assert registry.hear([Announcement(name, "queue", "2", 1, 1, 1e9) for name in "abc"], 0.0) == 1
    assert registry.find("a", LEASE_S_MAX - 1) is not None
    assert registry.find("a", LEASE_S_MAX) is None


def test_a_full_registry_refuses_entries_by_hand():
    registry = PlaceRegistry("1", Unsigned(), places_max=1)
    registry.add("a", "2")
    with pytest.raises(UserError, match="1 entries"):
        registry.add("b", "2")
