"""Deputies of queues and topics: hosts that are often met stand in for a holder that is gone."""

import msgspec
import pytest
from adhoc.town import Town
from msgspec.structs import replace

from tidings.adhoc.frames import Announcement, Naming
from tidings.adhoc.messaging import SubscriberList
from tidings.adhoc.proofs import Unsigned
from tidings.adhoc.recent_counts import RecentCounts
from tidings.adhoc.registry import LEASE_S, PlaceRegistry
from tidings.adhoc.topics import SUBSCRIBERS_MAX, SubscriberState
from tidings.errors import QueueNotFound
from tidings.timers import renewal_s

TURN_S = renewal_s(LEASE_S)


def test_earlier_counts_weigh_less_and_the_least_is_forgotten():
    counts = RecentCounts(half_life_s=100.0, keys_max=2)
    for key, now, times in (("a", 0.0, 8), ("b", 100.0, 3), ("a", 200.0, 1)):
        for _ in range(times):
            counts.add(key, now)
    assert counts.weights(200.0) == {"a": 3.0, "b": 1.5}
    counts.add("c", 200.0)
    assert counts.weights(200.0) == {"a": 3.0, "b": 1.5}
    counts.add("c", 400.0)
    assert counts.weights(400.0) == {"a": 0.75, "c": 1.0}


def _town(*more, replicas=1, kind="queue"):
    """A holder h that meets d often, e less often, and the others once."""
    town = Town("h", "d", "e", *more)
    (town.at["h"].hold_queue if kind == "queue" else town.at["h"].hold_topic)("news", replicas)
    for now in range(0, 7_200, 600):
        town.meet("h", "d", float(now))
        if now % 1_800 == 0:
            town.meet("h", "e", now + 300.0)
    for name in more:
        town.meet("h", name, 7_200.0)
    return town


def test_the_hosts_that_are_met_most_often_are_the_deputies():
    for replicas, expected in ((0, ()), (1, ("d",)), (2, ("d", "e")), (8, ("d", "e"))):
        town = _town("x", replicas=replicas)
        assert town.hosts["x"].registry.find("news", 7_200.0).deputies == expected


def test_a_host_that_may_not_hold_a_place_is_no_deputy():
    town = Town("h", "d", "e")
    town.hosts["h"].may_deputise = lambda place, host: (place.name, host) == ("news", "e")
    town.at["h"].hold_queue("news", 2)
    for now in range(0, 7_200, 600):
        for name in "ed":
            town.meet("h", name, float(now))
    assert town.hosts["d"].registry.find("news", 7_200.0).deputies == ("e",)


def test_a_deputy_stands_in_when_the_lease_has_ended_and_until_the_holder_is_back():
    town = _town("x")
    deputy, other = town.hosts["d"], town.hosts["x"]
    ends_at = deputy.registry.find("news", 7_200.0).ends_at
    assert deputy.wake_at == ends_at
    town.wake("d", ends_at - 1)
    assert town.taken("d") == []
    town.wake("d", ends_at)
    assert town.taken("d") == ["news"]
    assert other.registry.find("news", 7_200.0 + LEASE_S) is None
    town.meet("d", "x", 20_000.0)
    assert other.registry.find("news", 20_000.0).holder == "d"
    town.meet("h", "d", 20_100.0)
    assert town.left("d") == [("news", "h")]
    town.meet("d", "x", 20_200.0)
    assert other.registry.find("news", 20_200.0).holder == "h"
    for now in range(20_300, 40_000, 600):
        town.meet("h", "d", float(now))
    assert town.taken("d") == ["news"]


def test_a_holder_that_is_heard_of_is_not_gone():
    town = _town("x")
    town.meet("h", "x", 9_000.0)
    town.meet("x", "d", 9_500.0)
    town.wake("d", 9_000.0 + LEASE_S - 1)
    assert town.taken("d") == []
    town.wake("d", 9_000.0 + LEASE_S + 1)
    assert town.taken("d") == ["news"]
    town.meet("h", "x", 20_000.0)
    town.meet("x", "d", 20_100.0)  # which hears from x that h is back
    assert town.left("d") == [("news", "h")]


def test_an_old_announcement_of_the_holder_does_not_end_its_replacement():
    town = _town("x")
    old = town.hosts["d"].registry.announced(7_000.0)
    town.wake("d", 7_000.0 + LEASE_S)
    assert town.taken("d") == ["news"]
    for name in "dx":
        town.meet("d", "x", 7_300.0 + LEASE_S)
        assert town.hosts[name].registry.hear(old, 7_300.0 + LEASE_S) == 0
        assert town.hosts[name].registry.find("news", 7_300.0 + LEASE_S).holder == "d"
    assert town.left("d") == []


def test_the_next_deputy_waits_for_its_turn_and_for_the_one_before_it():
    town = _town(replicas=2)
    ends_at = {name: town.hosts[name].registry.find("news", 7_200.0).ends_at for name in "de"}
    town.wake("e", ends_at["e"] + TURN_S - 1)
    assert town.taken("e") == []
    town.wake("d", ends_at["d"])
    town.meet("d", "e", ends_at["e"] + TURN_S - 1)
    now = town.hosts["e"].registry.find("news", ends_at["e"] + TURN_S).ends_at
    town.wake("e", now + TURN_S - 1)
    assert town.taken("e") == []
    town.wake("e", now + TURN_S)  # the one before it is gone, too
    assert town.taken("e") == ["news"]


def test_of_two_that_stand_in_apart_the_first_goes_on():
    town = _town("x", replicas=2)
    for name in "de":
        town.wake(name, 20_000.0)
    town.meet("e", "x", 20_000.0)
    assert town.hosts["x"].registry.find("news", 20_000.0).holder == "e"
    town.meet("d", "e", 20_100.0)
    assert town.left("d") == []
    assert town.left("e") == [("news", "d")]
    town.meet("d", "x", 20_200.0)
    assert town.hosts["x"].registry.find("news", 20_200.0).holder == "d"


def test_a_holder_that_names_nobody_any_more_takes_back_what_it_has_said():
    town = _town()
    town.at["h"].hold_queue("news", 0)
    town.meet("h", "d", 9_000.0)
    town.wake("d", 30_000.0)
    assert town.taken("d") == []
    assert town.hosts["d"].registry.find("news", 30_000.0) is None


def test_a_queue_is_put_to_by_its_name_whoever_stands_in():
    town = _town("x")
    with pytest.raises(QueueNotFound):
        town.at["x"].put("news", b"1", 20_000.0)
    town.wake("d", 20_000.0)
    town.meet("d", "x", 20_000.0)
    town.call("x", town.at["x"].put("news", b"1", 20_000.0), 20_000.0)
    town.meet("h", "x", 20_100.0)  # the holder is back, and the message is not for it
    town.call("x", town.at["x"].put("news", b"2", 20_100.0), 20_100.0)
    town.meet("h", "x", 20_200.0)
    town.meet("d", "x", 20_300.0)
    town.meet("d", "h", 20_400.0)
    assert [town.hosts[name].got for name in "hd"] == [["2"], ["1"]]


class _Keys:
    """Signatures of one host that no other can make."""

    def __init__(self, host):
        self.host = host

    def sign(self, data):
        return self.host.encode() + data

    def verify(self, host, data, proof):
        return proof == host.encode() + data


def test_nobody_stands_in_who_was_not_named():
    def announcement(holder, naming, number=1):
        made = Announcement("jobs", "queue", holder, 1, number, 100.0, naming=naming)
        return replace(made, proof=_Keys(holder).sign(made.signed))

    holder = PlaceRegistry("h", _Keys("h"), 1)
    holder.choose = lambda _place, _now: ("d", "e")
    holder.hold("jobs", replicas=2)
    (said,) = holder.due(0.0)
    naming = Naming("h", said.epoch, said.number, said.deputies, said.proof)
    registry = PlaceRegistry("x", _Keys("x"))
    forged = [
        announcement("z", naming),
        announcement("z", Naming("h", said.epoch, said.number, ("z",), said.proof)),
        announcement("d", Naming("h", said.epoch, said.number + 1, said.deputies, said.proof)),
        announcement("d", Naming("g", said.epoch, said.number, said.deputies, said.proof)),
    ]
    assert registry.hear(forged, 0.0) == len(forged)
    assert registry.hear([announcement("d", naming)], 0.0) == 0
    assert registry.find("jobs", 0.0).holder == "d"
    assert registry.hear([said], 0.0) == 0  # from before it was gone
    assert registry.find("jobs", 0.0).holder == "d"


def test_a_stand_in_does_not_take_the_place_of_a_holder_whose_lease_runs():
    registry = PlaceRegistry("x", Unsigned())
    naming = Naming("h", 1, 5, ("d",))
    registry.hear([Announcement("jobs", "queue", "h", 1, 7, 100.0, b"", ("d",))], 0.0)
    registry.hear([Announcement("jobs", "queue", "d", 9, 9, 500.0, b"", (), naming)], 50.0)
    assert registry.find("jobs", 50.0).holder == "h"
    registry.hear([Announcement("jobs", "queue", "d", 9, 9, 500.0, b"", (), naming)], 100.0)
    assert registry.find("jobs", 100.0).holder == "d"
    registry.hear([Announcement("jobs", "queue", "d", 9, 10, 500.0, b"", (), naming)], 300.0)
    assert registry.find("jobs", 700.0).holder == "d"


def test_of_two_deputies_of_one_naming_the_first_holds_the_place_and_of_two_namings_the_later():
    def announcement(holder, number):
        return Announcement("jobs", "queue", holder, 1, 1, 900.0, naming=Naming("h", 1, number, ("d", "e")))

    for first, second, expected in (
        (("d", 5), ("e", 5), "d"),
        (("e", 5), ("d", 5), "d"),
        (("d", 5), ("e", 6), "e"),
        (("e", 6), ("d", 5), "e"),
    ):
        registry = PlaceRegistry("x", Unsigned())
        registry.hear([announcement(*first)], 0.0)
        registry.hear([announcement(*second)], 0.0)
        assert registry.find("jobs", 0.0).holder == expected


# Topics


def _subscribed(*names, replicas=1):
    town = _town(*names, replicas=replicas, kind="topic")
    for name in names:
        town.call(name, town.at[name].subscribe("news", 7_200.0, durable=True), 7_200.0)
        town.meet("h", name, 7_300.0)
    for name in "de"[:replicas]:
        town.meet("h", name, 7_400.0)
    return town


def test_a_stand_in_sends_publications_to_the_subscribers_that_it_was_told_of():
    town = _subscribed("x", "y", "p")
    town.call("y", town.at["y"].unsubscribe("news", 7_500.0), 7_500.0)
    town.meet("y", "h", 7_500.0)
    town.meet("h", "d", 7_600.0)
    town.wake("d", 20_000.0)
    town.meet("d", "p", 20_000.0)
    town.call("p", town.at["p"].publish("news", b"rain", 20_000.0), 20_000.0)
    town.meet("p", "d", 20_100.0)
    for name in "xy":
        town.meet("d", name, 20_200.0)
        town.meet("d", name, 20_300.0)
    assert [town.hosts[name].got for name in "xyp"] == [["rain"], [], ["rain"]]


def test_the_holder_hears_of_the_subscriptions_that_were_made_and_ended_while_it_was_gone():
    town = _subscribed("x", "y")
    town.wake("d", 20_000.0)
    for name in "xy":
        town.meet("d", name, 20_000.0)
    town.call("x", town.at["x"].unsubscribe("news", 20_100.0), 20_100.0)
    town.meet("d", "x", 20_200.0)
    town.meet("d", "h", 20_300.0)
    assert sorted(town.at["h"].topics["news"].subscribers) == ["y"]
    assert town.at["d"].topics == {}


def test_what_comes_to_a_host_that_stands_in_no_longer_is_done_once():
    town = _subscribed("x", "p")
    town.wake("d", 20_000.0)
    town.meet("d", "p", 20_000.0)
    town.call("p", town.at["p"].publish("news", b"late", 20_000.0), 20_000.0)
    town.call("p", town.at["p"].unsubscribe("news", 20_000.0), 20_000.0)
    town.meet("d", "h", 20_100.0)
    town.meet("p", "d", 20_200.0)
    town.meet("d", "h", 20_300.0)
    for name in "dh":
        town.meet(name, "x", 20_400.0)
    assert town.hosts["x"].got == ["late"]
    assert sorted(town.at["h"].topics["news"].subscribers) == ["x"]


def test_lists_of_subscribers_are_taken_from_the_holder_and_its_deputies_alone():
    town = _subscribed("x", "z")
    stolen = town.at["d"].replicas["news"].states(7_400.0)
    assert [one.host for one in stolen] == ["x", "z"]
    for naming in (None, Naming("h", 1, 1, ("d",)), Naming("g", 1, 1, ("z",))):
        list_ = town.at["z"]._send_list("news", ("h", "d"), _list(naming), 8_000.0)
        town.call("z", list_, 8_000.0)
    for name in "hd":
        town.meet("z", name, 8_100.0)
        assert town.hosts[name].tallies["refused", "subscribers"] == 3
    assert sorted(town.at["h"].topics["news"].subscribers) == ["x", "z"]


@pytest.mark.parametrize("raw", [b"", b"junk", b"\xc0", msgspec.msgpack.encode([[["x", [1, 1], 0.0]] * 3])])
def test_lists_of_subscribers_that_are_none_are_refused(raw):
    town = _subscribed("x")
    for name, sender in (("h", "d"), ("d", "h")):
        message = town.hosts[sender].compose((name,), raw, destination="subscribers:news")
        town.call(name, town.at[name].accept(message, 8_000.0), 8_000.0)
        assert town.hosts[name].tallies["refused", "subscribers"] == 1
    assert sorted(town.at["h"].topics["news"].subscribers) == ["x"]


def test_a_list_of_more_subscribers_than_a_topic_has_is_refused():
    town = _subscribed("x")
    states = [SubscriberState(f"x{number}", (1, 1), 9.0) for number in range(2 * SUBSCRIBERS_MAX + 1)]
    raw = msgspec.msgpack.encode(SubscriberList(states))
    message = town.hosts["h"].compose(("d",), raw, destination="subscribers:news")
    town.call("d", town.at["d"].accept(message, 8_000.0), 8_000.0)
    assert town.hosts["d"].tallies["refused", "subscribers"] == 1


def _list(naming):
    return SubscriberList([SubscriberState("evil", (1, 1), 100.0)], naming)
