"""What users may do with queues of other nodes: no more than the rules of their own node say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from peers.nodes import Client, Home
from protocol.guarded import may
from queues.rig import DONE, job, numbers

AT_KITCHEN = "jobs@kitchen"


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def owner(home: Home) -> Client:
    """Whoever has a queue at a peer, with jobs of two colors in it."""
    owner = home.owner_of("kitchen")
    owner.create("jobs", expiry=True)
    owner.create("letters")
    for n, color in enumerate(("red", "blue", "red", "blue")):
        owner.put("jobs", job(n, color=color))
    home.run()
    return owner


def test_rules_are_for_the_name_with_the_node(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("get", queue="jobs"))
    assert ann.fails("get", queue=AT_KITCHEN).code == "not-allowed"
    bob = home.user("bob", may("get", queue="jobs@kitchen"))
    node = home.far("kitchen").broker.node
    for address in (AT_KITCHEN, f"jobs@{node}"):
        assert numbers(bob.read(address)) == [0, 1, 2, 3]
    assert bob.fails("get", queue="letters@kitchen").code == "not-allowed"


def test_what_one_can_do_nothing_with_is_not_seen(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("put", queue="jobs@*"))
    found = ann.ask("queue.find", scope="both")
    assert [one["name"] for one in found] == ["jobs"]
    assert ann.describe("jobs")["node"] == "kitchen"
    for name in ("letters", "letters@kitchen"):
        assert ann.fails("queue.describe", queue=name).code == "queue-not-found"


def test_which_peers_are_away_is_told_to_who_may_use_what_is_there(home: Home) -> None:
    home.links["garage"].cut()
    home.links["kitchen"].cut()
    ann = home.user("ann", may("put", queue="tools@garage"))
    assert ann.fails("queue.describe", queue="tools").text.endswith("there is no such queue (away: garage)")
    assert ann.fails("queue.describe", queue="letters").text.endswith("there is no such queue")


def test_a_filter_is_added_to_every_way_of_getting(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("get", "color = 'blue'", AT_KITCHEN))
    assert numbers(ann.read(AT_KITCHEN)) == [1, 3]
    assert numbers(ann.read(AT_KITCHEN, where="n > 1 OR color = 'red'")) == [3]
    waiting = ann.wait(AT_KITCHEN, where="n > 3")
    home.run()
    owner.put("jobs", job(4, color="red"), job(5, color="blue"))
    home.run()
    assert numbers(ann.got(waiting) or []) == [5]
    assert numbers(ann.get(AT_KITCHEN, 10)) == [1, 3]


def test_a_watch_shows_only_what_may_be_got(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("get", "color = 'blue'", AT_KITCHEN))
    ann.subscribe(queue=AT_KITCHEN)
    owner.put("jobs", job(4, color="red"), job(5, color="blue"))
    home.run()
    assert ann.told == [5]
    bob = home.user("bob", may("put"))
    failure = bob.fails("subscribe", number=1, filter="", credit=10, queue=AT_KITCHEN)
    assert failure.code == "not-allowed"


def test_who_may_get_some_messages_names_none_that_he_has_not_got(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("get", "color = 'blue'", AT_KITCHEN))
    bob = home.user("bob", may("get", queue=AT_KITCHEN))
    (red, *_) = bob.read(AT_KITCHEN)
    part = {"queue": AT_KITCHEN, "number": red.number, "delivery": 0, "index": 0}
    assert ann.fails("part", **part).code == "not-allowed"
    renewal = {"queue": AT_KITCHEN, "id": red.event.id, "lease_s": 0.0}
    assert ann.fails("queue.renew", **renewal).code == "not-allowed"
    assert numbers(owner.read("jobs")) == [0, 1, 2, 3]


def test_what_one_client_holds_is_not_another_ones(home: Home, owner: Client) -> None:
    owner.begin(1)
    owner.put("jobs", job(8, body=b"secret"), transaction=1, is_part=True)
    owner.put("jobs", job(9, body=b"a"), transaction=1)
    owner.commit(1)
    home.run()
    ann = home.user("ann", may("get", queue=AT_KITCHEN))
    bob = home.user("bob", may("get", queue=AT_KITCHEN))
    (hand,) = ann.get(AT_KITCHEN, where="n = 9")
    for number in (hand.number, hand.received):
        part = {"queue": AT_KITCHEN, "number": number, "delivery": 1, "index": 0}
        assert bob.fails("part", **part).code == "not-yours"
    bob.settle(DONE, hand)
    home.run()
    assert [code for _, _, code in bob.refusals] == ["not-yours"]
    own = {"queue": AT_KITCHEN, "number": hand.number, "delivery": 1, "index": 0}
    assert ann.ask("part", **own) == b"secret"


def test_each_event_that_is_put_needs_a_grant(home: Home, owner: Client) -> None:
    ann = home.user("ann", may("put", "n < 3", AT_KITCHEN))
    ann.put(AT_KITCHEN, 1, 2, 3, 1)
    home.run()
    assert home.kept.puts == [("kitchen", "jobs", [1, 2])]
    assert ann.refusals == [(3, 4, "not-allowed")]
    ann.begin(1)
    ann.put(AT_KITCHEN, 9, transaction=1)
    ann.put("letters@kitchen", 1, transaction=1)
    ann.put("letters@kitchen", 1)
    home.run()
    assert [code for _, _, code in ann.refusals] == ["not-allowed"] * 4
    assert len(home.kept.puts) == 1


def test_what_waits_for_another_node_is_not_taken_here(home: Home, owner: Client) -> None:
    ann = home.client()
    ann.begin(1)
    ann.put(AT_KITCHEN, 1, transaction=1)
    ann.commit(1)
    home.run()
    assert ann.fails("get", queue="to:jobs@kitchen").code == "queue"
    assert numbers(ann.read("to:jobs@kitchen")) == [1]


def test_managing_elsewhere_needs_a_grant_before_it_is_refused_with_the_name_of_the_node(
    home: Home, owner: Client
) -> None:
    ann = home.user("ann", may("get", queue=AT_KITCHEN))
    failure = ann.fails("queue.delete", queue=AT_KITCHEN)
    assert (failure.code, "may not manage" in failure.text) == ("not-allowed", True)


def test_who_gets_a_request_elsewhere_may_answer_it_here(home: Home, owner: Client) -> None:
    bob = home.user("bob", may("put", queue=AT_KITCHEN))
    ann = home.user("ann", may("get", queue=AT_KITCHEN), may("publish"))
    eve = home.user("eve", may("publish"), may("put", queue=AT_KITCHEN))
    bob.ask("subscribe", number=1, filter="subject = 'inbox.bob/x'", credit=10)
    owner.put("jobs", job(9, reply_to="inbox.bob/x", correlation_id="c"))  # as his node hands it on
    eve.put(AT_KITCHEN, job(10, reply_to="inbox.bob/x", correlation_id="d"))
    home.run()
    assert eve.refusals == [(1, 1, "not-allowed")]
    assert numbers(ann.get(AT_KITCHEN, where="n > 8")) == [9]
    for client in (ann, eve):
        client.counter += 1
        answer = job(11, subject="inbox.bob/x", correlation_id="c")
        client.peer.publish(replace(answer, counter=client.counter))
    home.run()
    assert ann.refusals == []
    assert eve.refusals == [(1, 1, "not-allowed"), (2, 2, "not-allowed")]
    assert [event.values["n"] for event in bob.peer.events()] == [11]
