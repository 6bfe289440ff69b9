"""Nodes that stand in for others: the queue that one holds meanwhile, and how it is handed over."""

import pytest
from adhoc.nodes import Hosts

from tidings.event import Event
from tidings.queues.message import event_bytes

LEASE_S = 180.0
FIELDS = ("name", "kind", "holder", "stands_in_for")


def _hosts(*more, kind="queue", replicas=1, **settings):
    """A holder h that meets d often, and has met the others."""
    hosts = Hosts("h", "d", *more, lease_s=LEASE_S, **settings)
    if kind == "queue":
        hosts.create("h", "jobs")
    hosts.ask("h", "adhoc.hold", name="jobs", kind=kind, replicas=replicas)
    for _ in range(4):
        hosts.meet("h", "d")
        hosts.run(30.0)
    for name in more:
        hosts.meet("h", name)
    hosts.meet("h", "d")
    return hosts


def _known(hosts, name):
    return [tuple(one[field] for field in FIELDS) for one in hosts.ask(name, "adhoc.status")["known"]]


def test_a_queue_goes_on_at_a_host_that_stands_in_and_comes_back_with_its_messages():
    hosts = _hosts("x")
    hosts.run(2 * LEASE_S)
    assert _known(hosts, "d") == [("jobs", "queue", "d", "h")]
    hosts.meet("d", "x")
    hosts.put("x", "jobs", n=1)
    hosts.put("x", "jobs", n=2, ttl_s=5_000.0)
    hosts.meet("d", "x")
    assert hosts.got("d", "jobs") == [{"n": 1}, {"n": 2}]
    hosts.put("d", "jobs", n=3)  # by a client of its own
    hosts.meet("d", "h")
    assert hosts.got("h", "jobs") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert not hosts["d"].queues.knows("jobs")
    assert _known(hosts, "d") == [("jobs", "queue", "h", "")]
    queue = hosts["h"].queues.find("jobs")
    events = [queue.shelf[number].event for number in queue.shelf]
    assert [event.ttl_s is None or 4_900 < event.ttl_s < 4_999 for event in events] == [True] * 3
    assert [event.source for event in events] == ["app-x@x@d", "app-x@x@d", "app-d@d"]


@pytest.mark.parametrize("restarted", ["d", "h", "dh"])
def test_who_holds_what_survives_restarts(restarted):
    hosts = _hosts("x")
    for name in restarted:
        hosts.restart(name)
    hosts.run(2 * LEASE_S)
    for name in restarted:
        hosts.restart(name)
    assert _known(hosts, "d") == [("jobs", "queue", "d", "h")]
    hosts.meet("d", "x")
    hosts.put("x", "jobs", n=1)
    hosts.meet("d", "x")
    for name in restarted:
        hosts.restart(name)
    assert hosts.got("d", "jobs") == [{"n": 1}]
    hosts.begin("d", "h")
    hosts._part("d", "h")
    for name in restarted:
        hosts.restart(name)
    hosts.meet("d", "h")
    assert hosts.got("h", "jobs") == [{"n": 1}]
    assert not hosts["d"].queues.knows("jobs")


def test_what_comes_late_to_a_host_that_stood_in_is_carried_on():
    hosts = _hosts("x")
    hosts.run(2 * LEASE_S)
    hosts.meet("d", "x")
    hosts.put("x", "jobs", n=1)
    hosts.meet("d", "h")
    hosts.restart("d")
    hosts.meet("d", "x")
    assert hosts.got("h", "jobs") == []
    hosts.meet("d", "h")
    assert hosts.got("h", "jobs") == [{"n": 1}]
    assert not hosts["d"].queues.knows("tidings.dead")


def test_a_message_that_a_reader_has_is_handed_over_when_it_comes_back():
    hosts = _hosts("x")
    hosts.run(2 * LEASE_S)
    for n in (1, 2):
        hosts.put("d", "jobs", n=n)
    queue = hosts["d"].queues.find("jobs")
    held = queue.take(queue.shelf.first(), ("reader", 1))
    hosts.meet("d", "h")
    assert hosts.got("h", "jobs") == [{"n": 2}]
    assert queue.size == 1
    queue.give_back(held)
    hosts.meet("d", "h")
    assert hosts.got("h", "jobs") == [{"n": 2}, {"n": 1}]
    assert not hosts["d"].queues.knows("jobs")


def test_a_host_with_a_queue_of_that_name_stands_in_for_nobody():
    hosts = _hosts("x")
    hosts.create("d", "jobs")
    hosts.put("d", "jobs", n=1)
    hosts.run(2 * LEASE_S)
    assert _known(hosts, "d") == []
    hosts.meet("d", "h")
    assert hosts.got("d", "jobs") == [{"n": 1}]
    assert hosts.got("h", "jobs") == []


def test_a_queue_that_was_made_later_by_a_client_is_not_handed_over():
    hosts = _hosts("x")
    hosts.run(2 * LEASE_S)
    hosts.meet("d", "h")
    assert not hosts["d"].queues.knows("jobs")
    hosts.run(2 * LEASE_S)
    hosts.ask("d", "adhoc.release", name="jobs")
    hosts.ask("d", "queue.delete", queue="jobs")
    hosts.create("d", "jobs")
    hosts.put("d", "jobs", n=1)
    hosts.meet("d", "h")
    hosts.run(20.0)
    assert hosts.got("d", "jobs") == [{"n": 1}]
    assert hosts.got("h", "jobs") == []


def test_a_host_whose_buffer_is_full_hands_over_what_there_is_room_for():
    hosts = _hosts("x", buffer_bytes=100_000)
    hosts.run(2 * LEASE_S)
    for n in range(6):
        hosts.put("d", "jobs", n=n, text="x" * 30_000)
    hosts.meet("h", "x")
    hosts.meet("x", "d")
    assert hosts.held("d") == 3
    assert len(hosts.got("d", "jobs")) == 3
    hosts.meet("d", "h")
    assert sorted(one["n"] for one in hosts.got("h", "jobs")) == list(range(6))
    assert not hosts["d"].queues.knows("jobs")


def test_a_body_that_can_not_be_carried_becomes_a_dead_letter():
    hosts = _hosts("x")
    hosts.run(2 * LEASE_S)
    event = event_bytes(Event("job", {"n": 1}, body=b"x"))
    hosts["d"].queues.find("jobs").put(event, None, [b"x" * 100])
    hosts.meet("d", "h")
    (letter,) = hosts.got("d", "tidings.dead")
    assert "too long" in letter["dead.reason"]
    assert not hosts["d"].queues.knows("jobs")


def test_a_topic_goes_on_at_a_host_that_stands_in():
    hosts = _hosts("x", "p", kind="topic")
    listening = hosts.app("x").subscribe("subject = 'jobs'", durable="d")
    at_holder = hosts.app("h").subscribe("subject = 'jobs'", durable="d")
    at_deputy = hosts.app("d").subscribe("subject = 'jobs'", durable="d")
    hosts.run(5.0)
    for name in "xdpd":
        hosts.meet("h", name)
    hosts.restart("d")
    hosts.run(2 * LEASE_S)
    assert _known(hosts, "d") == [("jobs", "topic", "d", "h")]
    hosts.meet("d", "p")
    hosts.app("p").publish(1, subject="jobs")
    hosts.run(1.0)
    for one, other in ("pd", "dx", "dh", "px", "ph", "dh"):
        hosts.meet(one, other)
    assert listening.values == at_holder.values == at_deputy.values == [1]
    hosts.app("p").publish(2, subject="jobs")
    hosts.run(1.0)
    for one, other in ("ph", "hx", "hd", "hx"):
        hosts.meet(one, other)
    assert listening.values == at_holder.values == at_deputy.values == [1, 2]


def _following(**about):
    hosts = Hosts("h", "r", "x", lease_s=LEASE_S)
    hosts.ask("h", "queue.create", name="jobs", **about)
    hosts.ask("h", "adhoc.hold", name="jobs", follow=True)
    for n in (1, 2):
        hosts.put("h", "jobs", n=n)
    hosts.meet("h", "r")
    for _ in range(8):
        hosts.ask("r", "get", queue="jobs")
        hosts.run(LEASE_S / 60)
    return hosts


@pytest.mark.parametrize("restarted", ["", "h", "r"])
def test_a_queue_goes_to_the_host_whose_clients_want_to_read_it(restarted):
    hosts = _following(priorities=True, max_messages=10)
    hosts.meet("h", "r", 6.0)  # r asks, and h offers
    for name in restarted:
        hosts.restart(name)
    hosts.meet("h", "r", 6.0)  # r has it, and h hands over
    for name in restarted:
        hosts.restart(name)
    hosts.meet("h", "r", 6.0)
    assert not hosts["h"].queues.knows("jobs")
    assert hosts.got("r", "jobs") == [{"n": 1}, {"n": 2}]
    description = hosts["r"].queues.find("jobs").description
    assert (description.priorities, description.max_messages, description.expiry) == (True, 10, False)
    hosts.meet("r", "x")
    hosts.put("x", "jobs", n=3)
    hosts.put("h", "jobs", n=4)
    for one, other in ("xr", "hr"):
        hosts.meet(one, other)
    assert [one["n"] for one in hosts.got("r", "jobs")] == [1, 2, 3, 4]
    assert _known(hosts, "x")[0][2] == "r"


def test_a_queue_that_its_own_host_reads_stays_there():
    hosts = Hosts("h", "r", lease_s=LEASE_S)
    hosts.create("h", "jobs")
    hosts.ask("h", "adhoc.hold", name="jobs", follow=True)
    hosts.meet("h", "r")
    for n in range(8):
        hosts.put("h", "jobs", n=n)
        hosts.ask("h", "get", queue="jobs")
        hosts.ask("r", "get", queue="jobs")
        hosts.run(LEASE_S / 60)
    for _ in range(3):
        hosts.meet("h", "r", 6.0)
    assert _known(hosts, "r")[0][2] == "h"
    assert hosts.tally("r", "stood_in", "queue") == 0


def test_a_queue_that_is_bound_to_its_node_is_not_offered():
    hosts = _following(bind="type = 'x'")
    for _ in range(3):
        hosts.meet("h", "r", 6.0)
    assert hosts.tally("r", "stood_in", "queue") == 0
    assert len(hosts.got("h", "jobs")) == 2


@pytest.mark.parametrize("wrong", [{"kind": "topic"}, {"host": "far"}])
def test_only_a_queue_that_is_held_here_follows_its_reader(wrong):
    hosts = Hosts("h")
    assert hosts.ask("h", "adhoc.hold", name="jobs", follow=True, **wrong).code == "protocol"


@pytest.mark.parametrize("wrong", [{"replicas": 9}, {"replicas": -1}, {"replicas": 1, "host": "far"}])
def test_replicas_that_can_not_be_are_refused(wrong):
    hosts = Hosts("h")
    assert hosts.ask("h", "adhoc.hold", name="jobs", **wrong).code == "protocol"
