"""The client's end of a connection against the node's own: two cores, and the bytes carried by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged

from protocol.clients import Client, Recorder, event, run, spoken
from protocol.rig import Rig
from tidings.errors import Disconnected, FilterError, NotAllowed, Refused, TidingsError
from tidings.ids import StoredIds
from tidings.protocol.connection import OLDER, Connection
from tidings.protocol.frames import FIRST_FRAME_MAX, FRAME_MAX, FrameReader, encode
from tidings.protocol.keepalive import SILENT_S_MAX, WELCOME_S_MAX
from tidings.protocol.messages import (
    Accepted,
    Bye,
    Failure,
    Hello,
    Ping,
    Pong,
    Publish,
    Refusal,
    Reply,
    Welcome,
)
from tidings.store.memory import SimulatedDisk


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- beginning


def test_the_first_frame_says_who_the_client_is(rig: Rig) -> None:
    assert spoken(Client(rig)) == [Hello([1], "one", 1, "ann", None)]


def test_nothing_else_is_said_before_the_welcome(rig: Rig) -> None:
    client = Client(rig)
    client.subscribe()
    client.core.publish(event())
    assert len(spoken(client)) == 1


def test_the_answers_of_a_node_may_come_byte_by_byte(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    client.core.publish(event(1))
    for _ in range(5):
        client.send()
        rig.run()
        for byte in client.to_client:
            client.core.receive(bytes([byte]), rig.now)
        client.to_client = b""
    assert recorder.work() == [1]


@pytest.mark.parametrize(
    "said", [b"\0\0\0\x01\x63", b"\xff" * 9, encode(Accepted(1)), encode(Hello([1], "x", 1))]
)
def test_what_no_node_says_ends_the_connection_and_not_the_client(rig: Rig, said: bytes) -> None:
    client = Client(rig)
    client.core.receive(said, rig.now)
    assert client.core.is_given_up
    assert client.core.failure is None


def test_a_second_welcome_ends_the_connection(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.receive(encode(Welcome(1, "node", 1, "s", 0, 1)), rig.now)
    assert client.core.is_given_up


def test_a_goodbye_follows_all_that_was_said_before_it(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.publish(event())
    client.core.close()
    assert [type(message) for message in spoken(client)] == [Publish, Bye]


def test_a_welcome_may_be_as_long_as_any_frame(rig: Rig) -> None:
    client = Client(rig)
    for n in range(1_000):
        client.core.publish(event(n))
    refused = [Refusal(n, n, Failure("not-yours", "x" * 100)) for n in range(1, 1_001)]
    welcome = encode(Welcome(1, "node", 1, "s", 1_000, 1, refused))
    assert len(welcome) > FIRST_FRAME_MAX
    client.core.session = "s"  # it was here before
    client.core.receive(welcome, rig.now)
    assert client.core.is_up
    assert len(client.core.publications.refusals(range(1, 1_001))) == 1_000


def test_a_refusal_in_a_welcome_counts_though_something_before_it_is_not_done_yet(rig: Rig) -> None:
    client = Client(rig)
    for n in range(3):
        client.core.publish(event(n, "reliable"))
    client.core.session = "s"  # it was here before
    welcome = Welcome(1, "node", 2, "s", 1, 1 << 20, [Refusal(3, 3, Failure("not-allowed", "no"))])
    client.core.receive(encode(welcome) + encode(Accepted(3)), rig.now)
    assert list(client.core.publications.refusals(range(1, 4))) == [3]


# -- a store that is older than it was


@pytest.mark.parametrize("boots", [0, 3])
def test_a_client_notices_that_the_store_is_older_than_what_it_knows(boots: int) -> None:
    rig = Rig()
    client, other = Client(rig), Client(rig, "two", "bob")
    recorder = client.subscribe(durable="all")
    run(client, other)
    copied = rig.store.disk.content
    for n in range(5):
        other.core.publish(event(n, "reliable"))
        run(client, other)
    assert recorder.work() == [1, 2, 3, 4, 5]
    run(client)
    client.cut()
    for _ in range(boots):  # the node is started again a few times before it is put back
        rig = rig.restart()
        client.connect(rig)
        run(client)
        client.cut()
    assert client.core.older == 0
    disk = SimulatedDisk()
    disk.append(copied)
    disk.sync()
    old = Rig(disk)
    client.connect(old)
    later = Client(old, "three", "bob")
    run(client, later)
    assert client.core.older == 1
    assert old.broker.tallies["clients_ahead", ""] == 1
    assert recorder.gaps == [(0, OLDER)]
    later.core.publish(event(7, "reliable"))  # at a position that the client has had before
    run(client, later)
    assert [one["n"] for one in recorder.taken] == [0, 1, 2, 3, 4]
    recorder.work()
    assert recorder.taken[-1]["n"] == 7
    client.cut()
    client.connect(old)
    run(client)
    assert old.broker.tallies["clients_ahead", ""] == 1


def test_a_client_that_has_had_nothing_stored_knows_an_older_store_by_its_boot() -> None:
    rig = Rig()
    copied = rig.store.disk.content
    client = Client(rig)
    for _ in range(3):
        run(client)
        client.cut()
        rig = rig.restart()
        client.connect(rig)
    run(client)
    client.cut()
    disk = SimulatedDisk()
    disk.append(copied)
    disk.sync()
    old = Rig(disk)
    client.connect(old)
    run(client)
    assert (client.core.position, client.core.older) == (0, 1)
    assert old.broker.tallies["clients_ahead", ""] == 1


def test_a_client_that_knows_another_node_is_not_ahead(rig: Rig) -> None:
    client, far = Client(rig), Rig()
    client.core.node, client.core.boot, client.core.position = "another", 1 << 40, 1_000
    client.cut()
    client.connect(far)
    run(client)
    assert ("clients_ahead", "") not in far.broker.tallies
    assert client.core.position == 0


# -- time


def test_a_node_that_does_not_welcome_is_given_up(rig: Rig) -> None:
    client = Client(rig)
    assert client.core.wake_at == rig.now + WELCOME_S_MAX
    client.core.wake(rig.now + WELCOME_S_MAX)
    assert client.core.is_given_up


def test_a_silent_node_is_asked_and_then_given_up(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.wake(rig.now + SILENT_S_MAX)
    assert spoken(client) == [Ping()]
    client.core.wake(rig.now + 2 * SILENT_S_MAX)
    assert client.core.is_given_up


def test_a_node_that_answers_is_not_given_up(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.wake(rig.now + SILENT_S_MAX)
    client.core.receive(encode(Pong()), rig.now + SILENT_S_MAX + 1)
    client.core.wake(rig.now + 2 * SILENT_S_MAX)
    assert not client.core.is_given_up


def test_a_ping_is_answered(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.receive(encode(Ping(7)), rig.now)
    assert spoken(client) == [Pong(7)]


def test_without_a_transport_there_is_nothing_to_wait_for(rig: Rig) -> None:
    client = Client(rig)
    client.cut()
    assert client.core.wake_at is None


# -- requests


def test_a_request_is_answered(rig: Rig) -> None:
    client = Client(rig)
    client.hear_of(client.core.request("status", {}))
    run(client)
    ((result, error),) = client.answers
    assert error is None
    assert result["sessions"] == 1


def test_a_refusal_is_the_error_it_means(rig: Rig) -> None:
    client = Client(rig)
    client.subscribe("value >")
    client.hear_of(client.core.request("dance", {}))
    run(client)
    (_, bad_filter), (_, refused) = client.answers
    assert isinstance(bad_filter, FilterError)
    assert (bad_filter.line, bad_filter.column) == (1, 8)
    assert isinstance(refused, Refused)
    assert refused.code == "not-found"


def test_a_request_under_way_when_the_connection_breaks_fails(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.hear_of(client.core.request("status", {}))
    client.core.output()
    client.cut()
    ((_, error),) = client.answers
    assert isinstance(error, Disconnected)


def test_a_request_that_may_be_done_twice_is_sent_again(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.hear_of(client.core.request("status", {}, "again"))
    client.core.output()
    client.cut()
    client.connect(rig)
    run(client)
    assert [error for _, error in client.answers] == [None]


def test_ending_a_durable_subscription_twice_because_of_a_cut_is_no_error(rig: Rig) -> None:
    client = Client(rig)
    client.subscribe(durable="d")
    run(client)
    client.hear_of(client.core.request("unsubscribe", {"durable": "d"}, "again"))
    client.send()
    rig.run()
    client.cut()
    client.connect(rig)
    run(client)
    assert [error for _, error in client.answers] == [None, None]


def test_a_cancelled_request_is_not_sent(rig: Rig) -> None:
    client = Client(rig)
    call = client.core.request("status", {})
    client.hear_of(call)
    call.cancel()
    run(client)
    assert client.answers == []


@pytest.mark.parametrize(
    ("code", "kind"), [("version", Refused), ("not-allowed", NotAllowed), ("event", Refused)]
)
def test_a_node_that_will_never_have_us_fails_everything(
    rig: Rig, code: str, kind: type[TidingsError]
) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    run(client)
    client.hear_of(client.core.request("status", {}))
    client.core.receive(encode(Bye(code, "go away")), rig.now)
    assert isinstance(client.core.failure, kind)
    assert client.answers[-1] == (None, client.core.failure)
    assert "go away" in recorder.reason
    with pytest.raises(kind):
        client.core.publish(event())


def test_a_node_may_refuse_a_client_before_it_has_welcomed_it(rig: Rig) -> None:
    client = Client(rig)
    client.core.receive(encode(Bye("not-allowed", "user or secret is wrong")), rig.now)
    assert isinstance(client.core.failure, NotAllowed)
    assert str(client.core.failure) == "user or secret is wrong"


def test_user_and_secret_are_asked_for_at_each_connection() -> None:
    secrets = iter(["first", "second"])
    core = Connection(StoredIds("one", 1), "ann", lambda: ("ada", next(secrets)))
    for secret in ("first", "second"):
        core.connect(0.0)
        ((hello, _),) = FrameReader(FRAME_MAX).feed(b"".join(core.output()))
        assert isinstance(hello, Hello)
        assert (hello.user, hello.secret) == ("ada", secret)
        assert secret not in repr(hello)
        core.lost(0.0)


def test_a_node_that_stops_is_connected_to_again(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.receive(encode(Bye("shutdown", "")), rig.now)
    assert client.core.is_given_up
    assert client.core.failure is None


def test_closing_says_goodbye_and_fails_what_waits(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.hear_of(client.core.request("status", {}))
    client.core.close()
    assert spoken(client)[-1] == Bye()
    assert isinstance(client.answers[0][1], Disconnected)


# -- any bytes


def transcript() -> bytes:
    """All that a node says to a client that does a little of everything."""
    rig = Rig()
    client = Client(rig)
    client.subscribe("n > 0", durable="d")
    client.subscribe("value >")
    client.hear_of(client.core.advertise("", Recorder(client)).begun)
    said = b""
    for n in range(4):
        client.core.publish(event(n, "reliable"))
        client.send()
        rig.run()
        said += client.to_client
        client.hear()
    return said


@given(damaged(st.just(transcript())), st.integers(1, 64))
def test_no_bytes_of_a_node_do_more_than_end_the_connection(data: bytes, size: int) -> None:
    rig = Rig()
    client = Client(rig)
    client.subscribe("n > 0", durable="d")
    client.subscribe("value >")
    client.hear_of(client.core.advertise("", Recorder(client)).begun)
    for at in range(0, len(data), size):
        client.core.receive(data[at : at + size], rig.now)
        client.core.output()
    client.core.lost(rig.now)
    client.core.connect(rig.now)
    assert isinstance(spoken(client)[0], Hello)


@pytest.mark.parametrize("result", [None, 3, {}, {"position": "high"}])
def test_a_result_that_is_none_ends_the_connection(rig: Rig, result: object) -> None:
    client = Client(rig)
    run(client)
    client.subscribe()
    client.core.receive(encode(Reply(1, result)), rig.now)
    assert client.core.is_given_up
    client.cut()
    client.connect(rig)
    run(client)
    assert [error for _, error in client.answers] == [None]


def test_a_subscription_does_not_overtake_what_was_published_before_it(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.core.publish(event(1))
    recorder = client.subscribe()
    client.core.publish(event(2))
    run(client)
    assert recorder.work() == [2]
