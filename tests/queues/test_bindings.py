"""Queues that are filled by publications, and reports on what became of messages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from queues.rig import DONE, GIVE_BACK, REJECT, Client, Rig, job, numbers, pass_time
from tidings.event import Event
from tidings.queues.message import LENGTH_MAX


def client(**fields: object) -> Client:
    """A client of a queue that is bound to jobs."""
    ann = Client(Rig())
    ann.create("jobs", **{"bind": "type = 'job'", **fields})
    return ann


def publish(ann: Client, *events: Event) -> None:
    """Publish events, numbered."""
    for event in events:
        ann.counter += 1
        ann.peer.publish(replace(event, counter=ann.counter))
    ann.rig.run()


def test_publications_that_match_fill_the_queue() -> None:
    ann = client()
    publish(ann, job(1), Event("other", {"n": 2}), job(3))
    assert numbers(ann.get("jobs", 5)) == [1, 3]


def test_each_message_of_a_bound_queue_goes_to_one_reader() -> None:
    ann = client()
    bob = Client(ann.rig, "b")
    publish(ann, job(1), job(2))
    assert numbers(ann.get("jobs")) == [1]
    assert numbers(bob.get("jobs")) == [2]


def test_what_was_published_with_promises_is_in_the_queue_after_a_crash() -> None:
    ann = client()
    publish(ann, job(1, delivery="reliable"))
    assert ann.accepted == 1
    assert numbers(Client(ann.rig.restart(), "b").get("jobs")) == [1]


def test_a_put_is_seen_by_no_binding() -> None:
    ann = client()
    ann.create("other")
    ann.put("other", 1)
    assert ann.get("jobs") == []


def test_a_publication_that_meets_a_full_queue_is_a_dead_letter_with_the_reason() -> None:
    ann = client(max_messages=1)
    publish(ann, job(1), job(2))
    assert numbers(ann.get("jobs", 5)) == [1]
    (letter,) = ann.get("tidings.dead")
    assert letter.n == 2
    assert letter.event.values["dead.queue"] == "jobs"
    assert letter.event.values["dead.deliveries"] == 0
    assert "at most 1" in str(letter.event.values["dead.reason"])
    assert ann.accepted == 2


def test_a_publication_that_could_not_be_handed_out_is_dropped() -> None:
    ann = client()
    publish(ann, job(1, body=bytes(LENGTH_MAX)), job(2))
    assert numbers(ann.get("jobs", 5)) == [2]
    assert ann.rig.broker.tallies["dropped", "too-large"] == 1


def test_a_publication_for_a_full_queue_is_one_dead_letter_though_a_commit_failed() -> None:
    ann = client(max_messages=1)
    bob = Client(ann.rig, "b")
    publish(bob, job(1))
    ann.counter += 1
    event = replace(job(2, delivery="reliable"), counter=ann.counter)
    ann.peer.publish(event)
    ann.rig.tick()
    ann.rig.fail()
    ann.lose()
    ann.come()
    ann.peer.publish(event)
    ann.rig.run()
    assert numbers(ann.read("tidings.dead")) == [2]


def test_a_deleted_queue_takes_no_publications() -> None:
    ann = client()
    ann.ask("queue.delete", queue="jobs")
    publish(ann, job(1))
    ann.create("jobs")
    assert ann.get("jobs") == []


def test_a_binding_is_there_after_a_crash() -> None:
    ann = client()
    bob = Client(ann.rig.restart(), "b")
    publish(bob, job(1))
    assert numbers(bob.get("jobs")) == [1]


def test_a_bound_queue_demands_what_it_takes() -> None:
    rig = Rig()
    ann, sensor = Client(rig), Client(rig, "s")
    assert sensor.ask("advertise", number=1, filter="type = 'job'")["filters"] == []
    ann.create("jobs", bind="type = 'job'")
    told = [details["filters"] for kind, _, details in sensor.peer.notices if kind == "interest"]
    assert [len(filters) for filters in told] == [1]
    ann.ask("queue.delete", queue="jobs")
    told = [details["filters"] for kind, _, details in sensor.peer.notices if kind == "interest"]
    assert [len(filters) for filters in told] == [1, 0]


def test_a_passive_binding_demands_nothing() -> None:
    ann = client(passive=True)
    sensor = Client(ann.rig, "s")
    assert sensor.ask("advertise", number=1, filter="type = 'job'")["filters"] == []
    publish(ann, job(1))
    assert numbers(ann.get("jobs")) == [1]


# Reports


def reported(ann: Client, queue: str = "answers") -> list[tuple[str, str, str]]:
    """The reports in a queue: type, queue and reason."""
    hands = ann.get(queue, 10)
    values = [(hand.event.type, hand.event.values) for hand in hands]
    return [(kind, str(value["queue"]), str(value.get("reason", ""))) for kind, value in values]


def wanting(kinds: str, **fields: object) -> Event:
    """A job of which reports are wanted."""
    return Event("job", {"n": 1, "report": kinds}, reply_to="answers", **fields)


def test_a_message_that_was_acknowledged_is_reported_to_who_wants_that() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.create("answers")
    ann.put("jobs", wanting("delivered expired"))
    (hand,) = ann.get("jobs")
    assert ann.get("answers") == []
    ann.settle(DONE, hand)
    (report,) = ann.get("answers")
    assert report.event.type == "report.delivered"
    assert report.event.correlation_id == hand.event.id


def test_a_message_that_has_expired_is_reported() -> None:
    ann = Client(Rig())
    ann.create("jobs", expiry=True)
    ann.create("answers")
    ann.put("jobs", wanting("expired", ttl_s=5))
    ann.rig.run()
    pass_time(ann.rig, 6.0)
    assert reported(ann) == [("report.expired", "jobs", "")]


@pytest.mark.parametrize("way", ["rejected", "too often"])
def test_a_message_that_can_not_be_delivered_is_reported_with_the_reason(way: str) -> None:
    ann = Client(Rig())
    ann.create("jobs", deliveries_max=1)
    ann.create("answers")
    ann.put("jobs", wanting("undeliverable"))
    ann.settle(REJECT if way == "rejected" else GIVE_BACK, *ann.get("jobs"), text=way)
    assert reported(ann) == [("report.undeliverable", "jobs", way)]


def test_a_publication_that_meets_a_full_queue_is_reported() -> None:
    ann = client(max_messages=1)
    ann.create("answers")
    publish(ann, job(1), wanting("undeliverable"))
    assert [kind for kind, _, _ in reported(ann)] == ["report.undeliverable"]


def test_a_report_does_not_let_a_publisher_go_that_a_slow_subscription_holds() -> None:
    ann = client(max_messages=1)
    bob = Client(ann.rig, "b")
    bob.subscribe("type = 'job'", on_slow="block", credit=0)
    publish(bob, job(1))
    counter = ann.counter + 1
    publish(ann, wanting("undeliverable"))
    assert ann.accepted < counter


def test_nobody_is_told_who_does_not_want_it() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.create("answers")
    ann.put("jobs", wanting("expired"), Event("job", {"n": 2}, reply_to="answers"), job(3, subject="report"))
    ann.settle(DONE, *ann.get("jobs", 3))
    assert ann.get("answers", 5) == []


def test_where_the_answers_go_is_a_subject_if_it_is_no_queue() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.subscribe("subject = 'answers'")
    ann.put("jobs", wanting("delivered"))
    ann.settle(DONE, *ann.get("jobs"))
    ann.rig.run()
    assert [event.type for event in ann.peer.events()] == ["report.delivered"]


def test_a_report_for_which_there_is_no_room_is_dropped() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.create("answers", max_messages=1)
    ann.put("jobs", wanting("delivered"), wanting("delivered"))
    ann.settle(DONE, *ann.get("jobs", 2))
    assert len(reported(ann)) == 1


def test_a_queue_does_not_report_to_itself() -> None:
    ann = Client(Rig())
    ann.create("answers")
    ann.put("answers", wanting("delivered"))
    ann.settle(DONE, *ann.get("answers"))
    assert ann.get("answers") == []


def test_a_binding_that_contradicts_itself_is_refused() -> None:
    ann = Client(Rig())
    failure = ann.fails("queue.create", name="jobs", bind="n > 3 AND n < 2")
    assert "no publication can match its binding" in failure.text
