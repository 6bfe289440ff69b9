from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import Event
from tidings.cli.events import read_fields, read_value
from tidings.cli.printing import line_of
from tidings.cli.pubsub import read_since
from tidings.errors import UserError


@given(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
def test_a_value_written_as_json_is_read_as_it_was(value: Any) -> None:
    read = read_value(msgspec.json.encode(value).decode())
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["quay", "", "two words", "1.2.3", "[1]", "{}", "null", "'", '"', "nan", "01"]
)
def test_what_is_no_number_truth_or_quoted_text_stays_as_it_stands(text: str) -> None:
    assert read_value(text) == text


def test_only_the_first_equals_sign_parts_name_and_value() -> None:
    assert read_fields(["a=b=c", "n=1"]) == {"a": "b=c", "n": 1}


@pytest.mark.parametrize("field", ["value", "=1", ""])
def test_a_field_without_a_name_or_a_value_is_refused(field: str) -> None:
    with pytest.raises(UserError, match="is not NAME=VALUE"):
        read_fields([field])


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("17", 17),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T08:30Z", datetime(2026, 5, 1, 8, 30, tzinfo=UTC)),
        ("2026-05-01T08:30+02:00", datetime(2026, 5, 1, 8, 30, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_a_beginning_is_a_position_or_a_time(text: str, since: int | datetime) -> None:
    assert read_since(text) == since


@given(st.text(), st.binary())
def test_no_event_breaks_its_line(text: str, data: bytes) -> None:
    event = Event("a", {"text": text.encode(errors="replace").decode(), "data": data})
    line = line_of(event)
    assert line.isprintable()
