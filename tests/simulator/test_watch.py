"""Those who check must find what they are there to find."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidings.event import Event, Header, Origin
from tidings.event.wire import encode_events
from tidings.protocol.broker import Broker
from tidings.protocol.frames import encode
from tidings.protocol.messages import Accepted, Deliver, Welcome
from tidings.protocol.session import Session
from tidings.protocol.subscriber import Wanted
from tidings.simulator.account import EventIdentity, StormAccount
from tidings.simulator.watch import DiskWatch
from tidings.store.interface import Append, Counter, CountProducer, StoredBatch, StoreState

EVENT = Event.unchecked(5, "t", 0, {"n": 5}, Header(delivery="reliable"))
IDENTITY: EventIdentity = ("sys", 1, 5)
APPEND = Append(StoredBatch(5, 2, "sys", 1, None, 0, False, b""))
COUNT = CountProducer(Counter("sys", 1, 5, 0))


def watched() -> tuple[DiskWatch, Session]:
    """A watch that knows of one reliable event, numbered 5."""
    watch = DiskWatch()
    watch.publishing("sys", 1, 5)
    session = Broker(StoreState("node", 1, 0, [], [])).connect(0.0)
    session.origin = Origin("sys", 1)
    return watch, session


@pytest.mark.parametrize("promise", [Accepted(5), Accepted(9), Welcome(1, "node", 1, "s", 5, 0)])
def test_an_acceptance_before_the_disk_has_it_is_found(promise: Accepted | Welcome) -> None:
    watch, session = watched()
    with pytest.raises(AssertionError, match="5 is promised, 0 is safe"):
        watch.leaving(session, [encode(promise)])
    watch.synced([[COUNT]])
    watch.leaving(session, [encode(promise)])


def test_an_acceptance_of_transient_events_needs_no_disk() -> None:
    watch, session = watched()
    watch.leaving(session, [encode(Accepted(4))])


def test_a_delivery_before_the_disk_has_it_is_found() -> None:
    watch, session = watched()
    stored = encode(
        Deliver(1, "x", positions=(6).to_bytes(8, "big")), encode_events([replace(EVENT, header=None)])
    )
    with pytest.raises(AssertionError, match="position 6"):
        watch.leaving(session, [stored])
    watch.synced([[APPEND]])
    watch.leaving(session, [stored])


def test_a_live_delivery_before_the_disk_has_its_counter_is_found() -> None:
    watch, session = watched()
    live = encode(Deliver(1, "sys", 1), encode_events([EVENT]))
    with pytest.raises(AssertionError, match="5 is promised"):
        watch.leaving(session, [live])


def test_a_start_with_less_than_was_safe_is_found() -> None:
    watch, _ = watched()
    watch.synced([[APPEND, COUNT]])
    with pytest.raises(AssertionError, match="stored events were lost"):
        watch.started(StoreState("node", 2, 5, [], [Counter("sys", 1, 5, 0)]))
    with pytest.raises(AssertionError, match="a counter was lost"):
        watch.started(StoreState("node", 2, 6, [], [Counter("sys", 1, 4, 0)]))
    watch.started(StoreState("node", 2, 7, [], [Counter("sys", 1, 5, 0)]))


def account(wanted: Wanted | None = None) -> StormAccount:
    made = StormAccount()
    made.read_by("bob", wanted or Wanted("n > 0"), frozenset(("reliable",)))
    for counter in range(1, 7):
        made.published(("sys", 1, counter), replace(EVENT, counter=counter))
    return made


def test_what_was_promised_and_did_not_arrive_is_missing() -> None:
    made = account()
    made.accepted(IDENTITY)
    assert made.missing() == [("bob", IDENTITY)]
    made.delivered("bob", IDENTITY, EVENT, False)
    assert made.missing() == []


def test_what_comes_twice_is_found_unless_it_is_marked_in_another_life() -> None:
    made = account()
    made.delivered("bob", IDENTITY, EVENT, False)
    made.begin("bob")
    with pytest.raises(AssertionError, match="twice"):
        made.delivered("bob", IDENTITY, EVENT, False)
    made.delivered("bob", IDENTITY, EVENT, True)
    with pytest.raises(AssertionError, match="after 5"):
        made.delivered("bob", IDENTITY, EVENT, True)


def test_who_asks_for_the_past_again_gets_it_again() -> None:
    made = account(Wanted(since=1))
    made.delivered("bob", IDENTITY, EVENT, False)
    made.begin("bob")
    made.delivered("bob", IDENTITY, EVENT, False)


def test_what_is_out_of_order_changed_unwanted_or_made_up_is_found() -> None:
    made = account(Wanted("n = 5"))
    made.delivered("bob", IDENTITY, EVENT, False)
    with pytest.raises(AssertionError, match="after 5"):
        made.delivered("bob", ("sys", 1, 4), EVENT, False)
    with pytest.raises(AssertionError, match="changed"):
        made.delivered("bob", ("sys", 1, 6), replace(EVENT, values={"n": 6}), False)
    with pytest.raises(AssertionError, match="nobody published"):
        made.delivered("bob", ("sys", 1, 99), EVENT, False)
    made.published(("sys", 1, 7), replace(EVENT, values={"n": 7}))
    with pytest.raises(AssertionError, match="does not want"):
        made.delivered("bob", ("sys", 1, 7), replace(EVENT, values={"n": 7}), False)
