"""Texts that are cut out of raw events."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import events

from tidings import Event
from tidings.errors import CodecError
from tidings.event import Batch
from tidings.matching.clues import TEXT_FIELDS
from tidings.matching.lanes import TextPlaces


@given(events())
def test_texts_are_cut_out_as_decoded_events_have_them(one: Event) -> None:
    batch = Batch.of([one, one])
    names = [*TEXT_FIELDS, *one.values, "nowhere"]
    cut = dict(TextPlaces(names, 7).read(Batch(batch.raw)))
    for name, values in batch.columns(names).items():
        assert cut[name] == [value.encode() if isinstance(value, str) else None for value in values], name


def test_bytes_that_are_no_events_are_refused_by_row() -> None:
    places = TextPlaces(["s"], 7)
    good = Batch.of([Event("t", s="x")]).raw[5:]
    with pytest.raises(CodecError, match=r"\$\[1\]"):
        list(places.read(Batch(b"\xdd\x00\x00\x00\x02" + good + b"\x93\x01\x02\x03")))
    with pytest.raises(CodecError, match="follow"):
        list(places.read(Batch(b"\xdd\x00\x00\x00\x01" + good + b"\x00")))
    assert list(places.read(Batch(b"\xdd\x00\x00\x00\x00"))) == [("s", [])]
