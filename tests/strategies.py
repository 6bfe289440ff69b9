"""Arbitrary events for properties: every kind of value, name and header field that an event may have."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from hypothesis import strategies as st

from tidings.event import RESERVED, Event, Origin, Value

texts = st.text(max_size=20)
names = st.one_of(
    st.sampled_from(
        ["value", "name", "pos.x", "n", "ce.priority", "data", "dataschema", "tidings", "über", "$time"]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12),
).filter(lambda name: name not in RESERVED)
segments = st.text(st.sampled_from("abcxyz019_-é"), min_size=1, max_size=8)
types = st.lists(segments, min_size=1, max_size=4).map(".".join)
moments = st.datetimes(timezones=st.just(UTC))
systems = st.text(st.sampled_from("abc019_-"), min_size=1, max_size=16)
lives = st.none() | st.floats(0, 1e300)


def values() -> st.SearchStrategy[Value]:
    """Any value an attribute may hold."""
    return st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-5, 5),
        st.floats(),
        texts,
        moments,
        st.binary(max_size=20),
    )


def attributes(max_size: int = 6) -> st.SearchStrategy[dict[str, Value]]:
    """Flat attributes."""
    return st.dictionaries(names, values(), max_size=max_size)


def header_fields() -> st.SearchStrategy[dict[str, object]]:
    """Header fields as keywords of the constructor; None where one is not set."""
    maybe = st.none() | texts
    return st.fixed_dictionaries(
        {"time": moments},
        optional={
            "id": texts.filter(bool),
            "source": texts.filter(bool),
            "received": moments,
            "channel": maybe,
            "subject": maybe,
            "priority": st.integers(0, 9),
            "ttl_s": lives,
            "keep_s": lives,
            "delivery": st.sampled_from(["transient", "reliable", "persistent"]),
            "route": st.sampled_from(["auto", "direct", "epidemic"]),
            "reliability": st.none() | st.floats(0, 1),
            "reply_to": maybe,
            "correlation_id": maybe,
            "object_class": maybe,
            "body": st.none()
            | st.binary(max_size=30)
            | st.sampled_from([b'{"a":1}', b"null", b"1.50", b"text"]),
            "content_type": maybe
            | st.sampled_from(["text/plain", "application/json", "image/png", "a/b+json"]),
        },
    )


def events() -> st.SearchStrategy[Event]:
    """Events that are not numbered, as callers make them."""
    return st.builds(
        lambda kind, held, fields: Event(kind, held, **fields), types, attributes(), header_fields()
    )


def origins() -> st.SearchStrategy[Origin | None]:
    """Where events come from, or nowhere."""
    return st.none() | st.builds(
        Origin, st.none() | systems, st.integers(0, 2**63 - 1), st.none() | texts.filter(bool)
    )


def numbered_events() -> st.SearchStrategy[Event]:
    """Events as they stand in a node: with a number and an origin."""
    return st.builds(_numbered, events(), st.integers(0, 2**63 - 1), origins())


def _numbered(event: Event, counter: int, origin: Origin | None) -> Event:
    return Event.unchecked(counter, event.type, event.time_us, event.values, event.header, event.body, origin)


def damaged(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes with a few of them changed, left out, doubled or cut off, or with junk behind them."""
    return st.builds(
        _damage, whole, st.lists(st.tuples(st.integers(0, 4), st.integers(0), st.binary(max_size=4)))
    )


def _damage(raw: bytes, harms: list[tuple[int, int, bytes]]) -> bytes:
    for kind, place, junk in harms:
        at = place % (len(raw) + 1)
        if kind == 0:
            raw = raw[:at] + junk + raw[at + len(junk) :]
        elif kind == 1:
            raw = raw[:at] + raw[at + 1 :]
        elif kind == 2:
            raw = raw[:at] + raw[at : at + 3] + raw[at:]
        else:
            raw = raw[:at] if kind == 3 else raw + junk
    return raw


def identical(left: Event, right: Event) -> bool:
    """Whether two events are the same down to the kinds of their values, and NaN is NaN."""
    return _fields(left) == _fields(right)


def _fields(event: Event) -> tuple[object, ...]:
    held = {name: _exact(value) for name, value in event.values.items()}
    return event.counter, event.type, event.time_us, held, event.header, event.body, event.origin


def _exact(value: Value) -> tuple[object, ...]:
    if isinstance(value, float):
        return float, "nan" if math.isnan(value) else value.hex()
    if isinstance(value, datetime):
        return datetime, value.isoformat()
    return type(value), value


__all__ = [
    "attributes",
    "damaged",
    "events",
    "header_fields",
    "identical",
    "moments",
    "names",
    "numbered_events",
    "origins",
    "systems",
    "texts",
    "types",
    "values",
]
