"""Items that are withdrawn before they are sent, and events that are sent again under their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.clients import Client, run
from protocol.rig import Rig
from tidings import Event
from tidings.ids import StoredIds
from tidings.protocol import publications as module
from tidings.protocol.frames import FrameReader
from tidings.protocol.messages import DONE, GIVE_BACK, HANDLE, Commit, Settle
from tidings.protocol.publications import Publications, UnsureEvents

WINDOW = 1 << 30
NEW_YEAR = "2026-01-01T00:00:00Z"

ITEMS = ["reliable", "transient", "put a", "put b", "in transaction", "done", "back", "commit"]

withdrawals = st.lists(st.integers(1, 30), max_size=6).map(tuple)
steps = st.lists(
    st.one_of(st.sampled_from(ITEMS), st.sampled_from(["send", "cut"]), withdrawals), max_size=40
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
@example(["reliable", "send", "cut", (1,)])
@example(["done", "done", "done", (2,)])
def test_what_was_not_sent_is_withdrawn_and_all_else_is_sent(
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
        elif step == "cut":
            publications.resume(0, WINDOW, True)
        else:
            numbered.append(number(publications, step))
    sent += counters(publications.take())
    assert sorted(set(sent)) == [one for one in numbered if one not in withdrawn]
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
    monkeypatch.setattr(module, "UNSURE_MAX", 3)
    monkeypatch.setattr(module, "UNSURE_SIZE_MAX", 100)
    known, events = UnsureEvents(), [Event("t", body=bytes(10)) for _ in range(5)]
    for counter, event in enumerate(events, 1):
        known.add(event, "a", 0, counter)
    assert [known.take(event, "a", 0) for event in events] == [0, 0, 3, 4, 5]
    large = [Event("t", body=bytes(60)) for _ in range(2)]
    for counter, event in enumerate(large, 1):
        known.add(event, "a", 0, counter)
    assert [known.take(event, "a", 0) for event in large] == [0, 2]


class Sender:
    """An application in a retry loop: it sends events, gives up on some, and sends the same ones again."""

    def __init__(self) -> None:
        self.client = Client(Rig())
        self.is_connected = True
        self._events: list[Event] = []
        self._sent: dict[int, int] = {}  # counters by the places of the events

    def do(self, step: str) -> None:
        """Do one step of a story."""
        rig = self.client.rig
        match step:
            case "new":
                self._events.append(Event("t", n=len(self._events), delivery="persistent"))
                self._send(len(self._events) - 1)
            case "give up":
                self._give_up()
            case "again":
                self.retry()
            case "cut" | "restart" if self.is_connected:
                self.client.cut()
                self.is_connected = False
                self.client.rig = rig.restart() if step == "restart" else rig
            case "connect" if not self.is_connected:
                self.client.connect(rig)
                self.is_connected = True
            case "send" | "hear" if self.is_connected:
                self.client.send() if step == "send" else self.client.hear()
            case "tick":
                rig.tick()
            case "sync":
                rig.sync()

    def _send(self, at: int) -> None:
        core, event = self.client.core, self._events[at]
        self._sent[at] = core.unsure.take(event, "", 0) or core.publish(event)

    def _give_up(self) -> None:
        """As a call does that is not answered in time."""
        core, sent = self.client.core, self._sent
        self._sent = {}
        accepted = core.publications.accepted
        for at, counter in sent.items():
            if counter <= accepted:
                self._sent[at] = counter
            elif not core.publications.withdraw([counter]):
                core.unsure.add(self._events[at], "", 0, counter)

    def retry(self) -> None:
        """Send again all events that were given up."""
        for at in range(len(self._events)):
            if at not in self._sent:
                self._send(at)

    def stored(self) -> list[int]:
        """The events that the node has in the end."""
        self.do("connect")
        self.retry()
        run(self.client)
        reader = Client(self.client.rig, "two")
        recorder = reader.subscribe(since=1)
        run(reader)
        recorder.work()
        return [event["n"] for event in recorder.taken]

    @property
    def count(self) -> int:
        return len(self._events)


STEPS = ["new", "new", "give up", "again", "cut", "restart", "connect", "send", "hear", "tick", "sync"]


@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_wherever_the_connection_is_cut_an_event_that_is_sent_again_is_stored_once(steps: list[str]) -> None:
    sender = Sender()
    run(sender.client)
    for step in steps:
        sender.do(step)
    assert sorted(sender.stored()) == list(range(sender.count))
