from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tidings.cli.printing import age_text
from tidings.cli.top import DURABLES_SHOWN, screen, summarize


def status(published: int, dropped: int = 0, durables: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "node": "abc",
        "sessions": 2,
        "subscriptions": 1234,
        "advertisements": 0,
        "position": 99,
        "counts": [["dropped", "slow", dropped], ["published", "", published]],
        "durables": durables or [],
    }


def text_of(before: dict[str, Any], after: dict[str, Any], seconds: float = 2.0) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=100).print(screen(summarize(10.0, before, 10.0 + seconds, after)))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_screen_has_rates_and_totals() -> None:
    assert text_of(status(1000), status(5000, 10)) == [
        "node abc",
        "2 connections   1,234 subscriptions   0 advertisements   position 99",
        "counted    reason  each second  in all",
        "dropped    slow              5      10",
        "published                2,000   5,000",
        "no durable subscriptions",
    ]


def test_durable_subscriptions_come_deepest_first() -> None:
    durables: list[dict[str, Any]] = [
        {"name": "a", "owner": "x", "depth": 0, "cursor": 9},
        {"name": "b [red]", "owner": "", "depth": 1500, "cursor": 9, "oldest_age_s": 7300.0},
    ]
    assert text_of(status(0), status(0, durables=durables))[-3:] == [
        "durable subscription  owner  waiting  oldest",
        "b [red]                        1,500     2 h",
        "a                     x            0       –",
    ]


def test_queues_come_fullest_first() -> None:
    idle = {"name": "idle", "messages": 0, "in_flight": 2, "waiting": 3, "age_s": 0.0}
    jobs = {"name": "jobs", "messages": 1500, "in_flight": 0, "waiting": 0, "age_s": 61.0}
    assert text_of(status(0), {**status(0), "queues": [idle, jobs]})[-3:] == [
        "queue  messages  in flight  readers   next",
        "jobs      1,500          0        0  1 min",
        "idle          0          2        3      –",
    ]


def test_peers_are_shown_where_there_are_any() -> None:
    peers = [
        {"name": "attic", "state": "away", "waiting": 1200, "for_s": 61.0, "node": "", "error": "gone"},
        {"name": "kitchen", "state": "there", "waiting": 0, "for_s": 5.0, "node": "abc", "error": ""},
    ]
    assert text_of(status(0), {**status(0), "peers": peers})[-3:] == [
        "peer     state    for  waiting",
        "attic    away   1 min    1,200",
        "kitchen  there    5 s        0",
    ]


def test_of_very_many_durable_subscriptions_the_rest_is_counted() -> None:
    durables = [
        {"name": f"d{number:03}", "owner": "", "depth": 1, "cursor": 0}
        for number in range(DURABLES_SHOWN + 7)
    ]
    assert text_of(status(0), status(0, durables=durables))[-1] == "and 7 more"


def test_a_node_that_began_anew_has_no_negative_rates() -> None:
    summary = summarize(0.0, status(5000), 1.0, status(10))
    assert [one.per_s for one in summary.counts] == [0, 0]


@pytest.mark.parametrize(
    ("age_s", "text"), [(None, "–"), (0.2, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (90_000.0, "1 d")]
)
def test_ages_are_told_in_their_unit(age_s: float | None, text: str) -> None:
    assert age_text(age_s) == text
