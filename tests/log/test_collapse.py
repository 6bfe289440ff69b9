"""Events collapsed where they lie: partial rows merge to what all events give."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event
from tidings.errors import ConfigError
from tidings.event import Batch
from tidings.log import collapse as module
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import LivePart
from tidings.log.collapse import RULES as ALL_RULES
from tidings.log.collapse import UNIT, Collapser, collapsed_part, partial_rows
from tidings.log.collapse_rules import TYPES, normal_type, parse_rule

RULES = {
    "all": "count()",
    "some": "count(f)",
    "usable": "numbers(f)",
    "sum_i": "total(i)",
    "sum_f": "total(f)",
    "low": "lowest(f)",
    "high": "highest(f)",
    "word": "highest(s)",
    "begin": "first(s)",
    "end": "latest(f)",
    "newest": "highest(time)",
}
COLUMNS = {"k": "string", "n": "bigint", "f": "double", "i": "bigint", "s": "string"}
TERMS = CollapseTerms(COLUMNS, ["k", "n"], RULES, 60_000_000)
NODE = "a"

floats = st.floats() | st.sampled_from([0.1, 2.0**33, -(2.0**62), 2.0**63, 1e300, math.nan])
rows = st.fixed_dictionaries(
    {"time_us": st.integers(-(10**9), 10**9)},
    optional={
        "k": st.sampled_from(["a", "b"]),
        "n": st.sampled_from([1, 2]),
        "f": floats | st.just("no number"),
        "i": st.integers(-(2**63), 2**63 - 1),
        "s": st.text(max_size=3) | st.just(7),
    },
)


crowded = rows.map(lambda row: {**row, "time_us": row["time_us"] % 3 * 30_000_000})
"""Events of two windows, many of them at one time."""


def part_of(first: int, made: list[dict[str, Any]]) -> LivePart:
    events = [
        Event("t", {k: v for k, v in row.items() if k != "time_us"}, time=_time(row["time_us"]))
        for row in made
    ]
    return LivePart(first, len(made), b"", None, 0, None, 0, Batch.of(events).raw)


def _time(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)


def units(value: float) -> int | None:
    if math.isnan(value) or abs(value) >= 2.0**63:
        return None
    return round(value * UNIT) if abs(value) < 2.0**33 else round(value) * UNIT


def expected(made: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """What the rules give of all rows, computed one by one."""
    groups: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
    for position, row in enumerate(made, 1):
        key = row.get("k"), row.get("n"), row["time_us"] // 60_000_000 * 60_000_000
        groups.setdefault(key, []).append((position, row))
    return {key: _ruled(group) for key, group in groups.items()}


def _ruled(group: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    def values(name: str, kind: type) -> list[tuple[int, int, Any]]:
        return [(row["time_us"], at, row[name]) for at, row in group if isinstance(row.get(name), kind)]

    f, i, s = values("f", float), values("i", int), values("s", str)
    taken = [found for *_, value in f if (found := units(value)) is not None]
    numbers = [value for *_, value in f if not math.isnan(value)]
    return {
        "all": len(group),
        "some": len(f),
        "usable": len(taken),
        "sum_i": sum(value for *_, value in i) if i else None,
        "sum_f": sum(taken) if taken else None,
        "low": min(numbers) if numbers else (math.nan if f else None),
        "high": math.nan if len(numbers) < len(f) else (max(numbers) if f else None),
        "word": max((value for *_, value in s), key=str.encode) if s else None,
        "begin": min(s) if s else None,
        "end": max(f, key=lambda one: one[:2]) if f else None,
        "newest": max(row["time_us"] for _, row in group),
    }


def shown(table: pa.Table) -> dict[Any, dict[str, Any]]:
    """The same of a table that has each key once."""
    found = {}
    for row in table.cast(pa.schema([_plain(field) for field in table.schema])).to_pylist():
        key = row["k"], row["n"], row["start"]
        assert key not in found
        assert row["node"] == NODE
        for name in ("begin", "end"):
            place = row[name]
            assert place is None or place["node"] == NODE
            row[name] = None if place is None else (place["time"], place["position"], place["value"])
        found[key] = {
            name: int(row[name]) if name.startswith("sum") and row[name] is not None else row[name]
            for name in RULES
        }
    return found


def _plain(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_plain(one) for one in field.type]))
    return field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field


def same(one: Any, other: Any) -> bool:
    return bool(one == other or str(one) == str(other))  # NaN, and what has one in it


def collapse_in_pieces(node: str, made: list[dict[str, Any]], data: st.DataObject) -> pa.Table:
    """The partial rows of a log with these events, which are collapsed piece by piece."""
    collapser, start = Collapser(TERMS, node), 0
    while start < len(made):
        end = data.draw(st.integers(start + 1, len(made)))
        for batch in collapser.decoder.batches([part_of(start + 1, made[start:end])]):
            collapser.add(batch)
        start = end
    return collapser.take()


@given(st.lists(rows, max_size=30), st.data())
def test_partial_rows_merge_to_what_the_rules_give_of_all_events(
    made: list[dict[str, Any]], data: st.DataObject
) -> None:
    found, wanted = shown(collapse_in_pieces(NODE, made, data)), expected(made)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            assert same(found[key][name], value), (key, name)


def merged(tables: list[pa.Table]) -> dict[Any, dict[str, Any]]:
    """Partial rows of several nodes, merged as docs/spark.md says, without the places of first and latest."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for table in tables:
        for row in table.cast(pa.schema([_plain(field) for field in table.schema])).to_pylist():
            groups.setdefault((row["k"], row["n"], row["start"]), []).append(row)
    return {
        key: {
            name: MERGES[parse_rule(rule).kind]([row[name] for row in group if row[name] is not None])
            for name, rule in RULES.items()
        }
        for key, group in groups.items()
    }


def _added(values: list[Any]) -> int | None:
    return sum(map(int, values)) if values else None


def _by_size(value: Any) -> tuple[bool, Any]:
    """NaN is above all numbers, as in Spark."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


def _least(values: list[Any]) -> Any:
    return min(values, key=_by_size, default=None)


def _greatest(values: list[Any]) -> Any:
    return max(values, key=_by_size, default=None)


def _place(row: dict[str, Any]) -> tuple[int, str, int]:
    return row["time"], row["node"], row["position"]


def _valued(row: dict[str, Any] | None) -> tuple[int, Any] | None:
    return None if row is None else (row["time"], row["value"])


MERGES: dict[str, Callable[[list[Any]], Any]] = {
    "count": _added,
    "numbers": _added,
    "total": _added,
    "lowest": _least,
    "highest": _greatest,
    "first": lambda values: _valued(min(values, key=_place, default=None)),
    "latest": lambda values: _valued(max(values, key=_place, default=None)),
}


@given(st.lists(st.tuples(st.integers(0, 3), crowded), max_size=40), st.data())
def test_partial_rows_of_several_logs_merge_to_the_collapse_of_all_events_in_one(
    spread: list[tuple[int, dict[str, Any]]], data: st.DataObject
) -> None:
    assert MERGES.keys() == set(ALL_RULES) == {parse_rule(rule).kind for rule in RULES.values()}
    logs = [[row for log, row in spread if log == number] for number in range(4)]
    several = [collapse_in_pieces(f"node-{number}", log, data) for number, log in enumerate(logs)]
    # Events of one time count in the order of their nodes, so that is how one log has them.
    one = collapse_in_pieces(NODE, [row for log in logs for row in log], data)
    found, wanted = merged(several), merged([one])
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            assert same(found[key][name], value), (key, name)


def test_events_of_an_older_node_are_collapsed_by_the_reader() -> None:
    made = [{"time_us": number, "k": "a", "n": 1, "f": 1.0 * number} for number in range(4)]
    there, here = Collapser(TERMS, NODE), Collapser(TERMS, NODE)
    for batch in there.decoder.batches([part_of(1, made)]):
        there.add(batch)
    sent = collapsed_part(there)
    assert list(partial_rows([sent], here)) == list(partial_rows([part_of(1, made)], here))


def test_values_that_do_not_fit_are_counted_in_partial_rows_and_by_reason() -> None:
    terms = CollapseTerms(
        {"k": "string", "f": "double", "mismatches": "bigint"}, ["k"], {"nulls": "total(mismatches)"}
    )
    made = [{"time_us": 0, "k": "a", "f": value} for value in (1.0, "high", 2**60, "low")]
    made += [{"time_us": 0, "k": "b", "f": 1.0}, {"time_us": 0, "k": 7, "f": b"x"}]
    there, here, older = (Collapser(terms, NODE) for _ in range(3))
    for batch in there.decoder.batches([part_of(1, made)]):
        there.add(batch)
    table = pa.Table.from_batches(partial_rows([collapsed_part(there)], here))
    assert dict(zip(*(table.to_pydict()[name] for name in ("k", "nulls")), strict=True)) == {
        "a": 3,
        "b": 0,
        None: 2,
    }
    assert here.decoder.mismatches == {
        "column 'k': int does not fit string": 1,
        "column 'f': str does not fit double": 2,
        "column 'f': int does not fit double": 1,
        "column 'f': bytes does not fit double": 1,
    }
    assert len(list(partial_rows([part_of(1, made)], older))) == 1
    assert older.decoder.mismatches == here.decoder.mismatches


def test_mismatches_of_events_that_a_reply_has_no_room_for_are_not_counted() -> None:
    collapser = Collapser(CollapseTerms({"n": "bigint"}, ["n"], {"all": "count()"}), NODE)
    for size_max, counted in ((1, 0), (1000, 1)):
        bad = part_of(1, [{"time_us": 0, "n": "one"}])
        assert collapser.add_within(collapser.decoder.batches([bad]), size_max) == bool(counted)
        assert collapser.decoder.mismatches.total() == counted


def test_a_full_collapser_says_so_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 3)
    collapser = Collapser(CollapseTerms({"n": "bigint"}, ["n"], {"all": "count()"}), NODE)
    for first in (1, 2):
        few = [{"time_us": 0, "n": number} for number in (1, first)]
        for batch in collapser.decoder.batches([part_of(first, few)]):
            collapser.add(batch)
    assert not collapser.is_full
    more = [{"time_us": 0, "n": number} for number in (3, 4)]
    assert not collapser.add_within(collapser.decoder.batches([part_of(3, more)]), 1)
    assert collapser.add_within(collapser.decoder.batches([part_of(3, more)]), 1000)
    assert collapser.is_full
    assert collapser.take().to_pydict()["all"] == [3, 1, 1, 1]
    assert len(collapser.take()) == 0


def test_types_have_the_words_that_graphs_have() -> None:
    terms = CollapseTerms({"k": "string", **{word: word for word in TYPES}}, ["k"], {"n": "count()"})
    schema = Collapser(terms).decoder.schema
    assert {word: str(schema.field(word).type) for word in TYPES} == {
        "tinyint": "int8",
        "smallint": "int16",
        "int": "int32",
        "bigint": "int64",
        "float": "float",
        "double": "double",
        "string": "string",
        "boolean": "bool",
        "timestamp": "timestamp[us, tz=UTC]",
        "date": "date32[day]",
        "binary": "binary",
    }
    words = {" Long ": "bigint", "decimal(5, 2)": "decimal(5,2)", "decimal(2,5)": None, "decimal(0,0)": None}
    assert {word: normal_type(word) for word in words} == words


@pytest.mark.parametrize(
    ("columns", "by", "rules", "told"),
    [
        ({"k": "string"}, [], {"n": "count()"}, "by: is empty"),
        ({"k": "string"}, ["k"], {}, "rules: is empty"),
        ({"k": "text"}, ["k"], {"n": "count()"}, "k: 'text' is no type"),
        ({"k": "double"}, ["k"], {"n": "count()"}, "k: is double, and can't be a key"),
        ({"k": "string"}, ["j"], {"n": "count()"}, "j: is no column of the collapse; there are k"),
        ({"k": "string"}, ["k"], {"n": "sum(k)"}, r"n: 'sum\(k\)' is no rule; the rules are count"),
        ({"k": "string"}, ["k"], {"n": "total(k)"}, r"n: total\(k\) needs numbers, not string"),
        ({"k": "string"}, ["k"], {"n": "latest()"}, "n: latest needs a column"),
        ({"k": "string"}, ["k"], {"Node": "count()"}, "is the name of two columns"),
        ({"node": "string"}, ["node"], {"n": "count()"}, "node: is in every partial row; leave it out"),
        ({"type": "double"}, ["k"], {"n": "count()"}, "type: is string in every event"),
    ],
)  # fmt: skip
def test_terms_that_can_not_be_met_are_refused_by_name(
    columns: dict[str, str], by: list[str], rules: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        Collapser(CollapseTerms(columns, by, rules))
