"""Shares of the pairs that are reached over a trace."""

import pytest

from tidings.errors import UserError
from tidings.simulator.adhoc_reach import parse_room, parse_seconds, parse_start, reach
from tidings.simulator.contacts import Contact, trace_of

HOUR_S = 3_600.0
LINE = trace_of(
    [
        Contact("a", "b", 0.0, 0.0),
        Contact("b", "c", HOUR_S, HOUR_S),
        Contact("c", "d", 2 * HOUR_S, 2 * HOUR_S),
    ],
    20.0,
)


def test_pairs_are_reached_along_contacts_whose_times_do_not_go_back():
    report = reach(LINE, at=("0s", "1h", "90min", "end"))
    assert report.pairs == 12
    shares = {at: round(share * 12) for at, share in report.reached.items()}
    assert shares == {"0s": 2, "1h": 5, "90min": 5, "end": 9}


def test_a_later_start_leaves_earlier_contacts_out():
    report = reach(LINE, at=("end",), start="25%")
    assert report.start_s == HOUR_S / 2
    assert round(report.reached["end"] * 12) == 5
    assert reach(LINE, at=("end",), start="100%").contacts == 1


@pytest.mark.parametrize("strategy", ["direct", "epidemic", "acknowledged", "spray", "prophet"])
def test_every_strategy_runs_over_a_trace_and_none_beats_the_flood(strategy):
    reached = reach(LINE, strategy, "2").reached["end"]
    assert 0 < reached <= reach(LINE).reached["end"]


def test_times_starts_and_buffers_are_read_as_people_write_them():
    assert [parse_seconds(text) for text in ("90s", "1.5min", "6h", "2d", "7")] == [
        90,
        90,
        21_600,
        172_800,
        7,
    ]
    assert parse_start("1h", LINE) == HOUR_S
    assert [parse_room(text, 1_000) for text in ("unlimited", "50", "5MB")] == [None, 50, 5_000]


@pytest.mark.parametrize("text", ["soon", "5 weeks", "-1h", ""])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="no time"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("start", "problem"), [("101%", "no part"), ("x%", "no part"), ("end", "no contacts")]
)
def test_a_start_that_is_none_is_refused(start, problem):
    with pytest.raises(UserError, match=problem):
        parse_start(start, LINE)


def test_a_buffer_that_is_none_is_refused():
    with pytest.raises(UserError, match="no size"):
        reach(LINE, buffer="big")
