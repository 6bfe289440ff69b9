"""Queues of other nodes, as clients of a node use them: without sockets, clocks or sleeping."""

from __future__ import annotations

from typing import Any

import pytest
from peers.nodes import Client, Home
from queues.rig import DONE, GIVE_BACK, REJECT, Hand, job, numbers

from tidings.client.put import planned
from tidings.errors import NotAllowed, QueueFull
from tidings.protocol.messages import Notice
from tidings.queues.inflight import RESUME_S

AT_KITCHEN = "jobs@kitchen"


@pytest.fixture
def home() -> Home:
    return Home()


def fill(home: Home, *jobs: Any, peer: str = "kitchen", queue: str = "jobs", **fields: Any) -> Client:
    """Have a peer with a queue, and jobs in it; a client of that peer."""
    owner = home.owner_of(peer)
    owner.create(queue, **fields)
    for one in jobs:
        owner.put(queue, one)
    home.run()
    return owner


def stand(owner: Client, queue: str = "jobs") -> tuple[int, int]:
    """How many messages a queue has, and how many are in readers' hands."""
    told = owner.describe(queue)
    return told.get("messages", 0), told.get("in_flight", 0)


# -- finding


def test_a_name_means_a_queue_of_this_node_first(home: Home) -> None:
    fill(home, 1)
    ann = home.client()
    ann.create("jobs")
    assert ann.describe("jobs")["node"] == "home"


def test_a_name_that_is_not_here_is_asked_of_all_peers(home: Home) -> None:
    fill(home, 1, 2, properties={"paper": "A4"})
    told = home.client().describe("jobs")
    assert (told["name"], told["node"], told["messages"]) == ("jobs", "kitchen", 2)
    assert told["properties"] == {"paper": "A4"}


def test_an_address_is_by_the_name_of_a_node_by_its_id_or_by_the_id_of_the_queue(home: Home) -> None:
    owner = fill(home, 1)
    node, identity = home.far("kitchen").broker.node, owner.describe("jobs")["id"]
    ann = home.client()
    for address in (AT_KITCHEN, f"jobs@{node}", identity):
        assert ann.describe(address)["node"] == "kitchen"
        assert numbers(ann.read(address)) == [1]


def test_this_node_is_called_by_its_own_name_and_id_too(home: Home) -> None:
    ann = home.client()
    ann.create("jobs")
    for node in ("home", home.rig.broker.node):
        assert ann.describe(f"jobs@{node}")["node"] == "home"


def test_two_candidates_elsewhere_are_an_error_that_lists_them(home: Home) -> None:
    fill(home)
    fill(home, peer="garage")
    failure = home.client().fails("queue.describe", queue="jobs")
    assert failure.code == "queue-ambiguous"
    assert "jobs@garage, jobs@kitchen" in failure.text


def test_what_nobody_has_is_not_found_and_who_could_not_be_asked_is_told(home: Home) -> None:
    ann = home.client()
    assert ann.fails("queue.describe", queue="jobs").code == "queue-not-found"
    home.links["garage"].cut()
    failure = ann.fails("queue.describe", queue="jobs")
    assert (failure.code, "away: garage" in failure.text) == ("queue-not-found", True)
    assert ann.fails("queue.describe", queue=AT_KITCHEN).code == "queue-not-found"
    assert "knows no node 'moon'" in ann.fails("queue.describe", queue="jobs@moon").text


def test_only_describing_asks_around(home: Home) -> None:
    fill(home, 1)
    ann = home.client()
    assert ann.fails("get", queue="jobs").code == "queue-not-found"
    counter = ann.put("jobs", 1)
    home.run()
    assert ann.refusals == [(counter, counter, "queue-not-found")]


def test_a_search_merges_what_is_here_and_elsewhere(home: Home) -> None:
    fill(home, properties={"paper": "A4"})
    fill(home, peer="garage", queue="tools")
    ann = home.client()
    ann.create("letters", properties={"paper": "A4"})

    def names(scope: str, **sought: Any) -> set[tuple[str, str]]:
        found = ann.ask("queue.find", scope=scope, **sought)
        return {(one["name"], one["node"]) for one in found}

    assert names("local") == {("letters", "home")}
    assert names("remote") == {("jobs", "kitchen"), ("tools", "garage")}
    assert names("both") == {("letters", "home"), ("jobs", "kitchen"), ("tools", "garage")}
    assert names("both", properties={"paper": "A4"}) == {("letters", "home"), ("jobs", "kitchen")}
    assert names("remote", name="tools") == {("tools", "garage")}


def test_a_search_does_not_wait_long_for_a_peer_that_does_not_answer(home: Home) -> None:
    fill(home)
    fill(home, peer="garage", queue="tools")
    ann = home.client()
    home.links["garage"].hears_nothing = True
    number = ann.request("queue.find", scope="remote")
    home.run()
    assert ann.reply(number) is None
    home.pass_time(2.1)
    reply = ann.reply(number)
    assert reply is not None
    assert [one["name"] for one in reply.result] == ["jobs"]


def test_of_a_peer_that_is_away_is_told_what_is_known(home: Home) -> None:
    fill(home, 1, 2, text="what is to be done")
    ann = home.client()
    ann.describe(AT_KITCHEN)
    home.links["kitchen"].cut()
    home.pass_time(6)
    known = ann.describe(AT_KITCHEN)
    assert (known["node"], known["is_away"], known["text"]) == ("kitchen", True, "what is to be done")
    never_seen = ann.describe("letters@kitchen")
    assert (never_seen["name"], never_seen["node"], never_seen["is_away"]) == ("letters", "kitchen", True)


# -- getting


def test_messages_of_a_peer_are_got_and_acknowledged(home: Home) -> None:
    owner = fill(home, 1, 2, 3)
    ann = home.client()
    hands = ann.get(AT_KITCHEN, 2)
    assert numbers(hands) == [1, 2]
    assert stand(owner) == (1, 2)
    counter = ann.settle(DONE, *hands)
    home.run()
    assert (ann.accepted, stand(owner)) == (counter, (1, 0))


def test_a_message_keeps_its_sender_and_the_time_at_which_its_queue_took_it_in(home: Home) -> None:
    owner = fill(home, 1)
    (copy,) = home.client("other").read(AT_KITCHEN)
    (hand,) = home.client().get(AT_KITCHEN)
    assert (hand.system, hand.source, hand.received) == (owner.system, "owner", copy.number)
    assert hand.number != copy.number


def test_a_getter_waits_for_what_comes_to_the_peer(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    number = ann.wait(AT_KITCHEN, 5.0)
    home.run()
    assert ann.got(number) is None
    owner.put("jobs", 7)
    home.run()
    assert numbers(ann.got(number) or []) == [7]


def test_a_getter_is_told_when_nothing_came(home: Home) -> None:
    fill(home)
    ann = home.client()
    number = ann.wait(AT_KITCHEN, 5.0)
    home.run()
    home.pass_time(5.1)
    assert ann.got(number) == []
    assert ann.get(AT_KITCHEN) == []


def test_errors_of_the_peer_are_told_as_its_own_with_the_address(home: Home) -> None:
    ann = home.client()
    failure = ann.fails("get", queue=AT_KITCHEN)
    assert (failure.code, failure.details["queue"]) == ("queue-not-found", AT_KITCHEN)
    fill(home, 1)
    assert ann.fails("get", queue=AT_KITCHEN, where="n >").code == "filter"
    assert ann.fails("queue.renew", queue=AT_KITCHEN, id="x", lease_s=5.0).code == "queue"


def test_a_cancelled_get_gives_back_what_it_got(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    number = ann.request("get", queue=AT_KITCHEN)
    home.run()
    assert stand(owner) == (0, 1)
    ann.ask("get.cancel", number=number)
    assert stand(owner) == (1, 0)
    waiting = ann.wait(AT_KITCHEN, where="n = 2")
    home.run()
    ann.ask("get.cancel", number=waiting)
    owner.put("jobs", 2)
    home.run()
    assert (stand(owner), ann.got(waiting)) == ((2, 0), None)
    assert ann.get(AT_KITCHEN)[0].delivery == 1


def test_what_is_given_back_or_rejected_is_so_at_the_peer(home: Home) -> None:
    owner = fill(home, 1, 2)
    ann = home.client()
    one, two = ann.get(AT_KITCHEN, 2)
    ann.settle(GIVE_BACK, one)
    ann.settle(REJECT, two, text="no paper")
    home.run()
    assert stand(owner) == (1, 0)
    assert (ann.get(AT_KITCHEN)[0].delivery, numbers(owner.read("tidings.dead"))) == (2, [2])


def test_what_is_released_with_a_delay_waits_at_the_peer(home: Home) -> None:
    owner = fill(home, 1, 2)
    ann = home.client()
    one, two = ann.get(AT_KITCHEN, 2)
    ann.settle(GIVE_BACK, one, delay_s=5.0)
    ann.settle(GIVE_BACK, two, delay_s=0.0)
    home.run()
    assert (stand(owner), owner.describe("jobs")["delayed"]) == ((1, 0), 1)
    home.far("kitchen").pass_time(5.0)
    assert [hand.delivery for hand in ann.get(AT_KITCHEN, 2)] == [2, 2]


def test_groups_of_a_peer_are_in_order_for_clients_of_any_node(home: Home) -> None:
    owner = fill(home, *(planned(job(n), None, None, "a") for n in (1, 2)))
    ann = home.client()
    (hand,) = ann.get(AT_KITCHEN, 10)
    assert owner.get("jobs", 10) == []
    ann.settle(DONE, hand)
    home.run()
    assert numbers(owner.get("jobs", 10)) == [2]


def test_one_frame_may_settle_what_is_here_and_what_is_elsewhere(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    ann.create("here")
    ann.put("here", 2)
    home.run()
    hands = [*ann.get("here"), *ann.get(AT_KITCHEN)]
    nobodys = Hand(hands[0].number + 9, 1, False, None, 0, None, 0, b"")
    counter = ann.settle(DONE, hands[0], nobodys, hands[1])
    home.run()
    assert (ann.accepted, ann.refusals) == (counter, [(counter - 1, counter - 1, "not-yours")])
    assert (stand(owner), stand(ann, "here")) == ((0, 0), (0, 0))


def test_a_message_is_settled_once_and_by_whoever_holds_it(home: Home) -> None:
    fill(home, 1)
    ann, bob = home.client(), home.client("bob", "bob")
    hands = ann.get(AT_KITCHEN)
    bob.settle(DONE, *hands)
    ann.settle(DONE, *hands)
    ann.settle(DONE, *hands)
    home.run()
    assert [code for _, _, code in bob.refusals] == ["not-yours"]
    assert [first for first, _, _ in ann.refusals] == [2]


def test_what_the_peer_took_back_is_not_held_any_more(home: Home) -> None:
    owner = fill(home, 1, redelivery_s=5.0)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    home.pass_time(5.5)
    assert (stand(owner), home.rig.queues.in_flight.elsewhere) == ((1, 0), 0)
    ann.settle(DONE, *hands)
    home.run()
    assert [code for _, _, code in ann.refusals] == ["not-yours"]
    assert stand(owner) == (1, 0)


def test_a_settled_message_leaves_nothing_behind(home: Home) -> None:
    fill(home, 1)
    ann = home.client()
    ann.settle(DONE, *ann.get(AT_KITCHEN))
    home.run()
    assert (home.rig.queues.in_flight.elsewhere, home.rig.queues.in_flight.holders) == (0, {})
    assert home.rig.queues.timers.wake_at == float("inf")


def test_reading_pages_on_where_it_was(home: Home) -> None:
    fill(home, *range(5))
    ann = home.client()
    first = ann.ask("get", queue=AT_KITCHEN, action="read", count=3)
    second = ann.ask(
        "get", queue=AT_KITCHEN, action="read", count=3, after=first["next"], up_to=first["last"]
    )
    told = [Hand(*row[:8]).n for answer in (first, second) for row in answer["messages"]]
    assert (told, second["next"]) == ([0, 1, 2, 3, 4], None)


def test_parts_of_long_bodies_are_fetched_by_the_numbers_of_this_node(home: Home) -> None:
    owner = fill(home)
    owner.begin(1)
    owner.put("jobs", job(0, body=b"b"), transaction=1, is_part=True)
    owner.put("jobs", job(1, body=b"a"), transaction=1)
    owner.commit(1)
    home.run()
    ann = home.client()
    (copy,) = ann.read(AT_KITCHEN)
    assert ann.ask("part", queue=AT_KITCHEN, number=copy.number, delivery=0, index=0) == b"b"
    (hand,) = ann.get(AT_KITCHEN)
    assert ann.ask("part", queue=AT_KITCHEN, number=hand.number, delivery=hand.delivery, index=0) == b"b"
    assert ann.fails("part", queue=AT_KITCHEN, number=1, delivery=1, index=0).code == "not-yours"


def test_a_lease_is_renewed_at_the_peer(home: Home) -> None:
    fill(home, job(1, ttl_s=5), expiry=True)
    ann = home.client()
    (hand,) = ann.read(AT_KITCHEN)
    assert ann.ask("queue.renew", queue=AT_KITCHEN, id=hand.event.id, lease_s=50.0) == 50.0


# -- clients that come and go


def test_whoever_leaves_gives_back_what_he_held(home: Home) -> None:
    owner = fill(home, 1, 2)
    ann = home.client()
    ann.get(AT_KITCHEN, 2)
    ann.leave()
    home.run()
    assert stand(owner) == (2, 0)
    assert [hand.delivery for hand in owner.get("jobs", 2)] == [2, 1]  # only the first was looked at for sure


def test_whoever_is_lost_has_a_moment_to_come_back(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    ann.lose()
    home.pass_time(RESUME_S / 2)
    ann.come()
    assert ann.welcome.kept
    home.pass_time(RESUME_S)
    assert stand(owner) == (0, 1)
    ann.settle(DONE, *hands)
    home.run()
    assert (stand(owner), ann.refusals) == ((0, 0), [])


def test_whoever_does_not_come_back_in_time_holds_nothing(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    ann.get(AT_KITCHEN)
    ann.lose()
    home.pass_time(RESUME_S * 1.1)
    assert stand(owner) == (1, 0)
    ann.come()
    assert not ann.welcome.kept


def test_an_answer_that_was_lost_is_told_again(home: Home) -> None:
    owner = fill(home, 1, 2)
    ann = home.client()
    number = ann.request("get", queue=AT_KITCHEN)
    home.run()
    ann.lose()
    ann.come()
    ann.request_again(number, "get", queue=AT_KITCHEN)
    home.run()
    assert (numbers(ann.got(number) or []), stand(owner)) == ([1], (1, 1))


def test_what_waits_for_whoever_is_lost_is_not_fetched(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    number = ann.wait(AT_KITCHEN)
    home.run()
    ann.lose()
    home.run()
    owner.put("jobs", 1)
    home.run()
    assert stand(owner) == (1, 0)
    ann.come()
    ann.request_again(number, "get", queue=AT_KITCHEN)
    home.run()
    assert numbers(ann.got(number) or []) == [1]


# -- peers that come and go


def test_a_getter_waits_for_a_peer_that_comes_back_in_time(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    number = ann.wait(AT_KITCHEN, 10.0)
    home.run()
    home.links["kitchen"].cut()
    home.pass_time(3)
    owner.put("jobs", 7)
    home.links["kitchen"].mend()
    assert numbers(ann.got(number) or []) == [7]


def test_a_getter_whose_time_is_up_is_told_that_the_peer_is_away(home: Home) -> None:
    fill(home, 1)
    home.links["kitchen"].cut()
    ann = home.client()
    failure = ann.fails("get", queue=AT_KITCHEN)
    assert (failure.code, "node kitchen is away" in failure.text) == ("away", True)
    number = ann.wait(AT_KITCHEN, 10.0)
    home.run()
    assert ann.reply(number) is None
    home.pass_time(10.1)
    reply = ann.reply(number)
    assert reply is not None
    assert reply.error is not None
    assert reply.error.code == "away"


def test_after_a_cut_a_getter_waits_no_longer_than_it_was_told(home: Home) -> None:
    fill(home)
    ann = home.client()
    number = ann.wait(AT_KITCHEN, 10.0)
    home.run()
    home.pass_time(8)
    home.links["kitchen"].cut()
    home.links["kitchen"].mend()
    home.pass_time(2.1)
    assert ann.got(number) == []
    owner = Client(home.far("kitchen"), "own2")
    owner.put("jobs", 1)
    home.run()
    assert stand(owner) == (1, 0)


def test_an_acknowledgement_reaches_a_peer_that_comes_back_in_time(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    home.links["kitchen"].cut()
    counter = ann.settle(DONE, *hands)
    home.run()
    assert ann.accepted < counter
    home.links["kitchen"].mend()
    assert (ann.accepted, ann.refusals, stand(owner)) == (counter, [], (0, 0))


def test_what_a_client_does_next_does_not_wait_for_ever_for_a_peer_that_is_away(home: Home) -> None:
    fill(home, 1)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    ann.create("here")
    home.links["kitchen"].cut()
    settled = ann.settle(DONE, *hands)
    put = ann.put("here", 1)
    home.run()
    assert ann.accepted < settled
    home.pass_time(5.1)
    assert (ann.accepted, ann.refusals) == (put, [(settled, settled, "away")])


def test_a_settlement_under_way_when_the_node_crashed_is_not_accepted_with_what_came_behind(
    home: Home,
) -> None:
    fill(home, 1)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    ann.create("here", persistent=True)
    home.links["kitchen"].cut()
    settled = ann.settle(DONE, *hands)
    put = ann.put("here", 1)
    home.run()
    ann.come(home.rig.restart())
    assert ann.welcome.counter == put
    assert [(one.first, one.last, one.failure.code) for one in ann.welcome.refused] == [
        (settled, settled, "away")
    ]


def test_a_peer_that_was_restarted_goes_on_where_it_was(home: Home) -> None:
    fill(home, 1, 2, persistent=True)
    ann = home.client()
    hands = ann.get(AT_KITCHEN)
    kitchen = home.links["kitchen"]
    waiting = ann.wait(AT_KITCHEN, where="n = 3")
    home.run()
    kitchen.cut()
    counter = ann.settle(DONE, *hands)
    kitchen.mend(kitchen.far.restart())
    assert (ann.accepted, ann.refusals) == (counter, [])
    owner = Client(kitchen.far, "own2")
    assert numbers(owner.read("jobs")) == [2]
    owner.put("jobs", 3)
    home.run()
    assert numbers(ann.got(waiting) or []) == [3]


def test_a_peer_that_refuses_this_node_is_away(home: Home) -> None:
    fill(home)
    ann = home.client()
    waiting = ann.wait(AT_KITCHEN)
    home.run()
    link = home.links["kitchen"]
    link.core.close(NotAllowed("user or secret is wrong"))
    link.relay.changed()
    home.run()
    reply = ann.reply(waiting)
    assert reply is not None
    assert reply.error is not None
    assert (reply.error.code, "secret is wrong" in reply.error.text) == ("away", True)
    assert ann.fails("get", queue=AT_KITCHEN, wait_s=5.0).code == "away"
    watching = {"number": 1, "filter": "", "credit": 10, "queue": AT_KITCHEN}
    assert ann.fails("subscribe", **watching).code == "away"
    assert ann.describe(AT_KITCHEN)["is_away"]


# -- putting


def test_a_put_is_accepted_when_it_is_done_where_the_queue_is(home: Home) -> None:
    fill(home)
    ann = home.client()
    ann.create("here")
    first = ann.put(AT_KITCHEN, 1, 2)
    behind = ann.put("here", 3)
    home.run()
    assert home.kept.puts == [("kitchen", "jobs", [1, 2])]
    assert ann.accepted == 0
    home.kept.undone[1](None)
    home.run()
    assert ann.accepted == 0
    home.kept.undone[0](None)
    home.run()
    assert (ann.accepted, first) == (behind, 2)


def test_what_a_peer_refuses_is_refused_to_whoever_put_it(home: Home) -> None:
    ann = home.client()
    counter = ann.put(AT_KITCHEN, 1)
    home.run()
    home.kept.undone[0](QueueFull("jobs", "it holds 5 messages"))
    home.run()
    assert (ann.refusals, ann.accepted) == ([(counter, counter, "queue-full")], counter)


def test_what_is_put_again_after_a_cut_is_put_once(home: Home) -> None:
    ann = home.client()
    counter = ann.put(AT_KITCHEN, 1)
    home.run()
    ann.lose()
    ann.come()
    assert ann.welcome.counter == 0
    ann.put_again(AT_KITCHEN, counter, job(1))
    home.run()
    assert (len(home.kept.puts), ann.accepted) == (1, 0)
    home.kept.undone[0](None)
    home.run()
    assert ann.accepted == counter


def test_a_transaction_puts_into_the_queue_from_which_it_is_handed_on(home: Home) -> None:
    ann = home.client()
    ann.begin(1)
    ann.put(AT_KITCHEN, 1, transaction=1)
    ann.begin(2)
    ann.put(AT_KITCHEN, 2, transaction=2)
    counter = ann.commit(1)
    ann.roll_back(2)
    home.run()
    assert ann.accepted >= counter
    assert numbers(ann.read("to:jobs@kitchen")) == [1]


def test_a_transaction_neither_gets_nor_reads_elsewhere(home: Home) -> None:
    fill(home, 1)
    ann = home.client()
    ann.begin(1)
    for action in ("take", "read"):
        failure = ann.fails("get", queue=AT_KITCHEN, action=action, transaction=1)
        assert (failure.code, failure.details["queue"]) == ("queue", AT_KITCHEN)


def test_a_put_to_a_node_that_nobody_knows_is_refused(home: Home) -> None:
    ann = home.client()
    ann.put("jobs@moon", 1)
    ann.put("@", 1)
    ann.put("x" * 700, 1)
    home.run()
    assert [code for _, _, code in ann.refusals] == ["queue-not-found"] * 3


# -- managing


def test_queues_elsewhere_are_managed_elsewhere(home: Home) -> None:
    owner = fill(home, 1)
    ann = home.client()
    for operation, arguments in (
        ("queue.delete", {"queue": AT_KITCHEN}),
        ("queue.purge", {"queue": AT_KITCHEN}),
        ("queue.alias", {"name": "work", "target": AT_KITCHEN}),
    ):
        failure = ann.fails(operation, **arguments)
        assert (failure.code, "kitchen" in failure.text) == ("not-allowed", True)
    assert stand(owner) == (1, 0)


# -- watching


def test_a_watcher_has_copies_of_what_is_put_at_the_peer(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    ann.subscribe("n > 1", queue=AT_KITCHEN)
    for n in range(4):
        owner.put("jobs", n)
    home.run()
    assert (ann.told, stand(owner)) == ([2, 3], (4, 0))
    ann.ask("unsubscribe", number=1)
    owner.put("jobs", 9)
    home.run()
    assert ann.told == [2, 3]


def test_watching_is_answered_when_the_peer_has_begun(home: Home) -> None:
    fill(home)
    ann = home.client()
    number = ann.request("subscribe", number=1, filter="", credit=10, queue=AT_KITCHEN)
    home.rig.run()
    assert ann.reply(number) is None
    home.run()
    assert ann.reply(number) is not None


def test_what_is_not_there_cannot_be_watched(home: Home) -> None:
    ann = home.client()
    failure = ann.fails("subscribe", number=1, filter="", credit=10, queue=AT_KITCHEN)
    assert failure.code == "queue-not-found"
    fill(home)
    ann.subscribe(queue=AT_KITCHEN)


def test_a_watcher_is_told_of_a_gap_when_the_peer_was_away(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    ann.subscribe(queue=AT_KITCHEN)
    home.links["kitchen"].cut()
    owner.put("jobs", 1)
    home.links["kitchen"].mend()
    owner.put("jobs", 2)
    home.run()
    assert ann.told == [2]
    assert ("gap", 1, {"dropped": 0, "reason": "disconnected"}) in ann.peer.notices


def test_whoever_watches_a_peer_that_is_away_has_copies_when_it_is_back(home: Home) -> None:
    owner = fill(home)
    home.links["kitchen"].cut()
    home.pass_time(6)
    ann = home.client()
    ann.subscribe(queue=AT_KITCHEN)
    home.links["kitchen"].mend()
    owner.put("jobs", 1)
    home.run()
    assert ann.told == [1]


def test_a_watch_of_what_turns_out_not_to_be_there_ends(home: Home) -> None:
    home.links["kitchen"].cut()
    home.pass_time(6)
    ann = home.client()
    ann.subscribe(queue=AT_KITCHEN)
    home.links["kitchen"].mend()
    home.pass_time(5)
    assert [one.kind for one in ann.peer.got(Notice)] == ["ended"]


def test_a_watch_ends_when_its_queue_is_deleted(home: Home) -> None:
    owner = fill(home)
    ann = home.client()
    ann.subscribe(queue=AT_KITCHEN)
    owner.ask("queue.delete", queue="jobs")
    home.run()
    ended = [one for one in ann.peer.got(Notice) if one.kind == "ended"]
    assert "kitchen" in ended[0].details["reason"]


def test_a_condition_that_contradicts_itself_is_refused_elsewhere_too(home: Home) -> None:
    fill(home, 1)
    failure = home.client().fails("get", queue=AT_KITCHEN, where="n > 3 AND n < 2", wait_s=None)
    assert "no message can match" in failure.text
