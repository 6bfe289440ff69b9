from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

import pytest
from rich.console import Console

from tidings.cli.printing import age_text
from tidings.cli.top import DURABLES_SHOWN, _print, _watch, screen, summarize
from tidings.client import Bus
from tidings.errors import Disconnected


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
    jobs = {
        "name": "jobs",
        "messages": 1500,
        "in_flight": 0,
        "waiting": 0,
        "age_s": 61.0,
        "delayed": 7,
        "new": 1,
    }
    assert text_of(status(0), {**status(0), "queues": [idle, jobs]})[-3:] == [
        "queue  messages  delayed  in flight  readers   next",
        "jobs      1,500        7          0        0  1 min",
        "idle          0        0          2        3      –",
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


class Stand:
    """Stands for a bus: its node publishes 1,000 events between two samples, then something ends."""

    def __init__(self, samples: int, end: Callable[[], None]) -> None:
        self._left, self._end = samples, end
        self._published = 0

    async def status(self) -> dict[str, Any]:
        if self._left == 0:
            self._end()
        self._left -= 1
        self._published += 1000
        return status(self._published)


def leave() -> None:
    raise Disconnected("gone")


def bus_with(samples: int, end: Callable[[], None] = leave) -> Bus:
    return cast("Bus", Stand(samples, end))


def test_one_screen_is_printed_per_interval(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Disconnected):
        asyncio.run(_print(bus_with(samples=4), once=False, every_s=0.0, json=False))
    screens = capsys.readouterr().out.split("\n\n")
    assert [text.splitlines()[:1] for text in screens] == [["node abc"]] * 3 + [[]]
    assert ["3,000" in text for text in screens] == [False, True, False, False]


def test_as_json_one_object_is_printed_per_interval(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Disconnected):
        asyncio.run(_print(bus_with(samples=4), once=False, every_s=0.0, json=True))
    summaries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["counts"][1]["total"] for one in summaries] == [2000, 3000, 4000]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """The keyboard of a terminal that is standard input."""
    keyboard, screen = pty.openpty()
    with os.fdopen(screen) as stdin, os.fdopen(keyboard, "w") as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keys


@pytest.mark.parametrize("typed", ["q", "Q", "x-q"])
def test_q_leaves_the_live_screen(typed: str, terminal: TextIO) -> None:
    terminal.write(typed)
    terminal.flush()
    asyncio.run(_watch(bus_with(samples=-1), "here", every_s=0.001))


def test_a_terminal_that_is_gone_leaves_the_live_screen(terminal: TextIO) -> None:
    asyncio.run(_watch(bus_with(samples=3, end=terminal.close), "here", every_s=0.001))


def test_an_error_leaves_the_live_screen(terminal: TextIO) -> None:
    terminal.write("x")
    terminal.flush()
    with pytest.raises(Disconnected):
        asyncio.run(_watch(bus_with(samples=3), "here", every_s=0.0))
