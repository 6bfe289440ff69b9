"""Queues are made, found, described and deleted by what they are called and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from queues.rig import Client, Rig, numbers
from tidings.queues import description, manager
from tidings.queues.description import NAME_LENGTH_MAX


def test_a_queue_is_described_as_it_was_asked_for_with_the_rest_filled_in() -> None:
    ann = Client(Rig())
    told = ann.create("jobs", text="what is to be done", properties={"paper": "A4", "colour": True})
    assert told["name"] == "jobs"
    assert told["text"] == "what is to be done"
    assert told["properties"] == {"paper": "A4", "colour": True}
    assert told["type"] == "sqlite"
    assert (told["persistent"], told["keep"]) == (True, True)
    assert told == ann.describe("jobs")


def test_a_description_tells_the_id_and_the_limits_of_a_queue() -> None:
    ann = Client(Rig())
    limits = {"max_messages": 5, "deliveries_max": 3, "redelivery_s": 7.0}
    told = ann.create("jobs", **limits)
    assert {name: told[name] for name in limits} == limits
    assert told["id"] not in ("", "jobs", ann.create("others")["id"])
    assert ann.describe(told["id"]) == told


def test_a_queue_without_a_name_is_called_by_its_id() -> None:
    ann = Client(Rig())
    told = ann.create("")
    assert told["name"] == told["id"]
    ann.put(told["id"], 1)
    assert numbers(ann.get(told["id"])) == [1]


def test_the_same_description_gives_the_same_queue() -> None:
    ann = Client(Rig())
    assert ann.create("jobs", max_messages=5)["id"] == ann.create("jobs", max_messages=5)["id"]


def test_another_description_is_refused_with_the_difference() -> None:
    ann = Client(Rig())
    ann.create("jobs", max_messages=5)
    failure = ann.fails("queue.create", name="jobs", max_messages=6)
    assert failure.code == "queue-exists"
    assert failure.details["queue"] == "jobs"
    assert "max_messages is 5, not 6" in failure.details["problem"]


def test_a_description_tells_how_the_queue_stands() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2, 3)
    ann.get("jobs")
    ann.wait("jobs", where="n = 7")
    told = ann.describe("jobs")
    assert (told["messages"], told["in_flight"], told["waiting"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ageing_s": 1.0}, "priorities=True"),
        ({"priority": 7}, "priorities=True"),
        ({"ttl_s": 1.0}, "expiry=True"),
        ({"lease_s_max": 1.0}, "expiry=True"),
        ({"passive": True}, "bound to a filter"),
        ({"compress": True, "persistent": False}, "written to disk"),
        ({"type": "sqlite", "persistent": False}, "survive a restart"),
        ({"type": "volatile", "persistent": True}, "do not survive"),
        ({"type": "magnetic"}, "there is no type 'magnetic'"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    failure = Client(Rig()).fails("queue.create", name="jobs", **fields)
    assert failure.code == "queue"
    assert problem in failure.details["problem"]


@pytest.mark.parametrize("name", ["a@b", " jobs", "jobs ", "a\nb"])
def test_a_name_that_could_not_be_told_from_another_address_is_refused(name: str) -> None:
    assert Client(Rig()).fails("queue.create", name=name).code == "queue"


@pytest.mark.parametrize(
    "fields",
    [
        {"max_messages": 0},
        {"redelivery_s": 0},
        {"deliveries_max": 0},
        {"priority": 10, "priorities": True},
        {"name": "x" * (NAME_LENGTH_MAX + 1)},
        {"text": "x" * (description.TEXT_LENGTH_MAX + 1)},
        {"properties": {str(n): n for n in range(description.PROPERTIES_MAX + 1)}},
        {"colour": "blue"},
    ],
)
def test_a_field_out_of_its_bounds_is_refused(fields: dict[str, Any]) -> None:
    assert Client(Rig()).fails("queue.create", **{"name": "jobs", **fields}).code == "protocol"


def test_a_bad_filter_to_bind_by_is_refused_with_its_place() -> None:
    failure = Client(Rig()).fails("queue.create", name="jobs", bind="n >")
    assert failure.code == "filter"
    assert failure.details["line"] == 1
    assert Client(Rig()).fails("queue.describe", queue="jobs").code == "queue-not-found"


def test_a_deleted_queue_is_not_found_and_its_messages_are_gone() -> None:
    rig = Rig()
    ann = Client(rig)
    ann.create("jobs")
    ann.put("jobs", 1)
    ann.ask("queue.delete", queue="jobs")
    assert ann.fails("get", queue="jobs").code == "queue-not-found"
    ann.create("jobs")
    assert ann.get("jobs") == []
    assert list(rig.store.messages()) == []


def test_what_was_held_of_a_deleted_queue_can_not_be_settled() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.ask("queue.delete", queue="jobs")
    counter = ann.settle(0, hand)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]


@pytest.mark.parametrize("operation", ["queue.delete", "queue.describe", "queue.purge", "get"])
def test_a_queue_that_is_not_there_is_not_found(operation: str) -> None:
    failure = Client(Rig()).fails(operation, queue="nowhere")
    assert failure.code == "queue-not-found"
    assert failure.details["queue"] == "nowhere"


def test_a_put_into_a_queue_that_is_not_there_is_refused() -> None:
    ann = Client(Rig())
    last = ann.put("nowhere", 1, 2)
    ann.rig.run()
    assert ann.refusals == [(1, last, "queue-not-found")]
    assert ann.accepted == last


# Finding


def test_what_a_search_leaves_open_agrees_with_anything() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.create("bills")
    assert [one["name"] for one in ann.ask("queue.find")] == ["jobs", "bills"]
    assert [one["name"] for one in ann.ask("queue.find", name="bills")] == ["bills"]


def test_a_search_finds_by_a_piece_of_the_text() -> None:
    ann = Client(Rig())
    ann.create("jobs", text="a printer on the second floor")
    ann.create("bills")
    assert [one["name"] for one in ann.ask("queue.find", text="second floor")] == ["jobs"]


def test_properties_agree_when_all_pairs_of_the_search_are_in_the_description() -> None:
    ann = Client(Rig())
    ann.create("one", properties={"paper": "A4", "trays": 1})
    ann.create("two", properties={"paper": "A4", "trays": 2})
    assert [one["name"] for one in ann.ask("queue.find", properties={"paper": "A4"})] == ["one", "two"]
    assert [one["name"] for one in ann.ask("queue.find", properties={"paper": "A4", "trays": 2})] == ["two"]
    assert ann.ask("queue.find", properties={"ink": "blue"}) == []
    assert ann.ask("queue.find", properties={"trays": True}) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"type": "volatile"}, ["quick"]),
        ({"persistent": True}, ["jobs", "small"]),
        ({"persistent": False, "keep": True}, ["quick"]),
        ({"priorities": True}, ["jobs"]),
        ({"priorities": False, "expiry": True}, ["small"]),
        ({"max_messages": 7}, ["small"]),
        ({"max_messages": None}, ["jobs", "quick"]),
        ({"deliveries_max": 3}, ["jobs"]),
        ({"redelivery_s": 5}, ["small"]),
        ({"lease_s_max": 9.0}, ["small"]),
        ({"bind": "n > 1"}, ["quick"]),
        ({"max_messages": 8}, []),
        ({}, ["jobs", "small", "quick"]),
    ],
)
def test_a_search_finds_by_any_field_of_the_description(fields: dict[str, object], found: list[str]) -> None:
    ann = Client(Rig())
    ann.create("jobs", priorities=True, deliveries_max=3)
    ann.create("small", expiry=True, lease_s_max=9, max_messages=7, redelivery_s=5)
    ann.create("quick", persistent=False, keep=True, bind="n > 1")
    assert [one["name"] for one in ann.ask("queue.find", fields=fields)] == found


def test_a_search_finds_by_the_id_also_by_another_name() -> None:
    ann = Client(Rig())
    identity = ann.create("jobs")["id"]
    ann.create("bills")
    ann.ask("queue.alias", name="work", target="jobs")
    assert [one["name"] for one in ann.ask("queue.find", fields={"id": identity})] == ["jobs", "work"]
    assert ann.ask("queue.find", name="bills", fields={"id": identity}) == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"colour": "red"}, "lookup knows no field 'colour', only ageing_s, bind, compress"),
        ({"messages": 1}, "lookup knows no field 'messages'"),
        ({"maker": "bob"}, "lookup knows no field 'maker'"),
        ({"max_messages": True}, "$.max_messages: must be a whole number, not bool"),
        ({"priorities": 1}, "$.priorities: must be true or false, not int"),
    ],
)
def test_a_search_by_what_no_description_has_is_refused(fields: dict[str, object], problem: str) -> None:
    ann = Client(Rig())
    assert problem in ann.fails("queue.find", fields=fields).text


def test_a_search_tells_how_many_messages_there_are() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2)
    (told,) = ann.ask("queue.find")
    assert told["messages"] == 2


# Addresses


def test_a_queue_is_reached_by_name_id_alias_and_with_its_node() -> None:
    rig = Rig()
    ann = Client(rig)
    told = ann.create("jobs")
    assert ann.ask("queue.alias", name="work", target="jobs")["name"] == "jobs"
    for n, address in enumerate(("jobs", told["id"], "work", f"jobs@{rig.broker.node}")):
        ann.put(address, n)
    assert numbers(ann.get("jobs", 10)) == [0, 1, 2, 3]


def test_a_queue_of_another_node_is_not_found() -> None:
    failure = Client(Rig()).fails("queue.describe", queue="jobs@elsewhere")
    assert failure.code == "queue-not-found"
    assert "elsewhere" in failure.details["problem"]


def test_an_alias_of_an_alias_is_one_of_the_queue() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    ann.ask("queue.alias", name="labour", target="work")
    ann.ask("queue.delete", queue="work")
    ann.put("labour", 1)
    assert numbers(ann.get("jobs")) == [1]


def test_an_alias_is_told_as_such_and_may_be_made_again() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    (told,) = ann.ask("queue.find", name="work")
    assert told["alias_of"] == "jobs"


def test_an_alias_can_not_take_the_name_of_another_thing() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.create("bills")
    ann.ask("queue.alias", name="work", target="jobs")
    assert ann.fails("queue.alias", name="bills", target="jobs").code == "queue-exists"
    assert ann.fails("queue.alias", name="work", target="bills").code == "queue-exists"
    assert ann.fails("queue.create", name="work").code == "queue-exists"
    assert ann.fails("queue.alias", name="labour", target="nowhere").code == "queue-not-found"


def test_deleting_an_alias_leaves_the_queue() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    ann.ask("queue.delete", queue="work")
    assert ann.fails("queue.describe", queue="work").code == "queue-not-found"
    assert ann.describe("jobs")["name"] == "jobs"


def test_deleting_a_queue_deletes_its_aliases() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    ann.ask("queue.delete", queue="jobs")
    ann.create("work")


def test_aliases_come_back_after_a_crash() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.ask("queue.alias", name="work", target="jobs")
    ann.put("work", 1)
    ann.rig.run()
    bob = Client(ann.rig.restart(), "b")
    assert numbers(bob.get("work")) == [1]


def test_an_alias_that_is_too_long_is_refused_and_the_node_can_start_again() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    assert ann.fails("queue.alias", name="x" * (NAME_LENGTH_MAX + 1), target="jobs").code == "protocol"
    ann.ask("queue.alias", name="x" * NAME_LENGTH_MAX, target="jobs")
    assert Client(ann.rig.restart(), "b").describe("x" * NAME_LENGTH_MAX)["name"] == "jobs"


def test_a_node_has_a_bounded_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "QUEUES_MAX", 2)
    ann = Client(Rig())
    ann.create("one")
    ann.ask("queue.alias", name="two", target="one")
    assert ann.fails("queue.create", name="three").code == "queue"
    assert ann.fails("queue.alias", name="three", target="one").code == "queue"


# Limits


def test_a_full_queue_refuses_what_is_too_much_and_says_which() -> None:
    ann = Client(Rig())
    ann.create("jobs", max_messages=2)
    ann.put("jobs", 1, 2, 3, 4)
    ann.rig.run()
    assert ann.refusals == [(3, 4, "queue-full")]
    assert ann.accepted == 4
    assert numbers(ann.read("jobs")) == [1, 2]


def test_messages_in_readers_hands_count_for_a_full_queue() -> None:
    ann = Client(Rig())
    ann.create("jobs", max_messages=1)
    ann.put("jobs", 1)
    (hand,) = ann.get("jobs")
    ann.put("jobs", 2)
    ann.settle(0, hand)
    ann.put("jobs", 3)
    ann.rig.run()
    assert ann.refusals == [(2, 2, "queue-full")]
    assert numbers(ann.get("jobs")) == [3]


def test_the_queues_of_a_node_hold_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "SIZE_MAX", 1_000)
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2, 3, 4)
    ann.rig.run()
    assert ann.refusals == [(4, 4, "queue-full")]


def test_what_is_gone_is_not_counted_any_more() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1, 2, 3)
    hands = ann.get("jobs", 2)
    ann.settle(0, hands[0])
    ann.settle(2, hands[1])
    ann.ask("queue.purge", queue="jobs")
    ann.ask("queue.purge", queue="tidings.dead")
    assert ann.rig.queues.size == 0
