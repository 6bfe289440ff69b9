"""Items that are withdrawn before they are sent, and events that are sent again under their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event
from tidings.ids import StoredIds
from tidings.protocol import unsure
from tidings.protocol.frames import FrameReader
from tidings.protocol.messages import DONE, GIVE_BACK, HANDLE, Commit, Settle
from tidings.protocol.publications import Publications
from tidings.protocol.unsure import UnsureEvents

WINDOW = 1 << 30
NEW_YEAR = "2026-01-01T00:00:00Z"

items = st.sampled_from(
    ["reliable", "transient", "put a", "put b", "in transaction", "done", "back", "commit"]
)
steps = st.lists(
    st.one_of(items, st.just("send"), st.lists(st.integers(1, 30), max_size=6).map(tuple)), max_size=40
)


def number(publications: Publications, item: str) -> int:
    """Number an item of this kind."""
    match item.split():
        case ["put", queue]:
            return publications.put(queue, Event("job", body=b"x" * 20))
        case ["in", "transaction"]:
            return publications.put("a", Event("job"), 7)
        case ["done"] | ["back"]:
            return publications.settle(publications.last, 1, DONE if item == "done" else GIVE_BACK)
        case ["commit"]:
            return publications.commit(7)
    return publications.publish(Event("t", delivery=item))


def counters(frames: list[bytes]) -> Iterator[int]:
    """The numbers in frames, as a node reads them."""
    for message, events in FrameReader().feed(b"".join(frames)):
        if isinstance(message, Settle):
            yield from range(message.first, message.first + len(message.handles) // HANDLE.size)
        elif isinstance(message, Commit):
            yield message.counter
        else:
            rows: list[Any] = msgspec.msgpack.decode(events)
            yield from (row[0] for row in rows)


@given(steps)
def test_what_was_not_sent_is_withdrawn_and_all_else_is_sent_once_in_order(
    steps: list[str | tuple[int, ...]],
) -> None:
    publications = Publications(StoredIds("one", 1))
    publications.resume(0, WINDOW, True)
    numbered: list[int] = []
    sent: list[int] = []
    withdrawn: set[int] = set()
    for step in steps:
        if isinstance(step, tuple):
            gone = publications.withdraw(step)
            assert gone == set(step) & set(numbered) - set(sent) - withdrawn
            withdrawn |= gone
        elif step == "send":
            sent += counters(publications.take())
        else:
            numbered.append(number(publications, step))
    sent += counters(publications.take())
    assert sent == [one for one in numbered if one not in withdrawn]
    publications.accept(max(sent, default=0))
    assert (publications.size, publications.is_empty) == (0, True)
    assert publications.accepted == publications.last


def test_a_commit_leaves_the_buffer_when_it_is_withdrawn() -> None:
    publications = Publications(StoredIds("one", 1))
    counter = publications.commit(1)
    assert publications.withdraw([counter]) == {counter}
    assert publications.is_empty


def test_an_event_that_is_sent_again_has_the_number_that_it_had_there() -> None:
    known, event, alike = UnsureEvents(), Event("t", time=NEW_YEAR), Event("t", time=NEW_YEAR)
    assert event == alike
    known.add(event, "a", 0, 5)
    known.add(event, "a", 0, 6)
    assert known.take(alike, "a", 0) == known.take(event, "b", 0) == known.take(event, "a", 1) == 0
    assert [known.take(event, "a", 0) for _ in range(3)] == [5, 6, 0]
    assert not known.known


def test_the_oldest_events_are_forgotten_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsure, "UNSURE_MAX", 3)
    monkeypatch.setattr(unsure, "UNSURE_SIZE_MAX", 100)
    known, events = UnsureEvents(), [Event("t", body=bytes(10)) for _ in range(5)]
    for counter, event in enumerate(events, 1):
        known.add(event, "a", 0, counter)
    assert [known.take(event, "a", 0) for event in events] == [0, 0, 3, 4, 5]
    large = [Event("t", body=bytes(60)) for _ in range(2)]
    for counter, event in enumerate(large, 1):
        known.add(event, "a", 0, counter)
    assert [known.take(event, "a", 0) for event in large] == [0, 2]
