"""Forged, altered and impossible input: refused, bounded and counted."""

import hashlib
import hmac

import pytest
from adhoc.hosts import held, host, meet, send
from msgspec.structs import replace

from tidings.adhoc.frames import (
    FRAME_MAX,
    CopyFrame,
    LackingFrame,
    NewsFrame,
    ReceiptFrame,
    SummaryFrame,
    decode_frame,
    encode_frame,
)
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.ring import Acknowledgement
from tidings.errors import CodecError


class _Keys:
    """Signatures of one host, with a key that all tests know."""

    def __init__(self, name):
        self.name = name

    def sign(self, data):
        return hmac.digest(self.name.encode(), data, hashlib.sha256)

    def verify(self, name, data, proof):
        return hmac.compare_digest(proof, hmac.digest(name.encode(), data, hashlib.sha256))


def _signing(name):
    return host(name, proofs=_Keys(name))


def _opened(one, peer="a"):
    one.meet(peer, 0.0)
    one.receive(peer, SummaryFrame((), ()), 0.0)
    return one


def _copy(message, **changes):
    return replace(CopyFrame(message, message.ttl_s, message.recipients, 1, 1), **changes)


def _message(counter=1, **changes):
    return replace(CarriedMessage(MessageId("s", 1, counter), ("x",), size=1, raw=b"m"), **changes)


def test_a_signed_message_and_its_acknowledgement_are_believed():
    one, two, three = _signing("1"), _signing("2"), _signing("3")
    send(one, "m", "3", persistent=True)
    meet(one, two)
    meet(two, three)
    meet(one, two, now=60.0)
    assert three.got == ["m"]
    assert one.notices == [(1, "3", "delivered")]


@pytest.mark.parametrize(
    "change",
    [{"raw": b"n"}, {"recipients": ("3", "4")}, {"ttl_s": 99_999.0}, {"priority": 9}, {"persistent": True}],
)
def test_a_message_that_a_carrier_has_altered_is_refused(change):
    one, two, three = _signing("1"), _signing("2"), _signing("3")
    send(one, "m", "3")
    meet(one, two)

    def alter(frame):
        return (
            replace(frame, message=replace(frame.message, **change))
            if isinstance(frame, CopyFrame)
            else frame
        )

    meet(two, three, alter=alter)
    assert three.got == []
    assert three.tallies["refused", "forged"] == 1


def test_a_forged_acknowledgement_purges_nothing():
    one = _signing("1")
    message = send(one, "m", "3", persistent=True)
    one.meet("2", 0.0)
    forged = Acknowledgement(message.id, "3", 100.0, b"forged")
    one.receive("2", LackingFrame((forged,), ()), 0.0)
    assert held(one) == ["m"]
    assert one.notices == []
    assert one.tallies["refused", "forged acknowledgement"] == 1


def test_a_replayed_message_is_delivered_once():
    x = _opened(host("x"))
    for _ in range(3):
        x.receive("a", _copy(_message()), 0.0)
    assert x.tallies["delivered", ""] == 1


@pytest.mark.parametrize("left_s", [0.0, -1.0, 86_401.0, float("nan"), float("inf")])
def test_a_life_that_a_carrier_has_changed_to_what_can_not_be_is_refused(left_s):
    x = _opened(host("x"))
    x.receive("a", _copy(_message(), left_s=left_s), 0.0)
    assert x.tallies["refused", "life"] == 1
    assert x.tallies["delivered", ""] == 0


def test_a_message_larger_than_the_buffer_is_refused_and_displaces_nothing():
    two = _opened(host("2", bytes_max=10))
    two.receive("a", _copy(_message()), 0.0)
    two.receive("a", _copy(_message(2, raw=b"m" * 11, size=11)), 0.0)
    assert held(two) == ["m"]
    assert two.tallies["refused", "buffer"] == 1


def test_a_size_that_is_not_that_of_the_bytes_is_refused():
    two = _opened(host("2"))
    two.receive("a", _copy(_message(raw=b"mm", size=1)), 0.0)
    assert held(two) == []


def test_frames_of_hosts_that_are_not_here_and_steps_out_of_order_are_refused():
    two = host("2")
    assert two.receive("a", SummaryFrame((), ()), 0.0) == []
    assert two.tallies["refused", "stranger"] == 1
    _opened(two)
    assert two.receive("a", SummaryFrame((), ()), 0.0) == []
    assert two.receive("a", LackingFrame((), ()), 0.0) == []
    assert two.tallies["refused", "step"] == 2


def test_a_receipt_for_what_was_not_sent_is_refused():
    two = _opened(host("2"))
    message = send(two, "m", "x", persistent=True)
    two.receive("a", ReceiptFrame(message.id, False, Acknowledgement(message.id, "x", 5.0)), 0.0)
    assert held(two) == ["m"]
    assert two.tallies["refused", "receipt"] == 1


def test_a_frame_is_read_whole_or_not_at_all():
    frame = encode_frame(_copy(_message()))
    assert encode_frame(decode_frame(frame)) == frame
    for at in range(len(frame)):
        with pytest.raises(CodecError):
            decode_frame(frame[:at])
    with pytest.raises(CodecError):
        decode_frame(frame + b"x")
    with pytest.raises(CodecError, match="at most"):
        decode_frame(b"x" * (FRAME_MAX + 1))


def test_a_frame_with_too_many_ids_is_refused():
    ids = tuple(MessageId("s", 1, number) for number in range(100_001))
    with pytest.raises(CodecError):
        decode_frame(encode_frame(NewsFrame((), ids)))
