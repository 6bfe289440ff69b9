"""Queues and who may do what with them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from protocol.guarded import ALL, guarded, may

from queues.rig import DONE, REJECT, Client, Rig, job, numbers
from queues.stepping import begin
from tidings.errors import NotAllowed
from tidings.event import Event
from tidings.filters import Filter
from tidings.matching import search
from tidings.protocol import session
from tidings.protocol.access import Principal, Rule
from tidings.protocol.messages import Notice, Refusal
from tidings.queues import changes
from tidings.queues.description import DEAD, Description


def visit(rig: Rig, user: str, system: str | None = None) -> Client:
    return Client(rig, system or f"sys-{user}", "", user)


def house(*rules: Rule) -> tuple[Client, Client]:
    """The boss of a node with a queue of jobs, and ann, who has these rules."""
    rig = guarded(boss=ALL, ann=list(rules))
    boss = visit(rig, "boss")
    boss.create("jobs", expiry=True)
    return boss, visit(rig, "ann")


def test_who_may_put_may_not_get_and_the_reverse() -> None:
    boss, ann = house(may("put", queue="jobs"))
    ann.put("jobs", 1)
    assert ann.fails("get", queue="jobs").code == "not-allowed"
    assert numbers(boss.get("jobs")) == [1]
    boss, ann = house(may("get", queue="jobs"))
    ann.put("jobs", 1)
    boss.put("jobs", 2)
    boss.rig.run()
    assert ann.refusals == [(1, 1, "not-allowed")]
    assert numbers(ann.get("jobs", 10)) == [2]


def test_a_grant_with_a_filter_is_anded_to_every_way_of_getting() -> None:
    boss, ann = house(may("get", "color = 'blue'", "jobs"))
    boss.put("jobs", job(1, color="red"), job(2, color="blue"), job(3, color="red"), job(4, color="blue"))
    boss.rig.run()
    assert numbers(ann.read("jobs")) == [2, 4]
    assert numbers(ann.read("jobs", where="n > 2")) == [4]
    assert numbers(ann.read("jobs", where="color = 'red'")) == []
    assert numbers(ann.read("jobs", bodies=False)) == [2, 4]
    assert numbers(ann.get("jobs", 10)) == [2, 4]
    waiting = ann.wait("jobs", where="n > 4")
    boss.put("jobs", job(5, color="red"), job(6, color="blue"))
    boss.rig.run()
    got = ann.got(waiting)
    assert got is not None
    assert numbers(got) == [6]


def counts(description: dict[str, Any]) -> tuple[int, int, bool]:
    told = Description(**description)
    return told.messages, told.in_flight, told.is_full


def test_a_description_counts_what_its_caller_may_get() -> None:
    boss, ann = house(may("get", "color = 'blue'", "few"), may("put", queue="open"), may("get", queue="all"))
    for name in ("few", "open", "all"):
        boss.create(name, max_messages=3)
        boss.put(name, job(1, color="red"), job(2, color="blue"), job(3, color="blue"))
        boss.get(name, where="n = 3")
        assert counts(boss.describe(name)) == (2, 1, True)
    boss.ask("queue.alias", name="other", target="few")
    wanted = {"few": (1, 1, True), "other": (1, 1, True), "open": (0, 0, True), "all": (2, 1, True)}
    assert {name: counts(ann.describe(name)) for name in wanted} == wanted
    assert {one["name"]: counts(one) for one in ann.ask("queue.find")} == wanted
    boss.settle(DONE, *boss.get("few", where="n = 2"))
    boss.rig.run()
    assert counts(ann.describe("few")) == (0, 1, False)


def test_counting_what_a_caller_may_get_takes_many_steps() -> None:
    boss, ann = house(may("get", "color LIKE '%u%e'", "jobs"))
    boss.put("jobs", *(job(n, color="blue") for n in range(2_000)))
    boss.rig.run()
    number, steps = begin(ann, "queue.describe", queue="jobs")
    assert steps is not None
    assert sum(1 for _ in steps) >= 2_000 // search.TRIES_MAX - 1
    ann.rig.run()
    reply = ann.reply(number)
    assert reply is not None
    assert reply.result["messages"] == 2_000


def test_of_what_a_client_may_do_so_much_is_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ALLOWED_KEPT", 3)
    boss, ann = house(may("get", queue="jobs*"))
    boss.put("jobs", 1)
    for n in range(10):
        assert ann.fails("get", queue=f"jobs-{n}").code == "queue-not-found"
    assert len(ann.peer.session._allowed) <= 3
    assert numbers(ann.get("jobs")) == [1]


def test_a_watch_shows_only_what_may_be_got() -> None:
    boss, ann = house(may("get", "color = 'blue'", "jobs"))
    boss.ask("queue.alias", name="open", target="jobs")
    ann.ask("subscribe", number=1, queue="open", credit=100)
    boss.put("jobs", job(1, color="red"), job(2, color="blue"))
    boss.rig.run()
    assert ann.told == [2]
    boss.create("secret")
    assert ann.fails("subscribe", number=2, queue="secret").code == "not-allowed"


def test_a_grant_with_a_filter_holds_for_each_event_that_is_put() -> None:
    boss, ann = house(may("put", "n < 3", "jobs"))
    ann.put("jobs", 1, 2, 3)
    ann.begin(1)
    ann.put("jobs", 9, transaction=1)
    ann.rig.run()
    assert ann.refusals == [(3, 3, "not-allowed"), (4, 4, "not-allowed")]
    assert numbers(boss.get("jobs", 10)) == [1, 2]


def test_what_is_published_in_a_transaction_must_be_granted() -> None:
    _, ann = house(may("publish", "n < 3"))
    ann.begin(1)
    ann.put("", 1, transaction=1)
    ann.put("", 5, transaction=1)
    ann.rig.run()
    assert ann.refusals == [(2, 2, "not-allowed")]


def test_another_name_of_a_queue_gives_no_other_rights() -> None:
    boss, ann = house(may("get", queue="open*"), may("put", queue="jobs"))
    boss.ask("queue.alias", name="open", target="jobs")
    identity = boss.describe("jobs")["id"]
    for address in ("open", "jobs", identity):
        assert ann.fails("get", queue=address).code == "not-allowed"
        ann.put(address, 1)
    ann.rig.run()
    assert ann.refusals == []


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("queue.create", {"name": "more"}),
        ("queue.delete", {"queue": "jobs"}),
        ("queue.purge", {"queue": "jobs"}),
        ("queue.alias", {"name": "more", "target": "jobs"}),
        ("queue.replay", {}),
    ],
)
def test_management_is_an_action_of_its_own(operation: str, arguments: dict[str, object]) -> None:
    boss, ann = house(may("get"), may("put"), may("publish"), may("subscribe"))
    assert ann.fails(operation, **arguments).code == "not-allowed"
    boss.ask(operation, **arguments)


def test_a_manager_of_some_queues_manages_no_others() -> None:
    _, ann = house(may("manage", queue="ann-*"))
    ann.create("ann-1")
    assert ann.fails("queue.create", name="bob-1").code == "not-allowed"
    assert ann.fails("queue.alias", name="ann-2", target="jobs").code == "not-allowed"
    assert ann.fails("queue.alias", name="bob", target="ann-1").code == "not-allowed"
    assert ann.fails("queue.delete", queue="jobs").code == "not-allowed"
    assert ann.fails("queue.replay").code == "not-allowed"


def test_a_queue_that_one_can_do_nothing_with_is_not_seen() -> None:
    boss, ann = house(may("put", queue="jobs"))
    boss.create("secret")
    assert [one["name"] for one in ann.ask("queue.find")] == ["jobs"]
    assert ann.describe("jobs")["name"] == "jobs"
    unseen, missing = (ann.fails("queue.describe", queue=name) for name in ("secret", "missing"))
    assert unseen.code == missing.code == "queue-not-found"
    denied, missing = (ann.fails("get", queue=name) for name in ("secret", "missing"))
    assert denied.code == missing.code == "not-allowed"


def test_a_bound_queue_gets_no_more_than_its_maker_may_subscribe_to() -> None:
    boss, ann = house(may("manage"), may("get"), may("subscribe", "color = 'blue'"))
    ann.create("mine", bind="n > 1")
    ann.create("mine", bind="n > 1")
    assert ann.fails("queue.create", name="reds", bind="color = 'red'").code == "not-allowed"
    boss.begin(1)
    boss.put("", job(1, color="blue"), job(2, color="blue"), job(3, color="red"), transaction=1)
    boss.commit(1)
    boss.rig.run()
    assert numbers(ann.get("mine", 10)) == [2]


def test_neither_an_advertiser_nor_who_sees_a_bound_queue_is_told_the_rules_behind_it() -> None:
    boss, ann = house(may("manage"), may("get"), may("subscribe", "color = 'blue'"))
    boss.ask("advertise", number=1, filter="")
    ann.create("mine", bind="n > 1")
    (notice,) = boss.peer.got(Notice)
    assert notice.details["filters"] == ["n > 1"]
    described = boss.describe("mine")
    assert described["bind"] == "n > 1"
    assert "blue" not in str(described)


def test_a_bound_queue_follows_the_rules_of_its_maker_after_a_restart_too() -> None:
    rules = [may("manage"), may("get"), may("subscribe", "color = 'blue'")]
    boss, ann = house(*rules)
    ann.ask("queue.create", name="mine", bind="n > 1", maker="boss")
    authenticator = boss.rig.broker.authenticator
    rig = boss.rig.restart()
    rig.broker.authenticator = authenticator
    rig.broker.review()
    boss.come(rig)
    for client in (boss, ann):
        client.come(rig)

    def publish(*colors: str) -> list[str]:
        first = boss.counter + 1
        boss.counter += len(colors)
        jobs = [replace(job(n, color=color), counter=n) for n, color in enumerate(colors, first)]
        boss.peer.publish(*(replace(one, values={**one.values, "n": 9}) for one in jobs))
        rig.run()
        return [hand.event["color"] for hand in ann.get("mine", 10)]

    assert publish("blue", "red") == ["blue"]
    authenticator.users["ann"] = (may("manage"), may("get"), may("subscribe", "color = 'red'"))  # type: ignore[attr-defined]
    rig.broker.review()
    boss.come()
    ann.come()
    assert publish("blue", "red") == ["red"]
    authenticator.users["ann"] = (may("manage"), may("get"))  # type: ignore[attr-defined]
    rig.broker.review()
    ann.come()
    assert publish("blue", "red") == []


def test_a_bound_queue_has_the_rights_of_one_user_and_another_is_told_so() -> None:
    boss, ann = house(may("manage"), may("get"), may("subscribe", "color = 'blue'"))
    ann.create("mine", bind="n > 1")
    ann.create("mine", bind="n > 1")
    refused = boss.fails("queue.create", name="mine", bind="n > 1")
    assert refused.code == "queue-exists"
    assert "another user's rights" in refused.text


def test_a_bound_queue_that_was_made_with_narrowed_conditions_is_still_known() -> None:
    boss, ann = house(may("manage"), may("get"), may("subscribe", "color = 'blue'"))
    made = Description(name="mine", bind=str(Filter("n > 1") & Filter("color = 'blue'")))
    boss.rig.queues.create(made)
    ann.create("mine", bind="n > 1")
    assert ann.fails("queue.create", name="mine", bind="n > 2").code == "queue-exists"


def test_a_bound_queue_gets_no_answers_to_others() -> None:
    rig = guarded(boss=ALL, ann=ALL, eve=ALL)
    boss, ann, eve = (visit(rig, user) for user in ("boss", "ann", "eve"))
    eve.create("mine", bind="")
    ann.ask("subscribe", number=1, filter="type = 'job'", credit=10)
    boss.counter += 1
    boss.peer.publish(replace(asking(1), counter=1))
    rig.run()
    ann.counter += 1
    ann.peer.publish(replace(answering(1), counter=1))
    rig.run()
    assert ann.refusals == []
    assert [hand.event.type for hand in eve.get("mine", 10)] == ["job"]


def test_dead_letters_are_for_those_who_may_get_them() -> None:
    boss, ann = house(may("get", queue="jobs"))
    assert ann.fails("get", queue=DEAD).code == "not-allowed"
    boss.rig.run()


def test_nobody_settles_what_is_in_anothers_hands() -> None:
    rig = guarded(boss=ALL, ann=ALL)
    boss, ann = visit(rig, "boss"), visit(rig, "ann")
    boss.create("jobs")
    boss.put("jobs", 1)
    (hand,) = boss.get("jobs")
    ann.settle(DONE, hand)
    rig.run()
    assert ann.refusals == [(1, 1, "not-yours")]
    boss.settle(DONE, hand)
    rig.run()
    assert boss.refusals == []


def test_a_lease_is_renewed_by_those_who_may_get_the_message() -> None:
    boss, ann = house(may("get", "n > 1", "jobs"))
    boss.put("jobs", job(1, ttl_s=10.0), job(2, ttl_s=10.0))
    boss.rig.run()
    first, second = (hand.event.id for hand in boss.read("jobs"))
    assert ann.ask("queue.renew", queue="jobs", id=second, lease_s=60.0) == 60.0
    assert ann.fails("queue.renew", queue="jobs", id=first, lease_s=60.0).code == "not-yours"


# -- what the node does for others


def test_after_a_restart_a_message_is_settled_only_by_who_may_get_it() -> None:
    rig = guarded(boss=ALL, eve=[], ann=[may("get", "n > 5", "jobs")])
    boss = visit(rig, "boss")
    boss.create("jobs")
    boss.put("jobs", 1)
    (hand,) = boss.get("jobs")
    again = rig.restart()
    again.broker.authenticator = rig.broker.authenticator
    for user in ("eve", "ann"):
        other = visit(again, user)
        other.settle(DONE, hand)
        again.run()
        assert other.refusals == [(1, 1, "not-yours")]
        assert other.peer.got(Refusal)[0].failure.details["queue"] == ("" if user == "eve" else "jobs")
    boss.come(again)
    boss.settle(DONE, hand)
    again.run()
    assert boss.refusals == []
    assert boss.describe("jobs").get("messages", 0) == 0


def test_a_report_goes_only_where_its_sender_may_put_or_into_its_own_inbox() -> None:
    rig = guarded(boss=ALL, eve=[may("put", queue="jobs"), may("get", queue="jobs")])
    boss, eve = visit(rig, "boss"), visit(rig, "eve")
    for name in ("jobs", "secret"):
        boss.create(name)
    boss.ask("subscribe", number=1, filter="STARTS_WITH(type, 'report.')", credit=100)
    eve.ask("subscribe", number=1, filter="STARTS_WITH(subject, 'inbox.eve/')", credit=100)
    addresses = ("secret", "any.subject", "inbox.boss/x", "inbox.eve/sys-eve")
    for n, address in enumerate(addresses):
        eve.put("jobs", job(n, report="undeliverable", reply_to=address))
    rig.run()
    eve.settle(REJECT, *eve.get("jobs", 10), text="ha")
    rig.run()
    assert boss.describe("secret").get("messages", 0) == 0
    assert eve.refusals == [(3, 3, "not-allowed")]
    assert boss.peer.events() == []
    assert [event.subject for event in eve.peer.events()] == ["inbox.eve/sys-eve"]
    boss.put("jobs", job(9, report="undeliverable", reply_to="secret"))
    rig.run()
    boss.settle(REJECT, *boss.get("jobs"))
    rig.run()
    assert boss.describe("secret")["messages"] == 1


def test_a_queue_that_is_called_as_an_inbox_catches_nothing() -> None:
    rig = guarded(boss=ALL, eve=[may("manage"), may("get")])
    boss, eve = visit(rig, "boss"), visit(rig, "eve")
    boss.create("jobs")
    boss.ask("subscribe", number=1, filter="STARTS_WITH(subject, 'inbox.boss/')", credit=100)
    eve.create("inbox.boss/x")
    boss.put("jobs", job(1, report="delivered", reply_to="inbox.boss/x"))
    rig.run()
    boss.settle(DONE, *boss.get("jobs"))
    rig.run()
    assert eve.read("inbox.boss/x") == []
    assert [event.type for event in boss.peer.events()] == ["report.delivered"]


def test_dead_letters_are_put_back_only_where_their_manager_may_put() -> None:
    rig = guarded(boss=ALL, eve=[may("manage", queue=DEAD), may("put", queue=DEAD)])
    boss, eve = visit(rig, "boss"), visit(rig, "eve")
    for name in (DEAD, "secret"):
        boss.create(name)
    eve.put(DEAD, Event("job", {"n": 1, "dead.queue": "secret"}))
    rig.run()
    assert eve.fails("queue.replay").code == "not-allowed"
    assert eve.fails("queue.replay", queue="secret").code == "not-allowed"
    assert boss.describe("secret").get("messages", 0) == 0
    assert boss.ask("queue.replay") == 1


def test_no_other_name_of_a_queue_is_told_to_who_may_not_use_it() -> None:
    boss, ann = house(may("put", queue="x"))
    boss.ask("queue.alias", name="open", target="jobs")
    identity = boss.describe("jobs")["id"]
    for address in ("open", identity, f"jobs@{boss.rig.broker.node}", f"none@{boss.rig.broker.node}"):
        assert ann.fails("get", queue=address).text == f"'ann' may not get from queue '{address}'"


def test_a_rule_without_names_of_queues_is_for_those_of_the_node_itself() -> None:
    principal = Principal("ann", rules=(may("put"), may("get", queue="*")))
    assert principal.queue_grant("put", "jobs") is None
    for address in ("jobs@kitchen", "to:jobs@kitchen"):
        with pytest.raises(NotAllowed):
            principal.queue_grant("put", address)
        assert principal.queue_grant("get", address) is None


def test_a_frame_tells_the_fate_of_so_many_messages_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "HANDLES_MAX", 2)
    boss, _ = house()
    boss.put("jobs", 1, 2, 3)
    hands = boss.get("jobs", 3)
    boss.settle(DONE, *hands[:2])
    boss.rig.run()
    assert boss.refusals == []
    boss.settle(DONE, *hands)
    boss.rig.run()
    assert boss.peer.session.is_closed


def asking(n: int, inbox: str = "inbox.boss/x") -> Event:
    return job(n, reply_to=inbox, correlation_id=f"c{n}")


def answering(n: int) -> Event:
    return Event("sum", {"n": n}, subject="inbox.boss/x", correlation_id=f"c{n}")


@pytest.mark.parametrize("how", ["take", "read", "watch", "wait", "transaction"])
def test_who_gets_a_request_from_a_queue_may_answer_it_and_nobody_else(how: str) -> None:
    rig = guarded(boss=ALL, ann=[may("get", queue="jobs"), may("publish")], eve=[may("publish")])
    boss, ann, eve = (visit(rig, user) for user in ("boss", "ann", "eve"))
    boss.create("jobs")
    boss.ask("subscribe", number=1, filter="subject = 'inbox.boss/x'", credit=100)
    if how == "watch":
        ann.ask("subscribe", number=1, queue="jobs", credit=100)
    elif how == "wait":
        ann.wait("jobs")
    boss.put("jobs", asking(1))
    rig.run()
    if how == "take":
        ann.get("jobs")
    elif how == "read":
        ann.read("jobs")
    elif how == "transaction":
        ann.begin(1)
        ann.get("jobs", transaction=1)
    for client in (ann, eve):
        client.counter += 1
        client.peer.publish(replace(answering(1), counter=client.counter))
    rig.run()
    assert ann.refusals == []
    assert eve.refusals == [(1, 1, "not-allowed")]
    assert [event.values["n"] for event in boss.peer.events()] == [1]


def test_an_answer_in_a_transaction_is_checked_too() -> None:
    rig = guarded(boss=ALL, ann=[may("get", queue="jobs"), may("publish")])
    boss, ann = visit(rig, "boss"), visit(rig, "ann")
    boss.create("jobs")
    boss.ask("subscribe", number=1, filter="subject = 'inbox.boss/x'", credit=100)
    boss.put("jobs", asking(1))
    rig.run()
    ann.begin(1)
    ann.get("jobs", transaction=1)
    ann.put("", answering(2), transaction=1)
    ann.put("", answering(1), transaction=1)
    ann.commit(1)
    rig.run()
    assert ann.refusals == [(1, 1, "not-allowed")]
    assert [event.values["n"] for event in boss.peer.events()] == [1]


def test_nobody_puts_a_request_in_anothers_name_to_be_allowed_to_answer() -> None:
    rig = guarded(boss=ALL, eve=[may("put"), may("get"), may("publish")])
    boss, eve = visit(rig, "boss"), visit(rig, "eve")
    boss.create("jobs")
    eve.put("jobs", asking(1))
    eve.begin(1)
    eve.put("jobs", asking(1), transaction=1)
    eve.put("jobs", asking(2, "inbox.eve/x"), transaction=1)
    eve.commit(1)
    rig.run()
    assert eve.refusals == [(1, 1, "not-allowed"), (2, 2, "not-allowed")]
    assert numbers(eve.get("jobs", 10)) == [2]
