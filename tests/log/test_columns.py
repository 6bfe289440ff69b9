"""Columns of the reader's choice: from live parts and from sealed rows the same, and what each event says."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.parting import STORED_US, all_events, part_of, parts
from tidings import Event
from tidings.errors import CodecError, ConfigError
from tidings.event.json import time_text
from tidings.event.values import us_from_time
from tidings.log.chunks import LivePart
from tidings.log.columns import Decoder, SchemaMismatch, table_of
from tidings.log.schema import ATTRIBUTES, HEADER_COLUMNS, TEXTS, TIME

NARROW = pa.schema([("type", pa.string()), ("time", TIME), ("value", pa.float64()), ("position", pa.int64())])
TYPES = [
    pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), TIME,
    pa.timestamp("us"), pa.date32(), pa.decimal128(10, 2),
]  # fmt: skip
schemas = st.lists(st.sampled_from(["value", "sensor", "Value", "über", "a.b", "n"]), unique=True).flatmap(
    lambda names: st.tuples(*[st.sampled_from(TYPES) for _ in names]).map(
        lambda kinds: pa.schema([("position", pa.int64()), *zip(names, kinds, strict=True)])
    )
)


def fits(value: Any, kind: pa.DataType) -> bool:
    """Whether the value may stand in a column of that type; written without regard to how it is done."""
    if type(value) is bool:
        return kind == pa.bool_()
    if pa.types.is_integer(kind):
        return type(value) is int and -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)
    if kind == pa.float64() and type(value) is int:
        return abs(value) <= 2**53
    if pa.types.is_floating(kind):
        return type(value) in (int, float)
    if pa.types.is_decimal(kind):
        return type(value) in (int, float) and math.isfinite(value) and abs(Decimal(repr(value))) < 10**8 - 1
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return type(value) is datetime
    return (type(value), kind) in ((str, pa.string()), (bytes, pa.binary()))


def as_cell(value: Any, kind: pa.DataType) -> Any:
    if value is None or not fits(value, kind):
        return None
    if pa.types.is_date(kind):
        return value.date()
    if pa.types.is_decimal(kind):
        return Decimal(repr(value)).quantize(Decimal("0.01"))
    if kind == pa.timestamp("us"):
        return value.replace(tzinfo=None)
    if pa.types.is_floating(kind):
        value = float(value)
    return pa.scalar(value, pa.float32()).as_py() if kind == pa.float32() else value


def same(left: Any, right: Any) -> bool:
    return left == right or (left != left and right != right)


def sealed(decoder: Decoder, several: list[LivePart]) -> pa.RecordBatch:
    return decoder.sealed(table_of(several).combine_chunks().to_batches()[0])


def test_an_integer_that_a_double_can_not_represent_does_not_fit_it() -> None:
    several = [part_of([Event("t", value=value) for value in (2**53, -(2**53) - 1, 2**60, 1e300)])]
    schema = pa.schema([("value", pa.float64()), ("mismatches", pa.int64())])
    for read in (Decoder.lives, sealed):
        decoder = Decoder(schema)
        found = read(decoder, several).to_pydict()
        assert found == {"value": [2.0**53, None, None, 1e300], "mismatches": [0, 1, 1, 0]}
        assert decoder.mismatches.total() == 2


@settings(max_examples=often(40))
@given(parts(), schemas)
def test_a_column_has_what_fits_it_and_null_for_the_rest(several: list[LivePart], schema: pa.Schema) -> None:
    held = all_events(several)
    misfits = sum(
        event.get(field.name) is not None and not fits(event.get(field.name), field.type)
        for _, event in held
        for field in schema
        if field.name != "position"
    )
    for read in (Decoder.lives, sealed):
        decoder = Decoder(schema)
        batch = read(decoder, several)
        assert decoder.mismatches.total() == misfits
        assert batch.schema == schema
        assert batch.column("position").to_pylist() == [position for position, _ in held]
        for field in list(schema)[1:]:
            wanted = [as_cell(event.get(field.name), field.type) for _, event in held]
            assert all(map(same, batch.column(field.name).to_pylist(), wanted))


@settings(max_examples=often(40))
@given(parts())
def test_header_columns_are_what_the_events_say(several: list[LivePart]) -> None:
    schema = pa.schema(
        [*(field for field in HEADER_COLUMNS if field.name != "stored"), ("node", pa.string())]
    )
    stored = [us for part in several for us in [part.stored_us] * len(part.events())]
    for read in (Decoder.lives, sealed):
        columns = read(Decoder(schema, node="n1"), several).to_pydict()
        for row, (_, event) in enumerate(all_events(several)):
            assert columns["node"][row] == "n1"
            received = stored[row] if event.received is None else us_from_time(event.received)
            assert us_from_time(columns["received"][row]) == received
            assert (columns["system"][row], columns["epoch"][row]) == (
                event.origin.system,
                event.origin.epoch,
            )
            assert columns["counter"][row] == event.counter
            for name in columns.keys() - {"node", "received", "system", "epoch", "counter"}:
                assert columns[name][row] == event.get(name)


@settings(max_examples=often(40))
@given(parts())
def test_the_map_of_texts_has_every_attribute(several: list[LivePart]) -> None:
    schema = pa.schema([("attributes", TEXTS), ("value", pa.int64())])
    for read in (Decoder.lives, sealed):
        batch = read(Decoder(schema), several)
        for row, (_, event) in zip(batch.column("attributes").to_pylist(), all_events(several), strict=True):
            texts = dict(row)
            assert texts.keys() == event.values.keys()
            for name, value in event.values.items():
                assert text_says(texts[name], value)


def text_says(text: str, value: Any) -> bool:
    if type(value) is float:
        return same(float(text), value)
    if type(value) is datetime:
        return text == time_text(value)
    return type(value) is bytes or text == (str(value).lower() if type(value) is bool else str(value))


@settings(max_examples=often(40))
@given(parts())
def test_the_lossless_map_is_the_same_live_and_sealed(several: list[LivePart]) -> None:
    decoder = Decoder(pa.schema([("attributes", ATTRIBUTES)]))
    live, from_file = decoder.lives(several), sealed(decoder, several)
    for left, right in zip(live.column(0).to_pylist(), from_file.column(0).to_pylist(), strict=True):
        assert str(sorted(left, key=lambda entry: entry[0])) == str(sorted(right, key=lambda entry: entry[0]))


@settings(max_examples=often(40))
@given(parts())
def test_parts_one_by_one_give_the_same_rows_as_together(several: list[LivePart]) -> None:
    decoder = Decoder(NARROW)
    apart = pa.Table.from_batches([decoder.lives([part]) for part in several])
    together = pa.Table.from_batches([decoder.lives(several)])
    assert str(apart.to_pylist()) == str(together.to_pylist())


def test_rows_that_were_left_out_leave_holes_in_the_positions() -> None:
    part = part_of([Event("a"), Event("b")], first=10, rows=[2, 5])
    assert Decoder(NARROW).lives([part]).column("position").to_pylist() == [12, 15]
    assert part.positions() == [12, 15]


def test_mismatches_are_counted_by_row_where_there_is_a_column_for_it() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("mismatches", pa.int32())])
    part = part_of([Event("x", a=1, b="s"), Event("x", a="s", b=1), Event("x", a=1.5), Event("x")])
    decoder = Decoder(schema)
    assert decoder.lives([part]).column("mismatches").to_pylist() == [0, 2, 1, 0]
    assert decoder.mismatches.total() == 3


def test_strictly_the_first_value_that_does_not_fit_is_an_error() -> None:
    part = part_of([Event("x", a=1), Event("x", a="secret")], first=7)
    for read in (Decoder.lives, sealed):
        with pytest.raises(SchemaMismatch, match=r"column 'a', position 8: a value is str") as caught:
            read(Decoder(pa.schema([("a", pa.int64())]), strict=True), [part])
        assert "secret" not in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_text_that_looks_like_a_time_is_no_time() -> None:
    decoder = Decoder(pa.schema([("at", TIME)]))
    part = part_of([Event("x", at="2026-01-01T00:00:00Z"), Event("x", at=datetime(2026, 1, 1, tzinfo=UTC))])
    assert decoder.lives([part]).column("at").is_valid().to_pylist() == [False, True]


def test_times_come_as_dates_and_numbers_as_decimals() -> None:
    schema = pa.schema([("at", pa.date32()), ("price", pa.decimal128(6, 2))])
    part = part_of(
        [Event("x", at=datetime(2026, 1, 1, 23, 59, tzinfo=UTC), price=0.125), Event("x", price=10**9)]
    )
    columns = Decoder(schema).lives([part]).to_pydict()
    assert columns == {"at": [date(2026, 1, 1), None], "price": [Decimal("0.12"), None]}


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.uint8(), pa.timestamp("ns"), pa.struct([])], ids=str
)
def test_a_column_that_no_value_can_fill_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="value"):
        Decoder(pa.schema([("value", kind)]))


def test_a_map_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="attributes"):
        Decoder(pa.schema([("attributes", pa.map_(pa.string(), pa.int64()))]))


@pytest.mark.parametrize(
    "raw", [b"", b"\xdd\0\0\0\1", b"\xdd\0\0\0\1\xc0", b"\xdd\0\0\0\1\x93\1\2\3"], ids=bytes.hex
)
def test_bytes_that_are_no_events_are_told(raw: bytes) -> None:
    part = LivePart(1, 1, b"", "s", 1, None, STORED_US, raw)
    with pytest.raises(CodecError):
        Decoder(NARROW).lives([part])
    with pytest.raises(CodecError):
        table_of([part])


def test_nothing_gives_no_rows() -> None:
    decoder = Decoder(NARROW)
    none = pa.RecordBatch.from_pylist([], schema=table_of([]).schema)
    for batch in (decoder.lives([]), decoder.lives([part_of([])]), decoder.sealed(none)):
        assert batch.num_rows == 0
        assert batch.schema == NARROW


def test_only_the_columns_of_a_file_that_are_needed_are_named() -> None:
    assert Decoder(NARROW).wanted == ["position", "type", "time", "value", "attributes"]
    assert Decoder(pa.schema([("type", pa.string())])).wanted == ["position", "type"]
    assert Decoder(pa.schema([("attributes", TEXTS)])).wanted is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=str)
def test_what_is_no_finite_number_fits_no_decimal(number: float) -> None:
    decoder = Decoder(pa.schema([("value", pa.decimal128(10, 2))]), "node", False)
    part = part_of([Event("a", value=number), Event("a", value=1.5)])
    for batch in (decoder.lives([part]), sealed(decoder, [part])):
        assert batch.column("value").to_pylist() == [None, Decimal("1.50")]
