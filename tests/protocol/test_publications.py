"""What a client publishes: numbered, held until accepted, sent again after a cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.clients import Client, event, run
from protocol.rig import Rig
from tidings.errors import EventError
from tidings.event import Event
from tidings.event.wire import HEAD_SIZE, array_head, encode_events
from tidings.protocol.frames import PUBLISH, encode
from tidings.protocol.messages import Accepted, Welcome
from tidings.protocol.publications import EVENT_SIZE_MAX, SEND_BUFFER_MAX, plain_publish


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_events_are_held_until_they_are_accepted(rig: Rig) -> None:
    client = Client(rig)
    client.core.publish(event())
    assert not client.core.publications.is_empty
    run(client)
    assert client.core.publications.is_empty
    assert client.core.publications.size == 0
    assert client.core.publications.accepted == 1


def test_events_published_together_go_in_one_frame(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    for n in range(10):
        client.core.publish(event(n))
    assert len(client.core.output()) == 1


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_a_frame_of_events_is_the_one_that_anybody_would_encode(bodies: list[bytes]) -> None:
    events = [encode_events([Event("t", body=body)])[HEAD_SIZE:] for body in bodies]
    frame = plain_publish(events, sum(map(len, events)))
    assert frame == encode(PUBLISH, array_head(len(events)) + b"".join(events))


def test_events_of_different_reliability_go_in_frames_of_their_own(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    for delivery in ("transient", "transient", "reliable", "persistent", "transient"):
        client.core.publish(event(0, delivery))
    assert len(client.core.output()) == 3


def test_no_more_is_under_way_than_the_window(rig: Rig) -> None:
    client = Client(rig)
    client.core.receive(encode(Welcome(1, "node", 1, "s", 0, 200_000)), rig.now)
    client.core.output()
    for _ in range(8):
        client.core.publish(Event("t", body=bytes(70_000)))
    assert len(b"".join(client.core.output())) <= 200_000
    assert client.core.output() == []
    client.core.receive(encode(Accepted(1)), rig.now)
    assert len(client.core.output()) == 1


def test_an_event_larger_than_the_window_goes_alone(rig: Rig) -> None:
    client = Client(rig)
    client.core.receive(encode(Welcome(1, "node", 1, "s", 0, 1_000)), rig.now)
    client.core.output()
    client.core.publish(Event("t", body=bytes(70_000)))
    client.core.publish(event())
    assert len(client.core.output()) == 1


def test_the_send_buffer_says_when_it_is_full(rig: Rig) -> None:
    client = Client(rig)
    while not client.core.publications.is_full:
        client.core.publish(Event("t", body=bytes(1 << 20)))
    assert SEND_BUFFER_MAX <= client.core.publications.size < SEND_BUFFER_MAX + (2 << 20)
    run(client)
    assert not client.core.publications.is_full


def test_an_event_that_fits_no_frame_is_refused(rig: Rig) -> None:
    client = Client(rig)
    with pytest.raises(EventError, match="at most"):
        client.core.publish(Event("t", body=bytes(EVENT_SIZE_MAX)))
    assert client.core.publications.is_empty


def test_what_was_not_accepted_is_sent_again_and_counted_once(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = other.subscribe()
    run(client, other)
    client.core.publish(event(1))
    client.send()
    rig.tick()
    client.cut()
    client.connect(rig)
    client.core.publish(event(2))
    run(client, other)
    assert recorder.work() == [1, 2]
    assert client.core.publications.is_empty


def test_a_restarted_node_gets_again_what_is_reliable_and_nothing_transient(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    for n, delivery in enumerate(("transient", "reliable", "transient", "persistent"), 1):
        client.core.publish(event(n, delivery))
    client.core.output()
    client.core.publish(event(5))  # never sent, so it can't come twice
    client.cut()
    other = Client(restarted := rig.restart(), "two")
    recorder = other.subscribe()
    run(other)
    client.connect(restarted)
    run(client, other)
    assert recorder.work() == [2, 4, 5]


def test_nobody_waits_for_transient_events_that_a_restarted_node_does_not_get(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.publish(event(1))
    client.core.output()
    client.cut()
    client.connect(rig.restart())
    run(client)
    assert client.core.publications.is_empty
    assert client.core.publications.accepted == 1


def test_an_acceptance_that_was_lost_is_learned_from_the_welcome(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.publish(event(1, "reliable"))
    client.send()
    rig.run()
    client.cut()
    assert client.core.publications.accepted == 0
    client.connect(rig)
    run(client)
    assert client.core.publications.accepted == 1
