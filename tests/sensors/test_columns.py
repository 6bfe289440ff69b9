from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigError
from tidings.sensors.columns import RecordingColumns, guess_columns, parse_columns

HEADER = ["timestamp", "sensor", "location", "lat", "lon", "pm10", "pm25"]
TEXT = "timestamp=timestamp,name=sensor,posx=lon,posy=lat,value:pm10=pm10,value:pm25=pm25"


def test_a_mapping_says_which_column_is_what() -> None:
    assert parse_columns(TEXT + ", room = location ") == RecordingColumns(
        "timestamp",
        "sensor",
        (("pm10", "pm10"), ("pm25", "pm25")),
        posx="lon",
        posy="lat",
        others=(("room", "location"),),
    )


def test_a_mapping_may_take_the_type_from_each_line() -> None:
    columns = parse_columns("timestamp=t,name=n,value=v,type=k")
    assert (columns.value, columns.type, columns.values) == ("v", "k", ())


def test_the_names_of_columns_suggest_a_mapping() -> None:
    assert str(guess_columns(HEADER, "file")) == TEXT
    assert str(guess_columns(["Time", "Device", "Type", "Value"], "file")) == (
        "timestamp=Time,name=Device,type=Type,value=Value"
    )


@pytest.mark.parametrize("header", [[], ["a", "b"], ["timestamp", "sensor"], ["timestamp", "pm10"]])
def test_names_that_suggest_none_are_listed(header: list[str]) -> None:
    with pytest.raises(ConfigError, match="say with --columns") as caught:
        guess_columns(header, "file")
    assert all(name in str(caught.value) for name in header)


NAMES = st.text("abcdefgh_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, NAMES, min_size=1), st.booleans(), st.dictionaries(NAMES, NAMES))
def test_a_mapping_reads_as_it_is_written(
    values: dict[str, str], has_place: bool, others: dict[str, str]
) -> None:
    place = {"posx": "x", "posy": "y"} if has_place else {}
    columns = RecordingColumns("t", "n", tuple(values.items()), **place, others=tuple(others.items()))
    assert parse_columns(str(columns)) == columns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "entry 1: must be WHAT=COLUMN"),
        ("timestamp=t,,name=n", "entry 2: must be WHAT=COLUMN"),
        ("timestamp=t,name=", "entry 2: name=: must be WHAT=COLUMN"),
        ("timestamp=t,name:x=n", "entry 2: name:x=n: only value has a type"),
        ("timestamp=t,name=n,value:=v", "entry 3: value:=v: a type has 1 to 255 characters"),
        ("timestamp=t,timestamp=u", "entry 2: timestamp=u: timestamp is given twice"),
        ("timestamp=t,name=n,value:a=x,value:a=y", "entry 4: value:a=y: value is given twice"),
        ("name=n,value:a=v", "timestamp: is missing"),
        ("timestamp=t,value:a=v", "name: is missing"),
        ("timestamp=t,name=n", "value: is missing: value:TYPE=COLUMN"),
        ("timestamp=t,name=n,value=v", "value: goes with type=COLUMN"),
        ("timestamp=t,name=n,value=v,type=k,value:a=b", "use one of them"),
        ("timestamp=t,name=n,value:a=v,posx=x", "posy: is missing"),
        ("timestamp=t,name=n,value:a=v,area=x", "area: is made from other columns"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_columns(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("--columns")


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"^x\.csv: pm10: there is no such column; there are a, b$"):
        parse_columns("timestamp=a,name=b,value:x=pm10").check(["a", "b"], "x.csv")
    with pytest.raises(ConfigError, match="several columns"):
        parse_columns("timestamp=a,name=b,value:x=c").check(["a", "b", "c", "c"], "x.csv")
