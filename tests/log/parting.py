"""Live parts of arbitrary events, as a node stores them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import strategies
from hypothesis import strategies as st

from tidings import Event
from tidings.event import Origin
from tidings.event.wire import encode_events
from tidings.log.chunks import LivePart, rows_bytes

STORED_US = 1_700_000_000_000_000

odd_names = st.sampled_from(
    [
        "value", "Value", "VALUE", "date", "Date", "node", "position", "mismatches", "attributes", "stored",
        "a.b", "attributes.x", "time.x", "über", "Über", "$time", "a b", "sensing-id", "jmstype", "x'y`",
        "名前",
    ]
)  # fmt: skip
few_values = st.sampled_from([1, 2, 1.5, True, "a", "b", b"x", float("nan"), -0.0])


def events() -> st.SearchStrategy[Event]:
    """Events that are numbered, with odd names and every kind of value."""
    held = st.one_of(
        strategies.attributes(),
        st.dictionaries(odd_names, strategies.values(), max_size=6),
        st.fixed_dictionaries({"value": few_values, "sensor": st.sampled_from(["s1", "s2"])}),
    )
    return st.builds(
        lambda event, values, counter: Event.unchecked(
            counter, event.type, event.time_us, values, event.header, event.body
        ),
        strategies.events(),
        held,
        st.integers(0, 2**63 - 1),
    )


origins = st.builds(
    Origin,
    st.none() | strategies.systems,
    st.integers(0, 2**63 - 1),
    st.none() | strategies.texts.filter(bool),
)


def part_of(
    events: Sequence[Event], first: int = 1, origin: Origin | None = None, rows: Sequence[int] = ()
) -> LivePart:
    """A part of these events; `rows` are their offsets from `first` if some between them are left out."""
    whence = Origin("node", 1, "me") if origin is None else origin
    count = rows[-1] + 1 if rows else len(events)
    return LivePart(
        first,
        count,
        rows_bytes(array("I", rows)),
        whence.system,
        whence.epoch,
        whence.source,
        STORED_US + first,
        encode_events(events),
    )


@st.composite
def parts(draw: st.DrawFn) -> list[LivePart]:
    """Several parts with ascending positions, with holes between and within them."""
    made: list[LivePart] = []
    at = draw(st.integers(1, 1000))
    for held in draw(st.lists(st.lists(events(), min_size=1, max_size=4), min_size=1, max_size=3)):
        rows: list[int] = []
        if draw(st.booleans()):
            steps = draw(st.lists(st.integers(1, 5), min_size=len(held), max_size=len(held)))
            rows = [sum(steps[: place + 1]) - 1 for place in range(len(held))]
        made.append(part_of(held, at, draw(origins), rows))
        at += made[-1].count + draw(st.integers(0, 3))
    return made


def all_events(several: Sequence[LivePart]) -> list[tuple[int, Event]]:
    """Every event with its position."""
    return [pair for part in several for pair in zip(part.positions(), part.events(), strict=True)]
