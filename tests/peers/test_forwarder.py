"""What is put for a queue elsewhere arrives there once, in order, whatever is cut or killed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from peers.crossing import JOBS, Crossing, Wire
from queues.rig import DONE, job, numbers, pass_time

from tidings.ids import Origin
from tidings.peers import forwarded, forwarder, outbound_stream
from tidings.peers.registry import ForwardOrder


def crossing(order: ForwardOrder = "oldest", **queue: Any) -> Crossing:
    """Two nodes, of which the far one has the queue `jobs`."""
    made = Crossing(order)
    made.bob.create("jobs", **queue)
    return made


def arrived(made: Crossing) -> list[int]:
    """What is in the queue at the far node, in its order."""
    return numbers(made.bob.read("jobs", 10_000))


def test_a_message_goes_to_the_other_node_and_is_here_no_longer() -> None:
    made = crossing()
    made.ann.put(JOBS, 1, 2, 3)
    made.run()
    assert arrived(made) == [1, 2, 3]
    assert made.outgoing.queue.size == 0
    assert list(made.near.store.messages()) == []


def test_a_message_keeps_its_id_its_time_and_its_source() -> None:
    made = crossing()
    made.ann.put(JOBS, job(1, priority=7))
    made.run()
    (hand,) = made.bob.get("jobs")
    assert (hand.system, hand.epoch, hand.source) == ("ann", 1, "ann")
    assert hand.event.counter == 1
    assert hand.event.priority == 7


def test_messages_of_several_senders_stay_in_their_order() -> None:
    made = crossing()
    cid = type(made.ann)(made.near, "cid", "cid")
    for n in range(10):
        (made.ann if n % 3 else cid).put(JOBS, n)
    made.run()
    hands = made.bob.read("jobs")
    assert numbers(hands) == list(range(10))
    assert [hand.source for hand in hands] == ["ann" if n % 3 else "cid" for n in range(10)]


def test_nothing_is_sent_before_it_is_on_disk_here() -> None:
    made = crossing()
    made.run()
    made.ann.put(JOBS, 1)
    made.near.tick()
    assert not made.carry()
    made.near.sync()
    made.run()
    assert arrived(made) == [1]


def test_nothing_is_settled_here_before_it_is_on_disk_there() -> None:
    made = crossing()
    made.ann.put(JOBS, 1)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.tick()
    assert made.outgoing.queue.size == 1
    made.run()
    assert made.outgoing.queue.size == 0


def test_what_the_other_node_has_had_is_not_sent_again_after_a_cut() -> None:
    made = crossing()
    made.ann.put(JOBS, 1, 2)
    made.near.run()
    made.carry()
    made.far.run()
    made.carry()  # the welcome comes, the messages go
    made.send()
    made.far.run()  # they are there, and nobody has said so here
    made.cut()
    assert arrived(made) == [1, 2]
    made.ann.put(JOBS, 3)
    made.run()
    assert arrived(made) == [1, 2, 3]


def test_the_far_node_takes_no_more_from_a_connection_whose_other_end_has_come_again() -> None:
    made = crossing("newest")
    made.run()
    made.ann.put(JOBS, 1, 2)
    made.near.run()
    late = made.wire
    assert late is not None
    under_way = late.output()
    made.crash_near()
    made.run()
    late.session.receive(under_way, made.far.now)
    made.far.run()
    assert sorted(arrived(made)) == [1, 2]
    assert late.session.is_closed


def test_numbers_are_never_used_twice_though_the_clock_is_set_back() -> None:
    made = crossing()
    made.near.now += 10
    made.ann.put(JOBS, 1)
    made.run()
    made.crash_near()
    made.near.now -= 10
    made.ann.come(made.near)
    made.ann.put(JOBS, 2)
    made.run()
    assert arrived(made) == [1, 2]


def test_what_lives_for_a_time_goes_on_with_the_rest_of_it() -> None:
    made = crossing(expiry=True)
    made.is_cut = True
    made.ann.put(JOBS, job(1, ttl_s=10.0), job(2, ttl_s=3.0), job(3))
    made.near.run()
    pass_time(made.near, 4)
    made.is_cut = False
    made.run()
    first, second = made.bob.read("jobs")
    assert (first.n, first.event.ttl_s) == (1, pytest.approx(6.0, abs=0.01))
    assert (second.n, second.event.ttl_s) == (3, None)


@pytest.mark.parametrize("jump_s", [-3_600.0, 365 * 86_400.0])
def test_what_lives_for_a_time_goes_on_with_the_rest_of_it_though_the_clock_was_set(jump_s: float) -> None:
    made = crossing(expiry=True)
    made.is_cut = True
    made.ann.put(JOBS, job(1, ttl_s=10.0))
    made.near.run()
    made.near.broker.shift = jump_s
    pass_time(made.near, 4)
    made.is_cut = False
    made.run()
    (only,) = made.bob.read("jobs")
    assert only.event.ttl_s == pytest.approx(6.0, abs=0.01)


def test_a_body_in_parts_arrives_whole() -> None:
    made = crossing()
    made.ann.put(JOBS, 1)
    made.ann.begin(1)
    made.ann.put(JOBS, job(0, body=b"two"), job(0, body=b"three"), transaction=1, is_part=True)
    made.ann.put(JOBS, job(2, body=b"one"), transaction=1)
    made.ann.commit(1)
    made.ann.put(JOBS, 3)
    made.run()
    before, hand, after = made.bob.get("jobs", 5)
    assert (before.parts, hand.parts, after.parts) == (0, 2, 0)
    asked = {"queue": "jobs", "number": hand.number, "delivery": hand.delivery}
    parts = [made.bob.ask("part", index=index, **asked) for index in range(2)]
    assert [hand.event.body, *parts] == [b"one", b"two", b"three"]


def test_parts_that_are_cut_off_from_their_event_are_dropped() -> None:
    made = crossing()
    made.run()
    (sender,), wire = made.forwarder.senders, made.wire
    assert wire is not None
    sender.forward("jobs", made.outgoing.broker._own, [5], [b""], [None], [b"a" * 100])  # type: ignore[list-item]
    sender.stream.cut()  # it stands for no message of the queue
    frames = wire.connection.output()
    wire.session.receive(frames[0], made.far.now)
    assert made.far.queues.size == 100
    made.cut()
    assert made.far.queues.size == 0


def test_what_the_other_node_will_not_have_is_a_dead_letter_with_its_reason() -> None:
    made = crossing(max_messages=1)
    made.ann.put(JOBS, 1, 2)
    made.run()
    made.ann.put(JOBS, 3)
    made.run()
    assert arrived(made) == [1]
    letters = made.ann.read("tidings.dead")
    assert numbers(letters) == [2, 3]
    assert "1 of at most 1 messages" in letters[0].event["dead.reason"]
    assert letters[0].event["dead.queue"] == JOBS


def test_a_refusal_is_told_again_after_a_crash_here() -> None:
    made = crossing(max_messages=1)
    made.ann.put(JOBS, 1, 2)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.run()
    assert arrived(made) == [1]
    made.crash_near()
    made.ann.come(made.near)
    made.run()
    assert numbers(made.ann.read("tidings.dead")) == [2]


def test_a_refusal_is_remembered_there_until_what_came_of_it_is_on_disk_here() -> None:
    made = crossing(max_messages=1)
    made.ann.put(JOBS, 1, 2)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.run()
    made.carry()
    made.near.tick()  # the dead letter is made, and not on disk
    made.ann.put(JOBS, 3)
    made.crash_near()
    made.ann.come(made.near)
    made.run()
    assert 2 in numbers(made.ann.read("tidings.dead"))


def test_what_is_sent_next_says_nothing_of_a_dead_letter_that_is_not_on_disk_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbound_stream, "UNDER_WAY_MAX", 2)
    monkeypatch.setattr(forwarder, "RUN_COUNT", 2)
    made = crossing(max_messages=1)
    made.ann.put(JOBS, 1, 2, 3)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.run()
    assert arrived(made) == [1]
    made.hear()  # of the refusal of 2, whereupon 3 is sent
    assert made.send()
    made.far.run()
    made.crash_near()
    made.ann.come(made.near)
    made.run()
    assert numbers(made.ann.read("tidings.dead")) == [2, 3]


def test_a_refusal_is_remembered_there_when_what_came_of_it_could_not_be_stored_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbound_stream, "UNDER_WAY_MAX", 2)
    monkeypatch.setattr(forwarder, "RUN_COUNT", 2)
    made = crossing(max_messages=1)
    made.ann.put(JOBS, 1, 2, 3, 4, 5)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.run()
    assert arrived(made) == [1]
    made.hear()  # of the refusal of 2, whereupon 3 and 4 are sent
    made.send()
    made.far.run()
    made.near.tick()
    made.near.fail()
    made.hear()
    assert made.send()  # of 5
    made.far.run()
    made.crash_near()
    made.ann.come(made.near)
    made.run()
    assert numbers(made.ann.read("tidings.dead")) == [2, 3, 4, 5]


def test_a_message_may_be_cut_off_on_its_way_more_often_than_it_may_be_delivered() -> None:
    made = crossing()
    queue = made.outgoing.queue
    queue.description = replace(queue.description, deliveries_max=1)
    made.ann.put(JOBS, 1)
    made.near.run()
    for _ in range(3):
        made.carry()
        made.far.run()
        made.carry()
        assert queue.held
        made.cut()
    made.run()
    assert arrived(made) == [1]


def test_a_queue_that_is_not_there_is_named_in_the_dead_letter() -> None:
    made = Crossing()
    made.ann.put(JOBS, 1, 2)
    made.run()
    letters = made.ann.read("tidings.dead")
    assert numbers(letters) == [1, 2]
    assert letters[0].event["dead.reason"] == "queue 'jobs': there is no such queue"


def test_no_more_is_under_way_than_the_other_node_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded, "WINDOW", 1_000)
    made = crossing()
    for n in range(100):
        made.ann.put(JOBS, job(n, body=bytes(100)))
    made.near.run()
    made.carry()
    made.far.run()
    made.hear()
    assert made.wire is not None
    assert 0 < len(made.wire.output()) < 1_500
    made.cut()
    made.run()
    assert arrived(made) == list(range(100))


def test_a_transmission_queue_can_be_read_but_nothing_is_taken_from_it() -> None:
    made = crossing()
    made.is_cut = True
    made.ann.put(JOBS, 1)
    made.near.run()
    assert numbers(made.ann.read(JOBS)) == [1]
    assert made.ann.fails("get", queue=JOBS).code == "queue"


def test_nobody_settles_what_was_under_way_when_the_node_was_killed() -> None:
    made = crossing()
    made.ann.put(JOBS, 1)
    made.near.run()
    for _ in range(2):
        made.carry()
        made.far.run()
    (number,) = made.outgoing.queue.held
    made.near.run()
    made.crash_near()
    made.ann.come(made.near)
    (hand,) = made.ann.read(JOBS)
    assert hand.number == number
    counter = made.ann.settle(DONE, hand._replace(delivery=1))
    made.near.run()
    assert made.ann.refusals == [(counter, counter, "not-yours")]
    made.cut()
    made.run()
    assert arrived(made) == [1]


def test_a_transmission_queue_that_is_deleted_is_forwarded_no_longer() -> None:
    made = crossing()
    made.is_cut = True
    made.ann.put(JOBS, 1)
    made.near.run()
    made.ann.ask("queue.delete", queue=JOBS)
    assert made.forwarder.is_closed
    assert list(made.near.transmission) == []


def test_a_failed_commit_here_sends_nothing_that_was_not_stored() -> None:
    made = crossing()
    made.run()
    made.ann.put(JOBS, 1)
    made.near.tick()
    made.near.fail()
    made.run()
    assert arrived(made) == []
    made.ann.come()
    made.ann.put_again(JOBS, 1, job(1))
    made.run()
    assert arrived(made) == [1]


def test_a_failed_commit_there_is_made_up_for() -> None:
    made = crossing()
    made.run()
    made.ann.put(JOBS, 1, 2)
    made.near.run()
    made.carry()
    made.far.tick()
    made.far.fail()
    made.run()
    assert arrived(made) == [1, 2]
    assert made.outgoing.queue.size == 0


def test_what_is_handed_on_does_not_count_for_its_sender_at_the_other_node() -> None:
    made = crossing()
    made.ann.put(JOBS, 1, 2, 3)
    made.run()
    made.crash_far()
    made.bob.ask("queue.describe", queue="jobs")
    ann = type(made.ann)(made.far, "ann")  # the same client, at the other node too
    assert ann.welcome.counter == 0
    ann.put("jobs", 4)
    made.far.run()
    assert arrived(made) == [1, 2, 3, 4]


# Newest first


def test_the_newest_go_first_after_an_outage_and_what_comes_goes_at_once() -> None:
    made = crossing("newest")
    made.is_cut = True
    for n in range(5):
        made.ann.put(JOBS, n)
    made.near.run()
    made.is_cut = False
    made.run()
    assert arrived(made) == [4, 3, 2, 1, 0]
    made.ann.put(JOBS, 5, 6)
    made.run()
    assert arrived(made)[5:] == [5, 6]
    assert made.wire is not None
    assert len(made.wire.session.streams) == 1


def test_nothing_is_swept_before_it_is_on_disk_from_where_on() -> None:
    made = crossing("newest")
    made.is_cut = True
    made.ann.put(JOBS, 1, 2, 3)
    made.near.run()
    made.is_cut = False
    for _ in range(6):
        made.carry()
        made.far.run()
    assert arrived(made) == []
    made.crash_near()
    made.run()
    assert arrived(made) == [3, 2, 1]


def test_what_comes_does_not_wait_for_what_has_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarded, "WINDOW", 1_000)
    made = crossing("newest")
    made.is_cut = True
    for n in range(100):
        made.ann.put(JOBS, job(n, body=bytes(100)))
    made.near.run()
    made.is_cut = False
    while len(arrived(made)) < 20:
        made.near.run()
        made.carry()
        made.far.run()
    made.ann.put(JOBS, 1_000)
    made.run()
    order = arrived(made)
    assert sorted(order) == [*range(100), 1_000]
    assert order.index(1_000) < 60
    assert [n for n in order if n < 1_000] == list(range(99, -1, -1))


def test_a_sweep_that_was_cut_goes_on_with_what_has_come_since_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarded, "WINDOW", 1_000)
    made = crossing("newest")
    made.is_cut = True
    for n in range(50):
        made.ann.put(JOBS, job(n, body=bytes(100)))
    made.near.run()
    made.is_cut = False
    while len(arrived(made)) < 10:
        made.near.run()
        made.carry()
        made.far.run()
    made.is_cut = True
    made.cut()
    made.ann.put(JOBS, 100, 101)
    made.near.run()
    had = len(arrived(made))
    made.is_cut = False
    made.run()
    order = arrived(made)
    assert sorted(order) == [*range(50), 100, 101]
    assert order[had : had + 2] == [101, 100]


# Whatever happens

STEPS = ("put", "send", "hear", "connect", "near tick", "near sync", "far tick", "far sync")
TROUBLE = ("cut", "near crash", "far crash", "near fail", "far fail", "late")
ACTIONS = st.lists(st.one_of(st.sampled_from(STEPS), st.just("cross"), st.sampled_from(TROUBLE)), max_size=60)


class World:
    """A crossing, a client that sends again what was not accepted, and what it has put."""

    def __init__(self, order: ForwardOrder) -> None:
        self.made = crossing(order)
        self.put = 0
        self.late: list[tuple[Wire, bytes]] = []  # what is under way from a node that was killed

    def do(self, action: str) -> None:
        made = self.made
        match action:
            case "put":
                self.put += 1
                made.ann.put(JOBS, self.put)
            case "near tick":
                made.near.tick()
            case "near sync":
                made.near.sync()
            case "far tick":
                made.far.tick()
            case "far sync":
                made.far.sync()
            case "cross":
                for step in ("connect", "send", "far tick", "far sync", "hear", "near tick", "near sync"):
                    self.do(step)
            case "send" | "hear" | "connect" | "cut":
                getattr(made, action)()
            case "near crash":
                self.late = [] if made.wire is None else [(made.wire, made.wire.output())]
                made.crash_near()
                self.come()
            case "far crash":
                made.crash_far()
                self.late = []
            case "near fail":
                made.near.tick()
                made.near.fail()
                self.come()
            case "far fail":
                made.far.tick()
                made.far.fail()
            case "late":
                for wire, data in self.late:
                    wire.session.receive(data, made.far.now)
                self.late = []

    def come(self) -> None:
        """The client comes again, with what was not accepted."""
        ann = self.made.ann
        ann.come(self.made.near)
        for counter in range(ann.welcome.counter + 1, self.put + 1):
            ann.put_again(JOBS, counter, job(counter))

    def heal(self) -> list[int]:
        """Let all arrive."""
        self.made.near.run()
        self.come()
        self.made.run()
        assert self.made.outgoing.queue.size == 0
        return arrived(self.made)


@given(actions=ACTIONS)
@settings(max_examples=often(300))
def test_every_message_arrives_once_and_in_order(actions: list[str]) -> None:
    world = World("oldest")
    for action in actions:
        world.do(action)
    assert world.heal() == list(range(1, world.put + 1))


@given(actions=ACTIONS)
@settings(max_examples=often(300))
def test_every_message_arrives_once_with_the_newest_first_too(actions: list[str]) -> None:
    world = World("newest")
    for action in actions:
        world.do(action)
    assert sorted(world.heal()) == list(range(1, world.put + 1))


def test_a_refusal_range_is_for_the_messages_that_were_refused_only() -> None:
    made = crossing(max_messages=2)
    made.ann.put(JOBS, 1)
    made.run()
    made.ann.put(JOBS, 2, 3, 4)
    made.run()
    assert arrived(made) == [1, 2]
    stream = Origin(made.near.broker.node, made.outgoing.queue.key)
    assert len(made.far.broker.ledger.refused(stream)) == 1
    assert numbers(made.ann.read("tidings.dead")) == [3, 4]


def test_after_a_restart_no_message_gets_a_number_that_a_sweep_has_had() -> None:
    world = World("newest")
    for action in ("put", "put", "cross", "cross", "cross", "put", "near crash"):
        world.do(action)  # the wall clock stands still meanwhile: it gives the same numbers again
    assert sorted(world.heal()) == [1, 2, 3]
