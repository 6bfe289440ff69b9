"""Events that a client publishes as bytes: numbered, in runs of their own, in order with the others."""

from __future__ import annotations

from msgspec.structs import replace

from tidings import Event
from tidings.event.wire import decode_events, encode_events
from tidings.ids import StoredIds
from tidings.protocol.frames import FRAME_MAX, FrameReader
from tidings.protocol.publications import Publications


def raw(first: int, count: int) -> bytes:
    return encode_events([replace(Event("raw"), counter=first + n) for n in range(count)])


def sent(publications: Publications) -> list[tuple[str, int]]:
    reader = FrameReader(FRAME_MAX)
    frames = [frame for data in publications.take() for frame in reader.feed(data)]
    return [(event.type, event.counter or 0) for _, events in frames for event in decode_events(events)]


def started() -> Publications:
    publications = Publications(StoredIds("s", 1))
    publications.resume(0, 1 << 20, True)
    return publications


def test_raw_events_are_numbered_in_order_with_others() -> None:
    publications = started()
    publications.publish(Event("one"))
    assert publications.publish_raw(3, lambda first: raw(first, 3)) == 4
    publications.publish(Event("two"))
    assert sent(publications) == [("one", 1), ("raw", 2), ("raw", 3), ("raw", 4), ("two", 5)]


def test_fewer_events_than_were_announced_leave_a_gap_and_none_leave_nothing() -> None:
    publications = started()
    assert publications.publish_raw(5, lambda first: raw(first, 2)) == 2
    assert publications.publish_raw(5, lambda first: raw(first, 0)) == 2
    publications.publish(Event("next"))
    assert sent(publications) == [("raw", 1), ("raw", 2), ("next", 11)]
    publications.accept(11)
    assert publications.is_empty
    assert publications.size == 0


def test_a_node_that_was_started_anew_gets_the_kept_ones_again() -> None:
    publications = started()
    publications.publish_raw(1, lambda first: raw(first, 1))
    publications.publish_raw(1, lambda first: raw(first, 1), is_kept=True)
    assert len(sent(publications)) == 2
    publications.resume(0, 1 << 20, False)
    assert sent(publications) == [("raw", 2)]
