"""The blocking client is what the async one says: each class, method, type and default, and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from itertools import islice
from typing import Any, get_type_hints

import pytest

import tidings
from scripts import blocking_client
from tests.effort import ANSWER_S
from tidings import Event
from tidings.client import blocking, opening
from tidings.client.advertisements import Interest, Offers
from tidings.client.bus import Bus
from tidings.client.channels import Channel
from tidings.client.federated import FederatedSpace, FederatedWatch
from tidings.client.listener import Listener
from tidings.client.log import Log, Sink
from tidings.client.message import Message, Take
from tidings.client.queue import Queue
from tidings.client.space import Lease, Space, Watch
from tidings.client.subscription import SubscribeOptions, Subscription
from tidings.client.transaction import Transaction
from tidings.client.typed import TypedSubscription
from tidings.client.worker import Messages

CLASSES = [
    Bus,
    Channel,
    FederatedSpace,
    FederatedWatch,
    Interest,
    Lease,
    Listener,
    Log,
    Message,
    Messages,
    Offers,
    Queue,
    Sink,
    Space,
    Subscription,
    Take,
    Transaction,
    TypedSubscription,
    Watch,
]


def test_the_file_is_what_the_script_writes() -> None:
    written = blocking_client.TARGET.read_text()
    assert written == blocking_client.generated(), "run make generated"


def public(kind: type) -> dict[str, Any]:
    internal = blocking_client.INTERNAL.get(kind.__name__, set())
    names = {name for name in dir(kind) if not name.startswith("_")} - internal
    return {blocking_client.OTHER_NAMES.get(name, name): getattr(kind, name) for name in names}


METHODS = [
    pytest.param(kind, name, id=f"{kind.__name__}.{name}")
    for kind in CLASSES
    for name, member in sorted(public(kind).items())
    if inspect.isfunction(member)
]


def test_every_class_that_an_application_meets_is_there() -> None:
    here = blocking.__name__
    made = {name for name, kind in vars(blocking).items() if getattr(kind, "__module__", "") == here}
    assert made == {kind.__name__ for kind in CLASSES} | {"connect", "open"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_has_every_public_name_of_its_async_one(kind: type) -> None:
    assert public(kind).keys() <= public(getattr(blocking, kind.__name__)).keys()


def blocking_text(annotation: object) -> str:
    """An annotation as it must stand in the blocking client."""
    text = re.sub(r"\bTransactionCore\b", "Transaction", str(annotation)).replace(
        "AsyncIterator[", "Iterator["
    )
    text = re.sub(r"\bStop\b", "threading.Event", text)
    text = re.sub(r"\bServeHandler\b", "Callable[[Event], Event | Typed | Mapping[str, object] | None]", text)
    text = re.sub(r"\bWorkHandler\b", "Callable[[Message], object]", text)
    text = re.sub(r"\bOnError\b", "Callable[[Event, Exception], None]", text)
    return re.sub(r"\bCallback\b", "Callable[[Event], None]", text)


def assert_same_signature(made: Callable[..., Any], source: Callable[..., Any]) -> None:
    one, other = inspect.signature(made), inspect.signature(source)
    assert [(each.name, each.kind, each.default) for each in one.parameters.values()] == [
        (each.name, each.kind, each.default) for each in other.parameters.values()
    ]
    assert [each.annotation for each in one.parameters.values()] == [
        each.annotation if each.annotation is each.empty else blocking_text(each.annotation)
        for each in other.parameters.values()
    ]
    assert one.return_annotation == blocking_text(other.return_annotation)


@pytest.mark.parametrize(("kind", "name"), METHODS)
def test_a_method_has_the_signature_of_its_async_one(kind: type, name: str) -> None:
    made = getattr(getattr(blocking, kind.__name__), name)
    assert not inspect.iscoroutinefunction(made)
    assert_same_signature(made, public(kind)[name])
    assert made.__doc__


@pytest.mark.parametrize("name", ["connect", "open"])
def test_a_bus_is_had_by_the_same_arguments(name: str) -> None:
    assert_same_signature(getattr(blocking, name), getattr(opening, name))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_is_entered_or_iterated_over_with_await_is_so_without(kind: type) -> None:
    made = getattr(blocking, kind.__name__)
    assert hasattr(made, "__enter__") == hasattr(made, "__exit__") == hasattr(kind, "__aenter__")
    assert hasattr(made, "__iter__") == hasattr(made, "__next__") == hasattr(kind, "__anext__")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_nothing_speaks_of_awaiting(kind: type) -> None:
    made = getattr(blocking, kind.__name__)
    said = [made.__doc__ or "", *(member.__doc__ or "" for member in public(made).values())]
    assert not [text for text in said if re.search(r"async|await|coroutine|See the module", text)]


def test_a_listener_takes_the_options_of_a_subscription() -> None:
    options = inspect.signature(Bus.subscribe).parameters.values()
    named = {each.name for each in options if each.kind is each.KEYWORD_ONLY}
    assert named - {"where"} == get_type_hints(SubscribeOptions).keys()  # which goes with a class of events


@pytest.mark.parametrize("name", blocking_client.INTERNAL)
def test_what_is_left_out_is_there_to_be_left_out(name: str) -> None:
    kind = next(each for each in CLASSES if each.__name__ == name)
    source = "".join(inspect.getsource(base) for base in kind.__mro__[:-1])
    for internal in blocking_client.INTERNAL[name]:
        assert hasattr(kind, internal) or f"self.{internal} = " in source


# -- what was missing by hand


def test_calls_have_a_time_limit() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs", timeout_s=ANSWER_S)
        assert queue.describe(timeout_s=ANSWER_S).name == "jobs"
        queue.put("job", n=1, timeout_s=ANSWER_S)
        assert bus.create_alias("work", "jobs", timeout_s=ANSWER_S).purge(timeout_s=ANSWER_S) == 1
        assert bus.replay_dead(timeout_s=ANSWER_S) == 0
        assert len(bus.lookup("jobs", timeout_s=ANSWER_S)) == 1
        bus.delete_queue("jobs", timeout_s=ANSWER_S)


def test_a_transaction_reads_all_that_is_put_in_it() -> None:
    with tidings.blocking.open() as bus, bus.transaction() as tx:
        queue = bus.create_queue("jobs")
        queue.put("job", n=1, transaction=tx)
        assert [each["n"] for each in queue.read_all(transaction=tx)] == [1]
        assert queue.read_all() == []


def test_events_are_taken_as_many_as_there_are() -> None:
    with tidings.blocking.open() as bus, bus.subscribe() as events:
        bus.publish_all([Event("t", n=n) for n in range(3)])
        taken = events.take()
        while len(taken) < 3:
            taken += events.take()
        assert [event["n"] for event in taken] == [0, 1, 2]
        assert not events.is_stored
        events.leave()
        assert list(events) == []


def test_a_loop_that_was_left_goes_on_where_it_was() -> None:
    with tidings.blocking.open() as bus, bus.subscribe() as events:
        bus.publish_all([Event("t", n=n) for n in range(3)])
        for event in events:
            assert event["n"] == 0
            break
        assert next(events)["n"] == 1
        assert next(iter(events))["n"] == 2


def test_advertisements_are_watched() -> None:
    with tidings.blocking.open() as bus, bus.advertise("type = 't'"):
        watched = bus.watch_advertisements()
        assert [offer.text for offer in next(watched)] == ["type = 't'"]
        assert iter(watched) is watched


def test_entries_are_watched_in_a_loop_of_their_own() -> None:
    with tidings.blocking.open() as bus:
        space = bus.space("board")
        with space.watch(("a", int)) as entries:
            for n in range(3):
                space.write(("a", n))
            assert list(islice(entries, 3)) == [("a", n) for n in range(3)]
            assert entries.copies.dropped == 0
            space.write(("a", 3))
            assert next(iter(entries.copies))["int_1"] == 3


def test_a_message_is_read_as_its_event() -> None:
    with tidings.blocking.open() as bus:
        queue = bus.create_queue("jobs")
        queue.put("job", n=1)
        message = queue.get(timeout_s=ANSWER_S)
        assert (message["n"], "n" in message, message.type, message.event["n"]) == (1, True, "job", 1)
        assert message.outcome is not None
        for name in ("nothing", "_holder"):
            with pytest.raises(AttributeError, match=name):
                getattr(message, name)
