"""Summaries whose size goes with the difference: the same comes of a meeting as if all ids were listed."""

from random import Random

import pytest
from adhoc.hosts import held, host, meet, send
from effort import often
from hypothesis import given
from hypothesis import strategies as some

from tidings.adhoc.frames import (
    AskFrame,
    CopyFrame,
    EstimateFrame,
    HashesFrame,
    NewsFrame,
    ReceiptFrame,
    SummaryFrame,
    SymbolsFrame,
    encode_frame,
)
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.sketches import Symbols, estimated, hashes_of, signs_of, symbols_for
from tidings.adhoc.sketching import ASKED_MAX, LISTED_MAX
from tidings.errors import CodecError

SALT = bytes(16)


def _sketching(name, seed=1):
    return host(name, salts=lambda: Random(seed).randbytes(16))


def _carry(one, ids):
    """Have a host carry messages of a host that is never met."""
    one.meet("~far", 0.0)
    one.receive("~far", NewsFrame((), ()), 0.0)
    one.meetings["~far"].is_open = True
    for id in ids:
        message = CarriedMessage(id, ("nobody",), size=1, raw=b"m")
        one.receive("~far", CopyFrame(message, message.ttl_s, ("nobody",), 1, 1), 0.0)
    one.part("~far", 0.0)


def _ids(system, count):
    return [MessageId(system, 1, number) for number in range(1, count + 1)]


@pytest.mark.parametrize("seed", range(often(10)))
def test_hosts_that_do_not_list_their_ids_exchange_what_the_other_lacks(seed):
    random = Random(seed)
    common, first, second = random.randrange(0, 300), random.randrange(65, 200), random.randrange(0, 200)
    one, two = _sketching("1", seed), _sketching("2", seed)
    _carry(one, _ids("c", common) + _ids("a", first))
    _carry(two, _ids("c", common) + _ids("b", second))
    told = meet(one, two)
    assert set(one.buffer.ids) == set(two.buffer.ids)
    assert len(one.buffer) == common + first + second
    assert len(told.copies()) == first + second
    kinds = [type(frame) for _, frame in told if not isinstance(frame, CopyFrame | ReceiptFrame)]
    assert kinds[:3] == [EstimateFrame, AskFrame, SymbolsFrame]
    assert kinds.count(HashesFrame) == 1
    assert SummaryFrame not in kinds


def test_few_ids_are_listed():
    one, two = _sketching("1"), _sketching("2")
    _carry(one, _ids("a", LISTED_MAX))
    assert isinstance(meet(one, two)[0][1], SummaryFrame)


@pytest.mark.parametrize("different", [0, 10, 100, 1_000])
def test_summaries_of_ten_thousand_ids_are_as_long_as_the_difference(different):
    one, two = _sketching("1"), _sketching("2")
    common = _ids("c", 10_000 - different // 2)
    _carry(one, common + _ids("a", different // 2))
    _carry(two, common + _ids("b", different // 2))
    told = meet(one, two)
    sketch = [
        frame for _, frame in told if isinstance(frame, EstimateFrame | AskFrame | SymbolsFrame | HashesFrame)
    ]
    assert sum(len(encode_frame(frame)) for frame in sketch) <= 40 * different + 1_024
    assert len(sketch) <= 6  # three round trips
    assert len(told.copies()) == different


def test_acknowledgements_come_before_the_sketch_is_made():
    one, two = _sketching("1"), _sketching("2")
    sent = [send(one, "m", "2", persistent=True) for _ in range(100)]
    meet(one, two)
    assert two.got == ["m"] * 100
    assert held(one) == []
    _carry(one, _ids("a", 70))
    replica = send(one, "again", "2")
    two.seen.add(replica.id, 0.0)
    two.ring.add(replica.id, "2", 1_000.0)
    told = meet(one, two, now=60.0)
    assert len(told.copies()) == 70
    assert len(sent) == 100


def test_symbols_that_never_decode_end_with_the_list():
    one, two = _sketching("1"), _sketching("2")
    _carry(one, _ids("a", 100))
    _carry(two, _ids("b", 10))

    def alter(frame):
        if isinstance(frame, SymbolsFrame):
            return SymbolsFrame(Random(len(frame.symbols)).randbytes(len(frame.symbols)))
        return frame

    told = meet(one, two, alter=alter)
    asked = [frame for _, frame in told if isinstance(frame, AskFrame)]
    assert len(asked) == ASKED_MAX + 1
    assert [type(frame) for _, frame in told].count(SummaryFrame) == 1
    assert two.tallies["refused", "sketch"] == 1
    assert len(one.buffer) == len(two.buffer) == 110


@pytest.mark.parametrize("frame", [SymbolsFrame(b"x"), SymbolsFrame(b""), HashesFrame(b""), AskFrame((), 5)])
def test_steps_of_a_sketch_out_of_order_are_refused(frame):
    two = _sketching("2")
    two.meet("1", 0.0)
    two.receive("1", frame, 0.0)
    assert two.tallies["refused", "step"] == 1
    assert not two.meetings["1"].is_open


def test_signs_and_symbols_that_are_none_are_refused():
    two = _sketching("2")
    two.meet("1", 0.0)
    two.receive("1", EstimateFrame((), SALT, b"short"), 0.0)
    assert two.tallies["refused", "sketch"] == 1
    with pytest.raises(CodecError):
        Symbols.unpacked(b"x")
    with pytest.raises(CodecError):
        estimated(b"", b"")


def test_a_host_that_asks_again_and_again_gets_the_list():
    one = _sketching("1")
    _carry(one, _ids("a", 100))
    one.meet("2", 0.0)
    frames = [one.receive("2", AskFrame((), 50), 0.0)[-1].frame for _ in range(ASKED_MAX + 1)]
    assert [type(frame) for frame in frames] == [SymbolsFrame] * ASKED_MAX + [SummaryFrame]


@given(
    some.sets(some.integers(1, 500)), some.sets(some.integers(1, 500)), some.binary(min_size=16, max_size=16)
)
def test_enough_symbols_give_the_exact_difference(ours, theirs, salt):
    one = hashes_of([MessageId("s", 1, number) for number in ours], salt)
    other = hashes_of([MessageId("s", 1, number) for number in theirs], salt)
    symbols = Symbols(4 * len(ours ^ theirs) + 30)
    for hash in other:
        symbols.add(hash)
    found = Symbols.unpacked(symbols.packed()).decode(one)
    assert found == (other.keys() - one.keys(), one.keys() - other.keys())


def test_the_estimate_is_about_the_difference():
    common = _ids("c", 2_000)
    one, two = common + _ids("a", 300), common + _ids("b", 100)
    assert 250 < estimated(signs_of(one, SALT), signs_of(two, SALT)) < 600
    assert symbols_for(0.0) == 16
