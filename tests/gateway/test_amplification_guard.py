"""What may be said to addresses, and how numbers and strangers are remembered."""

from __future__ import annotations

from math import inf

from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.gateway.advertisement import NetworkAdvertisements
from tidings.gateway.amplification_guard import ADDRESSES_MAX, FACTOR, HOSTS_MAX, AmplificationGuard
from tidings.gateway.effects import GatewayEffect, SendMessage
from tidings.gateway.messages import (
    Ack,
    Error,
    Redirect,
    Sensor,
    SubscribeSensors,
    UnsubscribeSensors,
    encode,
)
from tidings.gateway.network_registry import SILENT_S_MAX, STRANGERS_MAX, TYPES_MAX, UnregisteredNetworks
from tidings.gateway.networks import PENDING_MAX, WINDOW, DatagramAddress, NumberState, Sequence

HERE, NEXT_DOOR, THERE = DatagramAddress("here", 1), DatagramAddress("here", 2), DatagramAddress("there", 2)


def said(
    speaker: AmplificationGuard, key: object, sensors: int, restart: int = 0, is_start: bool = True
) -> int:
    """The bytes that were said, of a message with so many sensors."""
    effects: list[GatewayEffect] = []
    kind = UnsubscribeSensors if restart else SubscribeSensors
    speaker.say(key, kind("net", [Sensor("s")] * sensors), effects, restart, is_start and not restart)
    return size_of(effects)


def size_of(effects: list[GatewayEffect]) -> int:
    return sum(len(encode(effect.message)) for effect in effects if isinstance(effect, SendMessage))


hears = st.tuples(st.just("hear"), st.sampled_from([HERE, NEXT_DOOR]), st.integers(0, 300))
says = st.tuples(
    st.sampled_from(["start", "stop", "change", "error", "ack"]),
    st.sampled_from([HERE, NEXT_DOOR]),
    st.integers(0, 10),
)


@given(st.lists(st.one_of(hears, says), max_size=40))
def test_what_a_host_is_told_is_never_more_than_so_many_times_what_came_from_there(
    steps: list[tuple[str, DatagramAddress, int]],
) -> None:
    speaker = AmplificationGuard(b"secret")
    heard = told = 0
    for step, address, number in steps:
        effects: list[GatewayEffect] = []
        if step == "hear":
            speaker.heard(address, number)
            heard += number
        elif step == "error":
            speaker.say(address, Error("x" * number), effects)
        elif step == "ack":
            speaker.say(address, Ack("net", number), effects)
        else:
            told += said(speaker, address, number, 90 if step == "stop" else 0, step == "start")
        told += size_of(effects)
        assert told <= FACTOR * heard


def test_errors_cost_no_more_than_their_own_datagram_has_brought() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.heard(HERE, 10_000)
    speaker.heard(HERE, 20)
    effects: list[GatewayEffect] = []
    assert not speaker.say(HERE, Error("x" * 100), effects)
    speaker.heard(HERE, 60)
    assert speaker.say(HERE, Error("x" * 100), effects)
    assert not speaker.say(HERE, Error("x" * 100), effects)
    assert speaker.say(HERE, Redirect("net", "x" * 100), effects)


def test_what_was_kept_for_a_start_is_spent_on_nothing_else() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.heard(HERE, 100)
    while said(speaker, HERE, 1, restart=85):
        pass
    while said(speaker, HERE, 1, is_start=False):
        pass
    assert said(speaker, HERE, 1)


def test_over_a_connection_anything_is_said() -> None:
    assert said(AmplificationGuard(b"secret"), 1, 1_000) > 1_000


def test_only_the_cookie_of_the_address_confirms_it() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.heard(HERE, 1)
    assert not speaker.confirm(HERE, None)
    assert not speaker.confirm(HERE, "ü")
    assert not speaker.confirm(HERE, speaker.cookie(THERE))
    assert not speaker.confirm(HERE, AmplificationGuard(b"another").cookie(HERE))
    assert not said(speaker, HERE, 10)
    assert speaker.confirm(HERE, speaker.cookie(HERE))
    assert said(speaker, HERE, 1_000) > 1_000
    speaker.heard(HERE, 1)
    assert said(speaker, HERE, 1_000) > 1_000


def test_an_error_has_no_cookie_and_an_acknowledgement_has() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.heard(HERE, 500)
    effects: list[GatewayEffect] = []
    speaker.say(HERE, Error("no"), effects)
    speaker.say(HERE, Ack("net", 1), effects)
    assert effects == [SendMessage(HERE, Error("no")), SendMessage(HERE, Ack("net", 1, speaker.cookie(HERE)))]


def test_the_confirmed_address_that_was_silent_longest_is_forgotten() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.confirm(HERE, speaker.cookie(HERE))
    speaker.confirm(THERE, speaker.cookie(THERE))
    speaker.heard(HERE, 1)
    for port in range(ADDRESSES_MAX - 1):
        speaker.trust(DatagramAddress("another", port))
    assert speaker.is_confirmed(HERE)
    assert not speaker.is_confirmed(THERE)
    assert speaker.is_confirmed("a connection")


def test_a_flood_from_addresses_that_never_answer_takes_nothing_from_those_that_did() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.confirm(HERE, speaker.cookie(HERE))
    speaker.heard(THERE, 1_000)
    for host in range(HOSTS_MAX):
        speaker.heard(DatagramAddress(f"flood {host}", 1), 1)
    assert speaker.is_confirmed(HERE)
    assert not said(speaker, THERE, 1)  # the host that was silent longest is forgotten


def test_a_flood_from_forged_addresses_keeps_nobody_from_starting_what_was_stopped() -> None:
    speaker = AmplificationGuard(b"secret")
    speaker.heard(HERE, 1_000)
    assert said(speaker, HERE, 1, restart=60)
    for host in range(2 * HOSTS_MAX):
        speaker.heard(DatagramAddress(f"flood {host}", 1), 1)
    assert said(speaker, HERE, 1)
    for host in range(HOSTS_MAX):
        speaker.heard(DatagramAddress(f"flood {host}", 1), 1)
    assert not said(speaker, HERE, 1)


def test_hosts_where_something_was_stopped_are_forgotten_if_there_are_no_others() -> None:
    speaker = AmplificationGuard(b"secret")
    for host in range(HOSTS_MAX + 1):
        speaker.heard(DatagramAddress(f"host {host}", 1), 1_000)
        assert said(speaker, DatagramAddress(f"host {host}", 1), 1, restart=90)
    assert len(speaker._budgets) == HOSTS_MAX


@given(st.lists(st.tuples(st.sampled_from(["take", "finish", "forget"]), st.integers(0, 4)), max_size=40))
def test_a_number_is_new_until_it_is_taken_and_again_after_it_was_refused(
    steps: list[tuple[str, int]],
) -> None:
    sequence = Sequence()
    pending: set[int] = set()
    done: set[int] = set()
    for step, seq in steps:
        if step == "take":
            expected = (
                NumberState.DONE
                if seq in done
                else NumberState.PENDING
                if seq in pending
                else NumberState.NEW
            )
            assert sequence.take(seq) is expected
            pending |= {seq} - done
        elif step == "finish" and seq in pending:
            sequence.finish(seq)
            done.add(seq)
            pending.discard(seq)
        elif step == "forget":
            sequence.pending.discard(seq)
            pending.discard(seq)


@given(st.integers(-3, 3), st.integers(1, 2_000), st.lists(st.integers(0, WINDOW - 1), min_size=1))
@settings(max_examples=often(25))
def test_the_last_numbers_are_known_also_where_a_network_begins_anew(
    first: int, step: int, repeats: list[int]
) -> None:
    sequence, came_at = Sequence(), dict[int, int]()
    one, other = range(first, first + step * 2 * WINDOW, step), range(10**7, 10**7 + WINDOW)
    sent = [*range(5_000, 5_010), *one, *other, *one[:9]]  # which were forgotten meanwhile
    for place, seq in enumerate(sent):
        if place - came_at.get(seq, -2 * WINDOW) >= 2 * WINDOW:
            assert sequence.take(seq) is NumberState.NEW
            sequence.finish(seq)
        came_at[seq] = place
        repeated = sent[max(0, place - repeats[place % len(repeats)])]
        assert sequence.take(repeated) is NumberState.DONE


def test_so_many_numbers_are_remembered_and_so_many_wait() -> None:
    sequence, other = Sequence(), Sequence()
    for seq in range(2 * WINDOW + 1):
        sequence.take(seq)
        sequence.finish(seq)
    assert sequence.take(WINDOW) is NumberState.DONE
    assert sequence.take(WINDOW - 1) is NumberState.NEW
    for seq in range(PENDING_MAX):
        other.take(seq)
    assert other.take(PENDING_MAX) is NumberState.PENDING
    other.finish(0)
    assert other.take(PENDING_MAX) is NumberState.NEW


def test_strangers_and_their_types_are_limited_and_forgotten() -> None:
    offers = NetworkAdvertisements()
    strangers = UnregisteredNetworks(offers)
    assert len(strangers.heard("net", [f"type.{n}" for n in range(TYPES_MAX + 10)], 0)) == TYPES_MAX
    for number in range(STRANGERS_MAX):
        strangers.heard(f"net {number}", ["type.0"], 1)
    assert len(list(strangers)) == STRANGERS_MAX
    strangers.heard("net", [], 2)
    strangers.wake(SILENT_S_MAX)
    assert len(list(strangers)) == STRANGERS_MAX
    assert strangers.wake_at == 1 + SILENT_S_MAX
    strangers.wake(1 + SILENT_S_MAX)
    assert [sensing_id for sensing_id, _ in strangers] == ["net"]
    strangers.forget("net", 5)
    assert strangers.wake_at == inf
    assert len(offers.wake(10_000)) == TYPES_MAX
