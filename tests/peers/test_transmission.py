"""Whoever puts into a queue elsewhere is told what is said there, or that it is safe if that node is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from peers.crossing import JOBS, Crossing, Site, site
from queues.rig import Client, job, numbers

from tidings.client.put import planned
from tidings.errors import QueueError
from tidings.event import Batch
from tidings.peers.transmission import TRANSMISSIONS
from tidings.protocol.messages import Refusal
from tidings.protocol.session import Session
from tidings.queues.backend import QueueBackend, QueueRef
from tidings.queues.description import Description
from tidings.replies import Deferred


class To:
    """The queue `jobs@far`, as clients of the near node put into it."""

    address = "jobs@far"
    stores_puts = True

    def __init__(self, near: Site) -> None:
        self._transmission = near.transmission

    def put(self, session: Session, batch: Batch) -> Sequence[Deferred[None]]:
        return self._transmission.put(session, "far", "jobs", batch)


class Far:
    """The far node, which has one queue."""

    types = ()

    def __init__(self, near: Site) -> None:
        self._near = near

    def resolve(self, address: str) -> QueueRef | None:
        return cast(QueueRef, To(self._near)) if address == To.address else None


def lead(near: Site) -> None:
    """Let what clients put into `jobs@far` go that way."""
    near.queues.backends.insert(0, cast(QueueBackend, Far(near)))


def crossing(**queue: Any) -> Crossing:
    made = Crossing()
    made.bob.create("jobs", **queue)
    lead(made.near)
    made.run()
    return made


def test_a_put_is_accepted_when_the_other_node_has_it() -> None:
    made = crossing()
    made.ann.put("jobs@far", 1, 2)
    made.near.run()
    assert made.ann.accepted == 0
    made.run()
    assert made.ann.accepted == 2
    assert numbers(made.bob.read("jobs")) == [1, 2]


def test_a_delay_and_a_group_hold_at_the_other_node() -> None:
    made = crossing()
    made.ann.put("jobs@far", planned(job(1), 5.0, None, "a"), planned(job(2), None, None, "a"), job(3))
    made.run()
    assert made.outgoing.queue.size == 0
    told = made.bob.describe("jobs")
    assert (told["messages"], told["delayed"], told["groups"]) == (2, 1, 1)
    made.far.pass_time(5.1)
    assert numbers(made.bob.get("jobs", 10)) == [1, 3]


def test_the_time_on_the_way_is_taken_off_a_delay() -> None:
    made = crossing()
    made.is_cut = True
    made.cut()
    made.ann.put("jobs@far", planned(job(1), 5.0, None), planned(job(2), 9.0, None))
    made.near.run()
    made.near.pass_time(6.0)
    made.is_cut = False
    made.run()
    assert numbers(made.bob.get("jobs", 10)) == [1]
    made.far.pass_time(3.1)
    assert numbers(made.bob.get("jobs", 10)) == [2]


def test_an_error_of_the_other_node_is_an_error_here_and_the_message_is_gone() -> None:
    made = crossing(max_messages=1)
    made.ann.put("jobs@far", 1, 2)
    made.run()
    assert made.ann.refusals == [(2, 2, "queue-full")]
    assert made.ann.accepted == 2
    assert made.outgoing.queue.size == 0
    assert list(made.near.queues) == [made.outgoing.queue]  # there are no dead letters


def test_a_refusal_is_accepted_when_the_message_is_gone_from_the_disk() -> None:
    made = crossing(max_messages=1)
    made.ann.put("jobs@far", 1, 2)
    made.near.run()
    made.carry()
    made.far.run()
    made.carry()
    made.near.tick()
    assert made.ann.accepted < 2
    made.near.sync()
    assert made.ann.accepted == 2


def test_what_comes_behind_a_put_that_waits_is_not_accepted_before_it() -> None:
    made = crossing()
    made.ann.create("mine")
    made.ann.put("jobs@far", 1)
    made.ann.put("mine", 2)
    made.near.run()
    assert made.ann.accepted == 0
    made.run()
    assert made.ann.accepted == 2


def test_a_put_is_accepted_when_it_is_on_disk_if_the_other_node_is_away() -> None:
    made = crossing()
    made.is_cut = True
    made.cut()
    made.ann.put("jobs@far", 1)
    made.near.tick()
    assert made.ann.accepted == 0
    made.near.sync()
    assert made.ann.accepted == 1


def test_a_put_whose_node_goes_away_meanwhile_is_safe_here() -> None:
    made = crossing()
    made.ann.put("jobs@far", 1)
    made.near.run()
    made.cut()
    made.near.run()
    assert made.ann.accepted == 1
    made.run()
    assert numbers(made.bob.read("jobs")) == [1]


def test_what_is_refused_then_is_a_dead_letter() -> None:
    made = crossing(max_messages=1)
    made.is_cut = True
    made.cut()
    made.ann.put("jobs@far", 1, 2)
    made.near.run()
    assert made.ann.accepted == 2
    made.is_cut = False
    made.run()
    assert made.ann.refusals == []
    assert numbers(made.ann.read("tidings.dead")) == [2]


def test_what_is_refused_when_its_sender_has_gone_is_a_dead_letter() -> None:
    made = crossing(max_messages=1)
    made.ann.put("jobs@far", 1, 2)
    made.near.run()
    made.ann.lose()
    made.run()
    made.ann.come()
    assert made.ann.welcome.counter == 2
    assert numbers(made.ann.read("tidings.dead")) == [2]


def test_a_sender_that_comes_again_is_told_of_no_more_than_is_done() -> None:
    made = crossing()
    made.ann.put("jobs@far", 1)
    made.near.run()
    made.ann.lose()
    made.ann.come()
    assert made.ann.welcome.counter == 0
    made.ann.put_again("jobs@far", 1, job(1))
    made.run()
    assert made.ann.accepted == 1
    assert numbers(made.bob.read("jobs")) == [1]


def test_a_sender_whose_node_was_killed_meanwhile_finds_its_put_done_once() -> None:
    made = crossing()
    made.ann.put("jobs@far", 1)
    made.near.run()
    made.crash_near()
    lead(made.near)
    made.ann.come(made.near)
    assert made.ann.welcome.counter == 1
    made.run()
    assert numbers(made.bob.read("jobs")) == [1]


def test_a_put_waits_for_a_peer_that_is_there_though_nothing_was_sent_to_it_yet() -> None:
    made = crossing()
    made.cut()
    made.forwarder.close()
    made.near.transmission.is_there = lambda peer: peer == "far"
    made.ann.put("jobs@far", 1)
    made.near.run()
    assert made.ann.accepted == 0
    made.begin()
    made.run()
    assert made.ann.accepted == 1


def test_a_put_that_waits_for_a_peer_is_answered_when_its_queue_is_deleted() -> None:
    made = crossing()
    made.cut()
    made.forwarder.close()
    made.near.transmission.is_there = lambda peer: peer == "far"
    made.ann.put("jobs@far", 1)
    made.near.run()
    assert made.ann.accepted == 0
    made.ann.ask("queue.delete", queue=JOBS)
    assert made.ann.accepted == 1


def test_what_is_stored_of_a_transmission_queue_goes_with_it() -> None:
    made = crossing()
    made.outgoing.begin_sweep()
    made.near.run()
    ((key, record),) = TRANSMISSIONS.known(made.near.state).items()
    assert record.sweep == made.outgoing.sweep > 0
    assert "properties" not in made.ann.describe(JOBS)
    made.ann.ask("queue.delete", queue=JOBS)
    assert TRANSMISSIONS.known(made.near.state) == {}
    made.near.store.commit([TRANSMISSIONS.set(key, record)])  # it was deleted while nobody forwarded anything
    again = made.near.restart()
    again.run()
    assert TRANSMISSIONS.known(again.state) == {}


def test_a_failed_commit_leaves_nobody_waiting() -> None:
    made = crossing()
    made.ann.put("jobs@far", 1)
    made.near.tick()
    made.near.fail()
    assert made.outgoing.waiting == {}
    made.ann.come()
    assert made.ann.welcome.counter == 0


def test_a_transmission_queue_is_begun_when_there_is_something_in_it() -> None:
    made = crossing()
    made.forwarder.close()
    begun: list[str] = []
    made.near.transmission.begin = lambda outgoing: begun.append(outgoing.queue.name)
    made.near.run()
    assert begun == []
    made.ann.put(JOBS, 1)
    made.near.tick()
    assert begun == [JOBS]


def test_what_was_kept_is_begun_after_a_restart() -> None:
    made = crossing()
    made.is_cut = True
    made.cut()
    made.ann.put("jobs@far", 1)
    made.near.run()
    after = made.near.restart()
    assert [one.status()["waiting"] for one in after.transmission] == [1]


def test_a_transmission_queue_may_be_made_by_hand_with_a_limit() -> None:
    near = site(b"n")
    ann = Client(near, "ann")
    ann.create("to:jobs@far", max_messages=1, expiry=True)
    lead(near)
    ann.put("jobs@far", 1, 2)
    near.run()
    assert ann.refusals == [(2, 2, "queue-full")]


def test_one_that_does_not_keep_the_order_is_not_forwarded() -> None:
    near = site(b"n")
    ann = Client(near, "ann")
    ann.create("to:jobs@far", priorities=True)
    lead(near)
    ann.put("jobs@far", 1)
    near.run()
    assert ann.refusals == [(1, 1, "queue")]
    with pytest.raises(QueueError, match="order of arrival"):
        near.transmission.outgoing("far", "jobs")


def test_a_transmission_queue_that_is_made_anew_has_a_stream_of_its_own() -> None:
    made = crossing()
    before = made.outgoing
    made.ann.ask("queue.delete", queue=JOBS)
    made.near.queues.create(Description(name=JOBS))
    assert made.outgoing is not before
    assert made.outgoing.queue.key != before.queue.key
    assert made.forwarder.is_closed


def test_requests_and_answers_stay_at_the_node_that_has_the_inbox() -> None:
    near = site(b"n")
    near.transmission.bind("")
    near.run()
    ann = Client(near, "ann")
    near.broker.announce(job(1, reply_to="inbox.x.1", correlation_id="1"))
    near.broker.announce(job(2, subject="inbox.x.1", correlation_id="1"))
    near.broker.announce(job(3, reply_to="answers", note="inbox.x.1"))
    near.run()
    assert numbers(ann.read("to:@upstream")) == [3]


def test_publications_that_match_wait_for_upstream() -> None:
    near = site(b"n")
    outgoing = near.transmission.bind("n > 1")
    near.run()
    ann = Client(near, "ann")
    for n in (1, 2, 3):
        near.broker.announce(job(n))
    near.run()
    assert numbers(ann.read("to:@upstream")) == [2, 3]
    near.transmission.bind("n > 2")
    near.broker.announce(job(2))
    near.run()
    assert outgoing.queue.size == 2
    near.transmission.unbind()
    near.broker.announce(job(9))
    near.run()
    assert outgoing.queue.size == 2
    assert "bind" not in ann.describe("to:@upstream")


def test_refusals_keep_their_code_and_details() -> None:
    made = crossing(max_messages=1)
    made.ann.put("jobs@far", 1, 2)
    made.run()
    (refusal,) = made.ann.peer.got(Refusal)
    assert refusal.failure.details == {"queue": "jobs", "problem": "it holds 1 of at most 1 messages"}
