"""One node and its queue in a database: what holds for a queue of a node holds here."""

from __future__ import annotations

import sys

import psycopg
import pytest

from postgres.rig import GIVE_BACK, REJECT, UNOPENED, Answered, Client, Node, job, numbers
from postgres.server import Server
from tidings.errors import (
    FilterError,
    MessageNotHeld,
    MissingExtra,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
    Refused,
)
from tidings.event import Batch, Event
from tidings.postgres import open_postgres
from tidings.queues.description import DEAD
from tidings.queues.message import LENGTH_MAX

# Descriptions


def test_a_queue_is_made_once_and_described_with_how_it_stands(node: Node) -> None:
    made = node.create(text="for printers", properties={"paper": "A4"})
    assert (made.name, made.type, made.persistent, made.keep, made.messages) == (
        "jobs",
        "postgres",
        True,
        True,
        0,
    )
    assert node.create(text="for printers", properties={"paper": "A4"}).id == made.id
    node.put(Client(), job(1), job(2), job(3))
    node.get()
    told = node.describe()
    assert (told.messages, told.in_flight, told.waiting) == (2, 1, 0)


def test_another_description_of_the_same_name_is_refused_naming_the_difference(node: Node) -> None:
    node.create(max_messages=3)
    with pytest.raises(QueueExists, match="max_messages is 3, not 4"):
        node.create(max_messages=4)


def test_a_queue_without_a_name_is_called_by_its_id_and_found_by_it(node: Node) -> None:
    made = node.create("")
    assert made.name == made.id
    named = node.create("named")
    node.put(Client(), job(1), name=named.id)
    assert numbers(node.get("named")) == [1]


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"bind": "type = 'job'"}, "can't be bound"),
        ({"keep": False}, "is kept"),
        ({"persistent": False}, "survive a restart"),
        ({"ttl_s": 1.0}, "expiry=True"),
        ({"name": "a@b"}, "has no @"),
    ],
)
def test_what_a_queue_in_a_database_cannot_be_is_refused(
    node: Node, wanted: dict[str, object], problem: str
) -> None:
    with pytest.raises(QueueError, match=problem):
        node.create(**{"name": "jobs", **wanted})


def test_a_deleted_queue_is_gone_with_its_messages_and_its_readers_are_told(node: Node) -> None:
    node.create()
    node.put(Client(), job(1))
    waiting = node.ask(where="number = 7", wait_s=None)
    node.delete()
    node.until(lambda: waiting.is_there)
    assert isinstance(waiting.error, QueueNotFound)
    assert node.shared.resolve("jobs") is None
    node.create()
    assert node.describe().messages == 0


def test_a_search_gives_the_descriptions_that_agree(node: Node) -> None:
    node.create("one", text="the first", properties={"color": True})
    node.create("two", text="the second")
    node.put(Client(), job(1), name="two")
    assert [(told.name, told.messages) for told in node.search(text="second")] == [("two", 1)]
    assert {told.name for told in node.search()} == {"one", "two"}
    assert [told.name for told in node.search(properties={"color": True})] == ["one"]


# Putting and taking


def test_messages_come_first_in_first_out_as_they_were_put(node: Node) -> None:
    node.create()
    client = Client()
    sent = [job(number, color="blue", body=bytes(number)) for number in range(5)]
    assert node.put(client, *sent) == [None] * 5
    hands = node.get(count=10)
    assert numbers(hands) == [0, 1, 2, 3, 4]
    assert [hand.event.body for hand in hands] == [event.body for event in sent]
    assert {(hand.system, hand.epoch, hand.source, hand.delivery, hand.redelivered) for hand in hands} == {
        ("sender", 1, "alice", 1, False)
    }
    assert [hand.number for hand in hands] == sorted(hand.number for hand in hands)


def test_the_highest_priority_comes_first_and_ageing_makes_up_for_it(node: Node) -> None:
    node.create(priorities=True, priority=5)
    node.create("fair", priorities=True, ageing_s=0.000_001)
    events = [job(1, priority=0), job(2, priority=9), job(3), job(4, priority=9)]
    node.put(Client(), *events)
    node.put(Client("other"), *events, name="fair")
    hands = node.get(count=10)
    assert numbers(hands) == [2, 4, 3, 1]
    assert hands[2].event.priority == 5
    assert set(numbers(node.get("fair", count=10))) == {1, 2, 3, 4}


def test_with_ageing_who_has_waited_for_long_comes_before_the_important(node: Node) -> None:
    node.create(priorities=True, ageing_s=1e-6)
    client = Client()
    node.put(client, job(1, priority=0))
    node.put(client, job(2, priority=9))  # a commit later, which takes longer than nine levels are worth
    assert numbers(node.get(count=10)) == [1, 2]


def test_only_what_matches_is_taken_and_the_rest_keeps_its_order(node: Node) -> None:
    node.create()
    node.put(Client(), *(job(number, color="blue" if number % 3 else "red") for number in range(10)))
    assert numbers(node.take(where="color = 'red' AND number > 0", count=2)) == [3, 6]
    assert numbers(node.take(count=10)) == [0, 1, 2, 4, 5, 7, 8, 9]
    assert node.get(where="color = 'red'") == []


def test_a_condition_is_searched_for_over_many_pages(node: Node) -> None:
    node.create()
    client = Client()
    node.put(client, *(job(number) for number in range(12_000)))
    assert numbers(node.take(where="number = 11999")) == [11999]
    assert numbers(node.take(where="number >= 600", count=3)) == [600, 601, 602]
    assert node.take(where="number = 11999") == []


def test_reading_leaves_messages_where_they_are_and_goes_on_from_a_place(node: Node) -> None:
    node.create()
    node.put(Client(), *(job(number, body=b"x") for number in range(5)))
    first = node.ask(action="read", count=2)
    node.wait(first)
    assert numbers(first.hands) == [0, 1]
    rest = node.ask(action="read", count=9, after=first.result.next, bodies=False)
    node.wait(rest)
    assert numbers(rest.hands) == [2, 3, 4]
    assert [hand.event.body for hand in rest.hands] == [None] * 3
    assert rest.result.next is None
    assert node.describe().messages == 5


def test_what_is_put_later_is_not_meant_by_who_asks_up_to_a_number(node: Node) -> None:
    node.create(priorities=True)
    client = Client()
    node.put(client, job(1), job(2))
    first = node.ask(count=1)
    node.wait(first)
    node.put(client, job(3, priority=9))
    assert numbers(node.get(count=9, up_to=first.result.last)) == [2]
    assert numbers(node.get(count=9)) == [3]


def test_who_waits_gets_what_is_put_later_and_only_what_he_wants(node: Node) -> None:
    node.create()
    red = node.ask(where="color = 'red'", wait_s=None)
    anything = node.ask(wait_s=30)
    node.put(Client(), job(1, color="blue"), job(2, color="red"), job(3, color="red"))
    node.until(lambda: red.is_there and anything.is_there)
    assert (numbers(red.hands), numbers(anything.hands)) == ([2], [1])
    assert numbers(node.get(count=5)) == [3]


def test_who_has_waited_for_long_enough_is_told_that_there_is_nothing(node: Node) -> None:
    node.create()
    assert node.get(wait_s=0.05) == []
    assert node.get(wait_s=None, if_exists=True) == []


def test_many_readers_in_line_get_one_message_each_in_their_order(node: Node) -> None:
    node.create()
    readers = [node.ask(wait_s=None) for _ in range(50)]
    node.until(lambda: node.describe().waiting == 50)
    node.put(Client(), *(job(number) for number in range(50)))
    node.until(lambda: all(reader.is_there for reader in readers))
    assert [numbers(reader.hands) for reader in readers] == [[number] for number in range(50)]


def test_an_answer_is_no_longer_than_a_frame_can_be(node: Node) -> None:
    node.create()
    client = Client()
    for number in range(4):
        node.put(client, job(number, body=bytes(5 << 20)))
    assert numbers(node.take(count=4)) == [0]
    assert numbers(node.take(count=4, where="number > 0")) == [1]
    assert numbers(node.take(count=2, bodies=False)) == [2]


def test_the_longest_event_that_can_be_put_is_and_a_longer_one_is_refused(node: Node) -> None:
    node.create()
    room = LENGTH_MAX - len(Client().batch([job(1, body=bytes(2**16))]).raws[0]) + 2**16
    client = Client("long")
    assert node.put(client, job(1, body=bytes(room))) == [None]
    (error,) = node.put(client, job(1, body=bytes(room + 1)))
    assert isinstance(error, Refused)
    assert len(node.get()[0].event.body or b"") == room


def test_a_compressed_queue_gives_what_was_put(node: Node) -> None:
    pytest.importorskip("zstandard")
    node.create(compress=True)
    node.put(Client(), job(1, body=bytes(100_000)))
    assert node.get(where="number = 1")[0].event.body == bytes(100_000)


def test_a_get_that_is_cancelled_gives_back_what_it_got_as_if_it_had_not_been(node: Node) -> None:
    node.create()
    node.put(Client(), job(1))
    told = node.ask()
    told.cancel()  # which may have got it by now, and is not told so
    (hand,) = node.get(wait_s=30)
    assert not told.is_there
    assert (hand.delivery, hand.redelivered) == (1, False)
    waiting = node.ask(wait_s=None)
    waiting.cancel()
    node.settle(hand, UNOPENED)
    assert numbers(node.get(wait_s=30)) == [1]
    assert not waiting.is_there


def test_a_filter_that_cannot_be_read_and_a_transaction_are_refused(node: Node) -> None:
    node.create()
    with pytest.raises(FilterError):
        node.get(where="number >")
    with pytest.raises(QueueError, match="transaction"):
        node.get(transaction=1)


def test_a_queue_that_is_not_there_is_not_found(node: Node) -> None:
    node.create()
    assert node.shared.resolve("other") is None
    assert node.shared.resolve("jobs@elsewhere") is None
    way = node.way("jobs")
    node.delete()
    (reply,) = way.put(None, Client().batch([job(1)]))
    with pytest.raises(QueueNotFound):
        node.wait(Answered(reply))


# Settling


def test_what_was_dealt_with_is_gone_and_can_be_settled_once(node: Node) -> None:
    node.create()
    node.put(Client(), job(1))
    (hand,) = node.get()
    assert node.get() == []
    node.settle(hand)
    assert node.describe().in_flight == 0
    with pytest.raises(MessageNotHeld):
        node.settle(hand)


def test_what_is_given_back_is_in_its_old_place_and_counted(node: Node) -> None:
    node.create()
    node.put(Client(), job(1), job(2))
    (hand,) = node.get()
    node.settle(hand, GIVE_BACK)
    (again,) = node.get()
    assert (numbers([again]), again.delivery, again.redelivered) == ([1], 2, True)
    node.settle(again, UNOPENED)
    assert node.get()[0].delivery == 2


def test_after_too_many_deliveries_a_message_is_among_the_dead_letters(node: Node) -> None:
    node.create(deliveries_max=2)
    node.put(Client(), job(1, body=b"x"))
    node.settle(node.get()[0], GIVE_BACK)
    node.settle(node.get()[0], GIVE_BACK)
    assert node.get() == []
    (letter,) = node.get(DEAD)
    assert letter.event.values == {
        "number": 1, "dead.queue": "jobs", "dead.reason": "was handed out 2 times", "dead.deliveries": 2,
    }  # fmt: skip
    assert (letter.event.body, letter.system) == (b"x", "sender")


def test_a_rejected_message_is_a_dead_letter_at_once_and_a_rejected_letter_is_gone(node: Node) -> None:
    node.create()
    node.put(Client(), job(1), job(2))
    for hand in node.get(count=2):
        node.settle(hand, REJECT, "is no job")
    letters = node.get(DEAD, count=5)
    assert [letter.event["dead.reason"] for letter in letters] == ["is no job"] * 2
    node.settle(letters[0], REJECT, "nor a letter", name=DEAD)
    assert node.describe(DEAD).in_flight == 1
    node.delete(DEAD)
    node.put(Client("other"), job(3))
    node.settle(node.get()[0], REJECT)
    assert node.get(DEAD)[0].event["dead.reason"] == "rejected"


def test_what_is_held_for_too_long_goes_to_another_and_can_be_settled_by_him_only(
    server: Server, node: Node
) -> None:
    node.create(redelivery_s=1e6)
    node.put(Client(), job(1))
    (hand,) = node.get()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("UPDATE tidings.messages SET held_until = 1")  # its time is up, once
    (again,) = node.get(wait_s=None)
    assert again.delivery == 2
    with pytest.raises(MessageNotHeld):
        node.settle(hand)
    node.settle(again)


# Time and room


def test_what_has_expired_is_never_handed_out(node: Node) -> None:
    node.create(expiry=True, ttl_s=100.0, lease_s_max=200.0)
    node.put(Client(), job(1, ttl_s=0.001), job(2), job(3, ttl_s=1000.0))
    node.until(lambda: node.describe().messages == 2)
    hands = node.get(count=5)
    assert [hand.event.ttl_s for hand in hands] == [100.0, 200.0]


def test_a_queue_without_expiry_does_not_look_at_the_ttl(node: Node) -> None:
    node.create()
    node.put(Client(), job(1, ttl_s=0.000_001))
    assert numbers(node.get()) == [1]


def test_a_lease_can_be_renewed_and_ended(node: Node) -> None:
    node.create(expiry=True, lease_s_max=50.0)
    client = Client()
    node.put(client, job(1, ttl_s=30.0), job(2))
    first, second = (hand.event.id for hand in node.get(action="read", count=2))
    assert renew(node, str(first), 80.0) == 50.0
    assert renew(node, str(second), 0.0) == 0.0
    assert numbers(node.get(action="read", count=5)) == [1]
    assert node.get(action="read")[0].event.ttl_s > 49.0  # type: ignore[operator]
    with pytest.raises(MessageNotHeld):
        renew(node, str(second), 1.0)


def renew(node: Node, identity: str, lease_s: float) -> object:
    return node.wait(Answered(node.way("jobs").renew(identity, lease_s)))


def test_a_full_queue_refuses_and_what_was_refused_can_come_again(node: Node) -> None:
    node.create(max_messages=2)
    client = Client()
    batch = client.batch([job(1), job(2), job(3), job(4)])
    done = node.send(batch)
    node.until(lambda: len(done) == 4)
    assert [type(done[row]) for row in range(4)] == [type(None), type(None), QueueFull, QueueFull]
    assert numbers(node.take(count=9)) == [1, 2]
    again = node.send(batch)  # as after a crash before the answer was told
    node.until(lambda: len(again) == 4)
    assert list(again.values()) == [None] * 4
    assert numbers(node.take(count=9)) == [3, 4]


def test_expired_messages_take_no_room(node: Node) -> None:
    node.create(max_messages=1, expiry=True)
    client = Client()
    node.put(client, job(1, ttl_s=0.001))
    node.until(lambda: node.describe().messages == 0)
    assert node.put(client, job(2)) == [None]


def test_purging_throws_away_what_matches_and_is_in_nobodys_hands(node: Node) -> None:
    node.create()
    node.put(Client(), *(job(number) for number in range(6)))
    node.get()
    assert node.purge(where="number < 3") == 2
    assert node.purge() == 3
    assert (node.describe().messages, node.describe().in_flight) == (0, 1)


def test_parts_are_not_to_be_had(node: Node) -> None:
    node.create()
    with pytest.raises(QueueError, match="0 further parts"):
        node.wait(Answered(node.way("jobs").part(1, 1, 0)))


def test_events_without_a_sender_are_put_as_often_as_they_come(node: Node) -> None:
    node.create()
    batch = Batch.of([Event("job", {"number": 1})])
    for _ in range(2):
        done = node.send(batch)
        node.until(lambda done=done: done)
    assert numbers(node.get(count=5)) == [1, 1]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"tidings\[postgres\]"):
        open_postgres("", "a", print)
