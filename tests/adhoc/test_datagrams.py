"""Links of datagrams: short messages go to hosts whose beacons come, without a connection."""

import asyncio

import pytest
from adhoc.hosts import held, host, note, send
from adhoc.real import free_udp_ports, meeting, until
from adhoc.test_signed_hosts import _proofs
from node.authority import Authority

import tidings
from tidings.adhoc.beacons import Beacon, encode_beacon, is_beacon
from tidings.adhoc.datagrams import AT_ONCE, DATAGRAM_MAX, TRIES_MAX, DatagramCopies
from tidings.adhoc.frames import CopyFrame, NewsFrame, SummaryFrame, decode_frame, encode_frame
from tidings.adhoc.messages import MessageId


def _texts(datagrams):
    return [decode_frame(data).message.raw.decode() for data in datagrams]


def _pass(one, two, datagrams):
    """Let a host have datagrams of another, and that its answers."""
    for data in datagrams:
        effects, answer = DatagramCopies(two).receive(data, 0.0)
        note(two, effects)
        if answer is not None:
            note(one, DatagramCopies(one).receive(answer, 0.0)[0])


def test_the_best_that_is_for_a_host_goes_to_it_first_and_nothing_else():
    one = host("1")
    send(one, "low", "2", priority=1)
    send(one, "other", "3")
    send(one, "high", "2", priority=9)
    send(one, "sure", "2", persistent=True)
    send(one, "long" * 1_000, "2")
    assert _texts(DatagramCopies(one).offer("2", 0.0)) == ["sure", "high", "low"]


def test_a_plain_message_goes_once_and_a_persistent_one_until_it_is_acknowledged():
    one, two = host("1"), host("2")
    send(one, "plain", "2")
    send(one, "sure", "2", persistent=True)
    links = DatagramCopies(one)
    assert _texts(links.offer("2", 0.0)) == ["sure", "plain"]
    again = links.offer("2", 1.0)
    assert _texts(again) == ["sure"]
    _pass(one, two, again)
    assert two.got == ["sure"]
    assert one.notices == [(2, "2", "delivered")]
    assert held(one) == ["plain"]
    assert links.offer("2", 2.0) == []


def test_there_is_an_end_to_trying_and_to_how_many_go_at_once():
    one = host("1")
    for number in range(2 * AT_ONCE):
        send(one, str(number), "2", persistent=True)
    links = DatagramCopies(one)
    counts = [len(links.offer("2", float(turn))) for turn in range(3 * TRIES_MAX)]
    assert max(counts) == AT_ONCE
    assert sum(counts) == 2 * AT_ONCE * TRIES_MAX
    assert counts[-1] == 0
    assert len(held(one)) == 2 * AT_ONCE


def test_a_datagram_that_comes_again_is_delivered_once_and_acknowledged_again():
    one, two = host("1"), host("2")
    send(one, "m", "2", persistent=True)
    (data,) = DatagramCopies(one).offer("2", 0.0)
    answers = [DatagramCopies(two).receive(data, 0.0) for _ in range(3)]
    for effects, _ in answers:
        note(two, effects)
    assert two.got == ["m"]
    assert all(answer is not None for _, answer in answers)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"x" * (DATAGRAM_MAX + 1),
        encode_frame(SummaryFrame((), ())),
        encode_frame(NewsFrame((), (MessageId("s", 1, 1),))),
    ],
)
def test_datagrams_that_can_not_be_are_refused(data):
    two = host("2")
    assert DatagramCopies(two).receive(data, 0.0) == ([], None)
    assert two.tallies["refused", "datagram"] == 1


def test_a_datagram_for_another_host_or_of_a_part_is_refused():
    one, two = host("1"), host("2")
    message = send(one, "m", "3")
    for frame in (
        CopyFrame(message, 10.0, ("3",), 0, 1),
        CopyFrame(send(one, "xy", "2"), 10.0, ("2",), 0, 1, 1),
    ):
        assert DatagramCopies(two).receive(encode_frame(frame), 0.0) == ([], None)
    assert two.tallies["refused", "datagram"] == 2


def test_signed_messages_fit_and_forged_ones_are_refused(tmp_path):
    authority = Authority()
    one = host("one", proofs=_proofs(tmp_path, "one", authority))
    two = host("two", proofs=_proofs(tmp_path, "two", authority))
    send(one, "m" * 100, "two", persistent=True)
    (data,) = DatagramCopies(one).offer("two", 0.0)
    _pass(one, two, [data.replace(b"mm", b"nn")])
    assert two.tallies["refused", "forged"] == 1
    _pass(one, two, [data])
    assert two.got == ["m" * 100]
    assert held(one) == []


def test_a_beacon_is_told_from_a_frame():
    assert is_beacon(encode_beacon(Beacon("a", "b", 1, "tidings")))
    assert not is_beacon(encode_frame(NewsFrame((), ())))
    assert not is_beacon(b"")


def test_a_short_message_reaches_a_real_host_that_can_not_be_dialled(tmp_path, monkeypatch):
    one, two = free_udp_ports(2)
    monkeypatch.setattr("tidings.peers.peering.Peering.met", lambda *_: None)

    async def run():
        async with (
            tidings.open(tmp_path / "one", adhoc=meeting("one", one, two)) as near,
            tidings.open(tmp_path / "two", adhoc=meeting("two", two, one)) as far,
        ):
            queue = await far.create_queue("jobs")
            jobs = await near.queue("jobs@two")
            await jobs.put("job", n=1, delivery="reliable")
            assert (await queue.get(timeout_s=60)).event["n"] == 1

            async def carried():
                return (await near.adhoc_status())["messages"]

            await until(carried, lambda count: count == 0)
            assert await near.adhoc_neighbours() == []

    asyncio.run(run())
