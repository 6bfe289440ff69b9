"""`tidings tour`: events, filters and matching shown on a few samples.

The tour is a list of styled lines, computed here and now by the functions that a program would call. On a
terminal they are coloured, elsewhere they are plain; either way the tour ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product

from rich.console import Console
from rich.text import Text

from tidings.cli.filter import pointer
from tidings.errors import FilterError
from tidings.event import Event
from tidings.filters import Filter
from tidings.matching import Index

HEADING, GIVEN, ANSWER, FAULT, QUIET = "bold cyan", "yellow", "green", "red", "dim"
Line = tuple[str, str]

AT = datetime(2026, 5, 1, 8, 30, tzinfo=UTC)
EVENTS = (
    Event("air.pm10", {"sensor": "quay", "value": 61.5}, time=AT),
    Event("air.pm10", {"sensor": "park", "value": 12.0}, time=AT),
    Event("air.pm25", {"sensor": "quay", "value": 18.2}, time=AT),
    Event("job", {"number": 7, "color": "blue"}, time=AT, priority=9),
)
FILTERS = (
    "type = 'air.pm10' AND value > 40",
    "type LIKE 'air.%' AND sensor IN ('quay', 'bridge')",
    "value BETWEEN 10 AND 20",
    "priority > 4 OR sensor IS NULL",
    "NOT value > 40",
)
PAIRS = (
    ("value > 10", "value > 40"),
    ("value < 10", "value > 40"),
    ("value > 10", "value = 10"),
    ("value BETWEEN 0 AND 20", "value BETWEEN 10 AND 30"),
)
MISTAKE = "type = 'air.pm10' AND value => 40"
STREETS, LIMITS = 100, range(5, 105)


def show_tour() -> None:
    """Print the tour on standard output."""
    console = Console(highlight=False, soft_wrap=True)
    for style, text in tour():
        console.print(Text(text, style=style if console.is_terminal else ""))


def tour() -> Iterator[Line]:
    """All lines of the tour, in order."""
    yield from show_events()
    yield from show_matches()
    yield from show_relations()
    yield from show_index()
    yield from show_mistake()


def show_events() -> Iterator[Line]:
    """The sample events."""
    yield HEADING, "Events have a type, attributes and a header"
    for number, event in enumerate(EVENTS, start=1):
        attributes = ", ".join(f"{name}={value!r}" for name, value in event.attributes.items())
        yield GIVEN, f"  {number}  {event.type:<9} priority {event.priority}  {attributes}"


def show_matches() -> Iterator[Line]:
    """Which sample filter matches which sample event."""
    yield HEADING, "\nFilters are conditions in SQL, over attributes and header alike"
    for text in FILTERS:
        wanted = Filter(text)
        hits = [str(number) for number, event in enumerate(EVENTS, start=1) if wanted.matches(event)]
        yield GIVEN, f"  {text}"
        yield ANSWER, f"      matches {', '.join(hits) or 'none'}"
    yield QUIET, "  A job has no value: whether it is above 40 is unknown, and so is the contrary."


def show_relations() -> Iterator[Line]:
    """How filters are compared and merged without looking at any event."""
    yield HEADING, "\nFilters can be compared and merged"
    for first, second in PAIRS:
        one, other = Filter(first), Filter(second)
        yield GIVEN, f"  {first}   and   {second}"
        yield ANSWER, f"      the first {relation(one, other)} the second; merged: {one.merge(other)}"


def relation(one: Filter, other: Filter) -> str:
    """The closest relation of one filter to another, as a verb."""
    if one.covers(other):
        return "covers"
    return "overlaps" if one.overlaps(other) else "has nothing in common with"


def show_index() -> Iterator[Line]:
    """One event against ten thousand filters."""
    yield HEADING, "\nAn index finds the filters that match an event, however many there are"
    yield GIVEN, f"  {STREETS * len(LIMITS):,} filters such as: street = 42 AND value > 7"
    yield GIVEN, "  an event with street=42, value=8.5"
    yield QUIET, "  (the first time ever, the index is compiled for this machine: some seconds)"
    index: Index[tuple[str, int]] = Index()
    for street, limit in product(range(STREETS), LIMITS):
        index.add((f"street {street}", limit), Filter("street = :s AND value > :v", s=street, v=limit))
    keys = index.match(Event("air.pm10", {"street": 42, "value": 8.5}, time=AT))
    yield ANSWER, f"      wanted by {', '.join(f'{street} above {limit}' for street, limit in sorted(keys))}"


def show_mistake() -> Iterator[Line]:
    """What a mistyped filter is answered with."""
    yield HEADING, "\nA mistake is shown where it stands"
    try:
        Filter(MISTAKE)
    except FilterError as error:
        for line in pointer(MISTAKE, error).splitlines():
            yield GIVEN, f"  {line}"
        yield FAULT, f"  {error}"
