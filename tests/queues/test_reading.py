"""Looking without taking: reading, pages, headers, and watching what comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from protocol.rig import event

from queues.rig import DONE, Client, Rig, hands_of, job, numbers
from tidings.protocol.messages import Deliver
from tidings.queues.message import LENGTH_MAX
from tidings.queues.waiting import ANSWER_SIZE_MAX


def client(**fields: object) -> Client:
    """A client of a queue."""
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def test_what_is_read_stays() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    assert numbers(ann.read("jobs")) == [1, 2]
    assert numbers(ann.read("jobs", where="n = 2")) == [2]
    assert numbers(ann.get("jobs", 5)) == [1, 2]


def test_what_is_read_is_in_nobodys_hands() -> None:
    ann = client()
    ann.put("jobs", 1)
    (hand,) = ann.read("jobs")
    assert hand.delivery == 0
    counter = ann.settle(DONE, hand)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "not-yours")]


def test_what_is_in_readers_hands_is_not_read() -> None:
    ann = client()
    ann.put("jobs", 1, 2)
    ann.get("jobs")
    assert numbers(ann.read("jobs")) == [2]


def test_a_reader_may_wait_for_something_to_read() -> None:
    ann = client()
    waiting = ann.wait("jobs", action="read", where="n = 2")
    ann.put("jobs", 1, 2)
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [2]
    assert ann.describe("jobs")["messages"] == 2


@given(
    st.lists(st.integers(0, 9), max_size=30),
    st.integers(1, 7),
    st.sampled_from(["", "n >= 3", "priority > 4"]),
)
def test_pages_together_are_what_there_is_in_order(priorities: list[int], page: int, where: str) -> None:
    ann = client(priorities=True)
    for n, priority in enumerate(priorities):
        ann.put("jobs", job(n, priority=priority))
    seen: list[int] = []
    after = None
    for _ in range(len(priorities) + 2):
        answer = ann.ask("get", queue="jobs", count=page, action="read", after=after, where=where)
        seen += numbers(hands_of(answer))
        after = answer["next"]
        if after is None:
            break
    assert after is None
    assert seen == numbers(ann.read("jobs", where=where))


def test_the_last_page_says_that_nothing_follows() -> None:
    ann = client()
    ann.put("jobs", 1)
    assert ann.ask("get", queue="jobs", count=5, action="read")["next"] is None


def test_headers_are_messages_without_their_bodies() -> None:
    ann = client()
    ann.put("jobs", job(1, body=b"x" * 100, content_type="text/plain", subject="rain"))
    (hand,) = ann.read("jobs", bodies=False)
    assert hand.event.body is None
    assert (hand.event.content_type, hand.event.subject, hand.n) == ("text/plain", "rain", 1)
    assert ann.read("jobs")[0].event.body == b"x" * 100


def test_later_messages_are_not_meant_by_one_that_wants_all() -> None:
    ann = client()
    ann.put("jobs", 1, 2, 3)
    answer = ann.ask("get", queue="jobs", count=2)
    assert numbers(hands_of(answer)) == [1, 2]
    ann.put("jobs", 4)
    ann.rig.run()
    assert numbers(ann.get("jobs", 10, up_to=answer["last"])) == [3]
    assert ann.get("jobs", 10, up_to=answer["last"]) == []


def test_an_answer_holds_a_bounded_number_of_bytes_but_one_message_at_least() -> None:
    ann = client()
    ann.put("jobs", *(job(n, body=bytes(ANSWER_SIZE_MAX // 2)) for n in range(5)))
    assert numbers(ann.get("jobs", 5)) == [0, 1]
    assert numbers(ann.get("jobs", 5)) == [2, 3]
    ann.put("jobs", job(9, body=bytes(2 * ANSWER_SIZE_MAX)))
    assert numbers(ann.get("jobs", 5, where="n = 9")) == [9]


def test_an_answer_fits_a_frame_however_large_its_messages_are() -> None:
    ann = client()
    small, large = job(1, body=bytes(ANSWER_SIZE_MAX - 2_000)), job(2, body=bytes(LENGTH_MAX - 1_000))
    ann.put("jobs", small)
    ann.put("jobs", large)
    answer = ann.ask("get", queue="jobs", count=5, action="read")
    assert numbers(hands_of(answer)) == [1]
    assert numbers(ann.read("jobs", after=answer["next"])) == [2]
    assert numbers(ann.get("jobs", 5)) == [1]
    assert numbers(ann.get("jobs", 5)) == [2]


def test_who_waits_gets_no_more_at_once_than_fits_a_frame() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    waiting = ann.wait("jobs", count=5)
    bob.put("jobs", job(1, body=bytes(ANSWER_SIZE_MAX - 2_000)))
    bob.put("jobs", job(2, body=bytes(LENGTH_MAX - 1_000)))
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [1]
    assert numbers(ann.get("jobs", 5)) == [2]


def test_an_event_that_could_not_be_handed_out_is_refused() -> None:
    ann = client()
    counter = ann.put("jobs", job(1, body=bytes(LENGTH_MAX)))
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "too-large")]


# Watching


def test_a_watcher_gets_copies_of_what_is_put_from_now_on() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    ann.put("jobs", 1)
    bob.subscribe("n > 1", queue="jobs")
    ann.put("jobs", 0, 2, 3)
    ann.rig.run()
    assert bob.told == [2, 3]
    assert numbers(ann.get("jobs", 10)) == [1, 0, 2, 3]


def test_a_watcher_gets_what_goes_to_a_waiting_reader_at_once() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    waiting = ann.wait("jobs")
    ann.put("jobs", 1)
    ann.rig.run()
    assert numbers(ann.got(waiting) or []) == [1]
    assert bob.told == [1]


def test_a_watcher_is_told_when_the_queue_took_the_message_in_and_from_whom() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    ann.put("jobs", 1)
    ann.rig.run()
    (copy,) = bob.peer.events()
    assert copy.received is not None
    assert bob.peer.got(Deliver)[0].source == "ann"


def test_a_watcher_is_not_told_of_publications_nor_of_other_queues() -> None:
    ann = client()
    ann.create("bills")
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    ann.put("bills", 1)
    ann.counter += 1
    ann.peer.publish(event(ann.counter))
    ann.rig.run()
    assert bob.peer.events() == []


def test_a_message_that_comes_back_is_not_told_again() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    ann.put("jobs", 1)
    ann.settle(1, *ann.get("jobs"))
    ann.rig.run()
    assert len(bob.peer.events()) == 1


def test_a_watcher_that_ends_is_told_no_more() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    bob.ask("unsubscribe", number=1)
    ann.put("jobs", 1)
    ann.rig.run()
    assert bob.peer.events() == []


def test_a_watcher_is_told_when_the_queue_is_deleted() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    bob.subscribe(queue="jobs")
    ann.ask("queue.delete", queue="jobs")
    assert [(kind, number) for kind, number, _ in bob.peer.notices] == [("ended", 1)]
    bob.lose()


def test_a_queue_that_is_not_there_can_not_be_watched() -> None:
    ann = client()
    failure = ann.fails("subscribe", number=1, filter="", credit=10, queue="nowhere")
    assert failure.code == "queue-not-found"
