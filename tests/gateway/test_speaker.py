"""What may be said to addresses, and how numbers and strangers are remembered."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tidings.gateway.effects import Effect, Say
from tidings.gateway.messages import Ack, Error, Sensor, Subscribe, encode
from tidings.gateway.networks import Address
from tidings.gateway.offers import Offers
from tidings.gateway.sequences import PENDING_MAX, WINDOW, Sequences, Standing
from tidings.gateway.speaker import ADDRESSES_MAX, Speaker
from tidings.gateway.strangers import SILENT_S_MAX, STRANGERS_MAX, TYPES_MAX, Strangers

HERE, THERE = Address("here", 1), Address("there", 2)


def said(speaker: Speaker, key: object, sensors: int) -> int:
    """The bytes that were said, of a message with so many sensors."""
    effects: list[Effect] = []
    speaker.say(key, Subscribe("net", [Sensor("s")] * sensors), effects)
    return sum(len(encode(effect.message)) for effect in effects if isinstance(effect, Say))


@given(st.lists(st.one_of(st.integers(0, 300).map(lambda n: -n), st.integers(0, 10)), max_size=30))
def test_what_is_said_after_a_datagram_is_never_more_than_it_was(steps: list[int]) -> None:
    speaker = Speaker(b"secret")
    left = 0
    for step in steps:
        if step < 0:
            speaker.heard(HERE, -step)
            left = -step
        else:
            left -= said(speaker, HERE, step)
            assert left >= 0


def test_over_a_connection_anything_is_said() -> None:
    assert said(Speaker(b"secret"), 1, 1_000) > 1_000


def test_only_the_cookie_of_the_address_confirms_it() -> None:
    speaker = Speaker(b"secret")
    speaker.heard(HERE, 1)
    assert not speaker.confirm(HERE, None)
    assert not speaker.confirm(HERE, "ü")
    assert not speaker.confirm(HERE, speaker.cookie(THERE))
    assert not speaker.confirm(HERE, Speaker(b"another").cookie(HERE))
    assert not said(speaker, HERE, 10)
    assert speaker.confirm(HERE, speaker.cookie(HERE))
    assert said(speaker, HERE, 1_000) > 1_000
    speaker.heard(HERE, 1)
    assert said(speaker, HERE, 1_000) > 1_000


def test_an_error_has_no_cookie_and_an_acknowledgement_has() -> None:
    speaker = Speaker(b"secret")
    speaker.heard(HERE, 500)
    effects: list[Effect] = []
    speaker.say(HERE, Error("no"), effects)
    speaker.say(HERE, Ack("net", 1), effects)
    assert effects == [Say(HERE, Error("no")), Say(HERE, Ack("net", 1, speaker.cookie(HERE)))]


def test_the_address_that_was_silent_longest_is_forgotten() -> None:
    speaker = Speaker(b"secret")
    speaker.heard(HERE, 1)
    speaker.confirm(HERE, speaker.cookie(HERE))
    for port in range(ADDRESSES_MAX):
        speaker.heard(Address("flood", port), 1)
    assert not speaker.is_confirmed(HERE)
    assert speaker.is_confirmed("a connection")


@given(st.lists(st.tuples(st.sampled_from(["take", "finish", "forget"]), st.integers(0, 4)), max_size=40))
def test_a_number_is_new_until_it_is_taken_and_again_after_it_was_refused(
    steps: list[tuple[str, int]],
) -> None:
    sequences = Sequences()
    pending: set[int] = set()
    done: set[int] = set()
    for step, seq in steps:
        if step == "take":
            expected = Standing.DONE if seq in done else Standing.PENDING if seq in pending else Standing.NEW
            assert sequences.take("net", seq) is expected
            pending |= {seq} - done
        elif step == "finish" and seq in pending:
            sequences.finish("net", seq)
            done.add(seq)
            pending.discard(seq)
        elif step == "forget":
            sequences.forget("net", seq)
            pending.discard(seq)


def test_so_many_numbers_are_remembered_and_so_many_wait() -> None:
    sequences = Sequences()
    for seq in range(WINDOW + 1):
        sequences.take("net", seq)
        sequences.finish("net", seq)
    assert sequences.take("net", 1) is Standing.DONE
    assert sequences.take("net", 0) is Standing.NEW
    for seq in range(PENDING_MAX):
        sequences.take("other", seq)
    assert sequences.take("other", PENDING_MAX) is Standing.PENDING
    sequences.finish("other", 0)
    assert sequences.take("other", PENDING_MAX) is Standing.NEW


def test_strangers_and_their_types_are_limited_and_forgotten() -> None:
    offers = Offers()
    strangers = Strangers(offers)
    assert len(strangers.heard("net", [f"type.{n}" for n in range(TYPES_MAX + 10)], 0)) == TYPES_MAX
    for number in range(STRANGERS_MAX):
        strangers.heard(f"net {number}", ["type.0"], 1)
    assert len(strangers) == STRANGERS_MAX
    strangers.heard("net", [], 2)
    assert strangers.wake_at == 1 + SILENT_S_MAX
    strangers.wake(1 + SILENT_S_MAX)
    assert [sensing_id for sensing_id, _ in strangers] == ["net"]
    strangers.forget("net", 5)
    assert strangers.wake_at == inf
    assert len(offers.wake(10_000)) == TYPES_MAX
