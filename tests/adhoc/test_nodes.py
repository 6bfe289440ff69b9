"""Nodes that meet by chance, in virtual time: what is put is carried, delivered once, and forgotten."""

import pytest
from adhoc.nodes import Hosts
from msgspec.structs import replace

from tidings.adhoc.carried_events import unpack
from tidings.adhoc.sketching import LISTED_MAX
from tidings.event.wire import decode_event


def _line(**settings):
    hosts = Hosts("a", "b", "c", **settings)
    hosts.create("c", "jobs")
    return hosts


def test_a_put_without_a_path_is_carried_by_a_host_that_meets_both():
    hosts = _line()
    assert hosts.put("a", "jobs@c", n=1) == []
    hosts.meet("a", "b")
    assert hosts.held("b") == 1
    hosts.meet("b", "c")
    assert hosts.got("c", "jobs") == [{"n": 1}]
    assert hosts.held("b") == 0
    hosts.meet("a", "b")
    assert hosts.held("a") == 0


def test_the_sender_gets_one_report_when_the_recipient_has_it():
    hosts = _line()
    hosts.create("a", "reports")
    hosts.put("a", "jobs@c", n=1, report="delivered expired", reply_to="reports")
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    hosts.meet("a", "b")
    hosts.meet("a", "c")
    assert hosts.got("c", "jobs") == [{"n": 1}]
    assert hosts.got("a", "reports") == [{"queue": "jobs@c"}]


def test_the_sender_gets_one_report_when_its_message_has_expired():
    hosts = _line()
    hosts.create("a", "reports")
    hosts.put("a", "jobs@c", n=1, report="delivered expired", reply_to="reports", ttl_s=20.0)
    hosts.meet("a", "b")
    hosts.run(60.0)
    assert hosts.got("a", "reports") == [{"queue": "jobs@c", "reason": "it was not delivered in time"}]
    assert hosts.held("a") == hosts.held("b") == 0
    assert hosts.tally("b", "dropped", "expired") == 1
    hosts.meet("b", "c")
    assert hosts.got("c", "jobs") == []


def test_a_message_has_the_rest_of_its_life_in_the_queue_that_it_comes_to():
    hosts = Hosts("a", "b", "c")
    hosts.ask("c", "queue.create", name="jobs", expiry=True)
    for n, ttl_s in ((1, 100.0), (2, 1_000.0), (3, None)):
        hosts.put("a", "jobs@c", n=n, ttl_s=ttl_s)
    hosts.run(60.0)
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    queue = hosts["c"].queues.find("jobs")
    events = [queue.shelf[number].event for number in queue.shelf]
    lives = {event["n"]: event.ttl_s for event in events}
    assert lives[1] < 40.0
    assert 900.0 < lives[2] < 940.0
    assert lives[3] is None
    hosts.run(40.0)
    assert hosts.got("c", "jobs") == [{"n": 2}, {"n": 3}]


def test_everything_survives_a_restart_of_every_host_on_the_way():
    hosts = _line()
    hosts.create("a", "reports")
    hosts.put("a", "jobs@c", n=1, report="delivered", reply_to="reports")
    hosts.restart("a")
    hosts.meet("a", "b")
    hosts.restart("b")
    assert hosts.held("b") == 1
    hosts.meet("b", "c")
    hosts.restart("c")
    hosts.meet("a", "c")  # with the old replica, and before the report
    assert hosts.got("c", "jobs") == [{"n": 1}]
    hosts.restart("b")
    hosts.restart("a")
    hosts.meet("a", "b")
    assert hosts.got("a", "reports") == [{"queue": "jobs@c"}]
    assert [hosts.held(name) for name in "abc"] == [0, 0, 0]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_long_message_that_was_cut_is_resumed_at_the_next_meeting(is_restarted):
    hosts = _line()
    hosts.put("a", "jobs@c", text="x" * 50_000, more=b"y" * 500_000)
    link = hosts.world.network.link("a", "b")
    link.conditions = replace(link.conditions, bytes_per_s=200_000.0)
    hosts.begin("a", "b")
    hosts.run(1.2)
    hosts._part("a", "b")
    hosts.run(10.0)
    begun = hosts["b"].core.adhoc.host.partial.begun
    assert hosts.held("b") == 0
    if is_restarted:
        hosts.restart("b")
    host = hosts["b"].core.adhoc.host
    assert host.partial.begun == begun != ()
    link.conditions = replace(link.conditions, bytes_per_s=1e9)
    hosts.begin("a", "b")
    hosts.run(3.0)
    size = next(iter(host.buffer)).size
    assert host.meetings["a"].bytes_received == size - begun[0][1]
    assert host.partial.begun == ()
    hosts.meet("b", "c")
    assert [len(one["more"]) for one in hosts.got("c", "jobs")] == [500_000]


def test_the_route_decides():
    hosts = _line()
    (failure,) = hosts.put("a", "jobs@c", n=1, route="direct")
    assert failure.code == "queue-not-found"
    assert hosts.held("a") == 0
    hosts.put("a", "jobs@c", n=2, route="epidemic")
    assert hosts.held("a") == 1


def test_a_path_is_used_if_there_is_one_unless_the_route_is_epidemic():
    hosts = Hosts("a", "b", peers=(("a", "b"),))
    hosts.create("b", "jobs")
    hosts.run(5.0)
    hosts.put("a", "jobs@b", n=1)
    assert hosts.got("b", "jobs") == [{"n": 1}]
    assert hosts.tally("a", "sent") == 0
    hosts.put("a", "jobs@b", n=2, route="epidemic")
    hosts.run(3.0)
    assert hosts.tally("a", "sent") == 1
    assert hosts.got("b", "jobs") == [{"n": 1}, {"n": 2}]


def test_the_description_says_which_promise_holds():
    hosts = Hosts("a", "b", peers=(("a", "b"),))
    hosts.create("b", "jobs")
    hosts.run(5.0)
    assert "promise" not in hosts.ask("a", "queue.describe", queue="jobs@b")
    assert hosts.ask("a", "queue.describe", queue="jobs@far")["promise"] == "carried"


def test_a_queue_that_was_announced_is_found_by_its_name_alone():
    hosts = _line()
    hosts.ask("c", "adhoc.hold", name="jobs")
    hosts.meet("b", "c")
    hosts.meet("a", "b")
    hosts.put("a", "jobs", n=1)
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    assert hosts.got("c", "jobs") == [{"n": 1}]


def test_hosts_that_have_parted_leave_nothing_behind():
    hosts = _line()
    hosts.meet("a", "b")
    hosts.run(30.0)
    for name in "ab":
        assert list(hosts[name].core.registry) == []
        assert list(hosts[name].core.overlay.neighbours) == []
        assert len(hosts[name].core.overlay.topology.records) == 1


def test_a_message_for_a_queue_that_is_not_there_is_a_dead_letter_until_that_is_made():
    hosts = Hosts("a", "b")
    hosts.put("a", "gone@b", n=1)
    hosts.meet("a", "b")
    (letter,) = hosts.got("b", "tidings.dead")
    assert letter["n"] == 1
    assert letter["dead.queue"] == "gone"
    assert hosts.tally("b", "undelivered", "queue") == 1
    hosts.create("b", "other")
    hosts.restart("b")
    hosts.create("b", "gone")
    hosts.run(2.0)
    assert hosts.got("b", "gone") == [{"n": 1}]
    assert hosts.got("b", "tidings.dead") == hosts.got("b", "other") == []


def test_a_durable_subscriber_that_was_never_connected_gets_publications():
    hosts = _line()
    hosts.ask("b", "adhoc.hold", name="news", kind="topic")
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    listening = hosts.app("c").subscribe("subject = 'news'", durable="d")
    hosts.run(5.0)
    hosts.meet("b", "c")
    hosts.app("a").publish(1, subject="news")
    hosts.run(2.0)
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    hosts.meet("b", "c")
    assert listening.values == [1]
    assert [event.source for event in listening.got] == ["app-a@a"]


@pytest.mark.parametrize("seed", range(3))
def test_many_puts_in_chance_meetings_are_delivered_at_most_once(seed):
    hosts = Hosts("a", "b", "c", "d", seed=seed)
    hosts.create("d", "jobs")
    random = hosts.world.random
    for n in range(12):
        hosts.put("a", "jobs@d", n=n)
        one, other = random.sample("abcd", 2)
        hosts.meet(one, other, seconds=random.uniform(0.0, 2.0))
        if random.random() < 0.3:
            hosts.restart(random.choice("abcd"))
    hosts.meet("a", "d")
    assert sorted(one["n"] for one in hosts.got("d", "jobs")) == list(range(12))


def test_a_recipient_whose_disk_is_full_acknowledges_nothing_and_has_the_message_once():
    hosts = Hosts("a", "b")
    hosts.create("b", "jobs")
    hosts.put("a", "jobs@b", n=1)
    hosts["b"].disk.size_max = 0
    hosts.meet("a", "b")
    assert hosts.held("a") == 1
    hosts["b"].disk.size_max = None
    hosts.meet("a", "b")
    hosts.restart("b")
    hosts.meet("a", "b")
    assert hosts.got("b", "jobs") == [{"n": 1}]
    assert hosts.held("a") == 0


def test_two_hosts_that_meet_for_seconds_exchange_the_best_first():
    hosts = _line()
    for n in range(20):
        hosts.put("a", "jobs@c", n=n, text="x" * 60_000)
    hosts.put("a", "jobs@c", n=20, text="x" * 60_000, priority=9)
    hosts.put("a", "jobs@c", n=21, text="x" * 60_000, delivery="reliable")
    link = hosts.world.network.link("a", "b")
    link.conditions = replace(link.conditions, bytes_per_s=100_000.0)
    hosts.begin("a", "b")
    hosts.run(1.5)
    hosts._part("a", "b")
    hosts.run(10.0)
    buffer = hosts["b"].core.adhoc.host.buffer
    carried = [decode_event(unpack(buffer.raw_of(one)).raw)["n"] for one in buffer]
    assert carried[:2] == [21, 20]
    assert len(carried) < 10


def test_nodes_that_carry_many_messages_exchange_the_difference():
    hosts = Hosts("a", "b", "c")
    hosts.create("c", "jobs")
    for n in range(LISTED_MAX + 20):
        hosts.put("a", "jobs@c", n=n)
    hosts.meet("a", "b", seconds=10.0)
    assert hosts.held("b") == LISTED_MAX + 20
    hosts.put("a", "jobs@c", n=200)
    before = hosts.tally("b", "received")
    hosts.meet("a", "b", seconds=10.0)
    assert hosts.tally("b", "received") == before + 1
    hosts.meet("b", "c", seconds=10.0)
    assert len(hosts.got("c", "jobs")) == LISTED_MAX + 21
    hosts.meet("a", "b", seconds=10.0)
    assert hosts.held("a") == hosts.held("b") == 0


def test_a_host_that_is_met_only_is_no_path():
    hosts = Hosts("a", "b")
    hosts.create("b", "jobs")
    hosts.begin("a", "b")
    hosts.run(2.0)
    (failure,) = hosts.put("a", "jobs@b", n=1, route="direct")
    assert failure.code == "queue-not-found"
    hosts.put("a", "jobs@b", n=2)
    hosts.run(2.0)
    assert hosts.got("b", "jobs") == [{"n": 2}]
    assert hosts["a"].queues.get("to:jobs@b") is None
