"""Spaces: tuples and events by content, templates of every form, and the words of TSpaces."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
import strategies
from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

import tidings
from client.nodes import run
from tidings import Event, Filter
from tidings.client import Bus, Space
from tidings.client.tuples import FIELDS_MAX, TUPLE, Template, found, written
from tidings.errors import EventError, FilterError, QueueEmpty, QueueExists, QueueNotFound, UserError

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
KINDS = [bool, int, float, str, datetime, bytes]

Work = Callable[[Bus, Space], Awaitable[None]]


def with_space(work: Work, **wish: Any) -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus, await bus.space("board", **wish))

    run(within())


class Color(IntEnum):
    RED = 1


def exactly(entry: Any) -> list[Any]:
    """The values of a tuple with their types, so that 1 is not 1.0, and NaN is NaN."""
    return [(type(value), repr(value) if isinstance(value, float) else value) for value in entry]


# -- the space itself


def test_a_space_is_a_queue_that_is_made_if_it_is_not_there() -> None:
    async def work(bus: Bus, space: Space) -> None:
        assert (space.name, space.description.expiry, space.description.text) == ("board", True, "notes")
        await space.write(("a", 1))
        assert await (await bus.space("board")).scan() == [("a", 1)]
        assert await (await bus.space("board", text="notes")).scan() == [("a", 1)]
        with pytest.raises(QueueExists, match="text is 'notes', not 'other'"):
            await bus.space("board", text="other")
        assert repr(space) == "<Space 'board'>"

    with_space(work, text="notes")


def test_a_queue_is_a_space_and_a_space_a_queue() -> None:
    async def work(bus: Bus, space: Space) -> None:
        queue = await bus.create_queue("jobs", expiry=True)
        await bus.create_alias("work", "jobs")
        await queue.put("job", n=1)
        jobs = await bus.space("work")
        assert (await jobs.take({"n": 1}))["n"] == 1
        await jobs.write(("a", 2))
        assert (await queue.get())["int_1"] == 2
        await bus.delete_queue("jobs")
        with pytest.raises(QueueNotFound):
            await jobs.write(("a", 3))

    with_space(work)


def test_a_store_is_chosen_for_each_space(tmp_path: Path) -> None:
    async def found(write: bool) -> dict[str, list[Any]]:
        async with tidings.open(tmp_path) as bus:
            spaces = [await bus.space(type, type=type) for type in ("sqlite", "volatile")]
            assert [one.description.type for one in spaces] == ["sqlite", "volatile"]
            for one in spaces if write else ():
                await one.write(("a", 1))
            return {one.name: await one.scan() for one in spaces}

    assert run(found(write=True)) == {"sqlite": [("a", 1)], "volatile": [("a", 1)]}
    assert run(found(write=False)) == {"sqlite": [("a", 1)], "volatile": []}


# -- entries


def test_the_values_of_a_tuple_come_out_with_the_types_they_went_in_with() -> None:
    async def work(bus: Bus, space: Space) -> None:
        entry = ("hello", 3, 3.0, True, b"\0\xff", NOON, -0.0, False, 2**63 - 1, "", math.inf)
        await space.write(entry)
        taken = await space.take()
        assert exactly(taken) == exactly(entry)

    with_space(work)


@given(st.lists(strategies.values(), max_size=8).map(tuple))
def test_every_tuple_of_values_is_found_again(entry: tuple[Any, ...]) -> None:
    again = found(written(entry))
    assert isinstance(again, tuple)
    assert exactly(again) == exactly(entry)


def test_a_tuple_may_be_empty_or_long() -> None:
    async def work(bus: Bus, space: Space) -> None:
        long = tuple(range(FIELDS_MAX))
        for entry in ((), long):
            await space.write(entry)
        assert await space.take(()) == ()
        assert await space.take(long) == long

    with_space(work)


def test_a_time_comes_out_in_utc_and_a_number_of_another_class_as_a_plain_one() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write((NOON.astimezone(timezone(timedelta(hours=2))), Color.RED, bytearray(b"a")))
        taken = await space.take()
        assert exactly(taken) == exactly((NOON, 1, b"a"))
        assert taken[0].tzinfo is UTC

    with_space(work)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (("a", None), r"\$\[1\]: NoneType is not a value"),
        (("a", ...), r"\$\[1\]: ellipsis is not a value"),
        (("a", int), r"\$\[1\]: type is not a value"),
        (("a", ("b",)), r"\$\[1\]: tuple is not a value"),
        ((2**63,), r"\$\[0\]: 9223372036854775808 does not fit"),
        ((0,) * (FIELDS_MAX + 1), "has 1000 fields"),
        ({"radius": 3}, r"\$\.type: is missing"),
        (["a", 1], "not list"),
        ("a", "not str"),
        (None, "not NoneType"),
        (Template(("a",)), "not Template"),
    ],
)
def test_what_is_no_entry_is_refused_by_its_place(entry: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        written(entry)


def test_events_and_mappings_come_out_as_events() -> None:
    async def work(bus: Bus, space: Space) -> None:
        event = Event("shape.circle", {"radius": 2.0}, priority=7, body=b"art", subject="s")
        await space.write(event)
        await space.write({"type": "shape.square", "side": 3, "at": {"x": 1}, "priority": 2})
        circle, square = await space.scan()
        assert (circle.type, circle.attributes, circle.priority, circle.body, circle.subject) == (
            ("shape.circle", {"radius": 2.0}, 7, b"art", "s")
        )
        assert circle.time == event.time
        assert circle.received is not None
        assert (square.type, square.attributes, square.priority) == (
            ("shape.square", {"side": 3, "at.x": 1}, 2)
        )

    with_space(work)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"length": 1},
        {"int_0": 1},
        {"length": 2, "int_0": 1},
        {"length": 1, "str_0": 1},
        {"length": 1, "n": 1},
    ],
)
def test_an_event_that_only_looks_like_a_tuple_comes_out_as_an_event(attributes: dict[str, Any]) -> None:
    event = Event(TUPLE, attributes)
    assert found(event) is event


# -- templates for tuples


def agrees(field: Any, value: Any) -> bool:
    """What a field of a template means, in plain words."""
    if field is None or field is ... or field is object:
        return True
    if isinstance(field, type):
        return type(value) is field
    return type(value) is type(field) and value == field


def matches(template: tuple[Any, ...], entry: tuple[Any, ...]) -> bool:
    return len(template) == len(entry) and all(map(agrees, template, entry))


fields = st.one_of(
    strategies.values(),
    st.sampled_from([0, 1, 0.0, 1.0, -0.0, True, False, "", "a", b"", b"a", math.inf, -math.inf, NOON]),
)
tuples = st.lists(fields, max_size=4).map(tuple)


@st.composite
def templates(draw: st.DrawFn, near: tuple[Any, ...]) -> tuple[Any, ...]:
    """Templates that have a good chance to match a tuple."""
    made = [
        draw(
            st.one_of(
                st.just(value), st.just(type(value)), st.sampled_from([..., None, object, *KINDS]), fields
            )
        )
        for value in near
    ]
    made += draw(st.lists(st.just(...), max_size=1))
    return tuple(field for field in made if not (isinstance(field, float) and math.isnan(field)))


@given(st.data())
def test_a_template_matches_exactly_what_it_says(data: st.DataObject) -> None:
    entry = data.draw(tuples)
    template = data.draw(templates(entry))
    assert Template(template).filter.matches(written(entry)) is matches(template, entry)


@settings(max_examples=often(20))
@given(st.data())
def test_a_space_finds_exactly_what_a_template_says(data: st.DataObject) -> None:
    entries = data.draw(st.lists(tuples, min_size=1, max_size=25))
    asked = [data.draw(templates(data.draw(st.sampled_from(entries)))) for _ in range(3)]

    async def work(bus: Bus, space: Space) -> None:
        for entry in entries:
            await space.write(entry)
        for template in asked:
            wanted = [entry for entry in entries if matches(template, entry)]
            assert list(map(exactly, await space.scan(template))) == list(map(exactly, wanted))
            assert await space.count(template) == len(wanted)
        one, other = asked[:2]
        either = [entry for entry in entries if matches(one, entry) or matches(other, entry)]
        assert list(map(exactly, await space.scan(space.template(one) | other))) == list(map(exactly, either))
        assert list(map(exactly, await space.take_all(asked[2]))) == list(map(exactly, wanted))
        assert await space.count() == len(entries) - len(wanted)

    with_space(work)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        (("a", list), r"\$\[1\]: list is no type of value"),
        (("a", Color), r"\$\[1\]: Color is no type of value"),
        (("a", [1]), r"\$\[1\]: list is not a value"),
        ((math.nan,), r"\$\[0\]: NaN is equal to nothing"),
        ((0,) * (FIELDS_MAX + 1), "has 1000 fields"),
        (3, "not int"),
        (["a"], "not list"),
        ("int_0 >", "line 1"),
        ({"n": math.inf}, r"\$\.n: inf"),
    ],
)
def test_what_is_no_template_is_refused_by_its_place(template: Any, problem: str) -> None:
    with pytest.raises((FilterError, EventError), match=problem):
        Template(template)


# -- templates for events


def found_by(template: Any, *entries: Any) -> list[int]:
    """The places of the entries that a template matches."""
    wanted = Template(template).filter
    return [place for place, entry in enumerate(entries) if wanted.matches(written(entry))]


def test_what_an_event_or_mapping_says_must_agree_and_the_rest_is_open() -> None:
    entries = (
        Event("shape", color="red", side=3),
        Event("shape.circle", color="red", side=4.5, priority=9),
        Event("shape.circle", color="blue", body=b"art"),
        ("shape", "red"),
    )
    assert found_by(Event("shape", color="red"), *entries) == [0, 1]
    assert found_by(Event("shape.circle"), *entries) == [1, 2]
    assert found_by(Event("shape", priority=9), *entries) == [1]
    assert found_by(Event("shape", body=b"art"), *entries) == [2]
    assert found_by({"color": "red"}, *entries) == [0, 1]
    assert found_by({"type": "shape", "color": None, "side": int}, *entries) == [0, 1]
    assert found_by({"type": None, "color": str}, *entries) == [0, 1, 2]
    assert found_by({"type": str}, *entries) == [0, 1, 2, 3]
    assert found_by("side > 3 OR int_0 > 3", *entries) == [1]
    assert found_by(Filter("color = :c", c="blue"), *entries) == [2]
    assert found_by(None, *entries) == found_by({}, *entries) == found_by("", *entries) == [0, 1, 2, 3]


def test_an_entry_that_was_read_is_a_template_for_its_like() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(Event("shape", side=3), lease_s=30)
        await space.write(Event("shape", side=3), lease_s=60)
        await space.write(Event("shape", side=4))
        entry = await space.read()
        assert [like["side"] for like in await space.take_all(entry)] == [3, 3]

    with_space(work)


def test_templates_are_joined_by_and_and_or() -> None:
    async def work(bus: Bus, space: Space) -> None:
        for n in range(6):
            await space.write(("a", n))
        await space.write(Event("shape", n=1))
        small, large = space.template("int_1 < 2"), space.template("int_1 > 3")
        assert await space.scan(small | large) == [("a", 0), ("a", 1), ("a", 4), ("a", 5)]
        assert await space.scan(small & ("a", 1)) == [("a", 1)]
        assert await space.scan(space.template(("a", int)) & "int_1 >= 5") == [("a", 5)]
        assert await space.scan(space.template(("a", 0)) | ("a", 5)) == [("a", 0), ("a", 5)]
        assert await space.count(space.template(("a", 0)) | Event("shape")) == 2
        assert await space.count(space.template(type="shape", n=int)) == 1
        assert await space.count(space.template(Event("shape"), n=2)) == 0
        assert await space.count(space.template()) == await space.count() == 7

    with_space(work)


def test_a_template_that_contradicts_itself_is_refused() -> None:
    one = Template(("a", int))
    for other in (("b", int), ("a",), ("a", "text", ...), "type = 'shape'"):
        with pytest.raises(FilterError, match="no entry can match"):
            one & other
    with pytest.raises(FilterError, match="no entry can match"):
        Template("n > 3 AND n < 2")


def test_a_template_says_what_it_means() -> None:
    assert repr(Template(("a", int, ...))) == (
        "<Template type = 'tidings.tuple' AND length = 3 AND str_0 = 'a' AND int_1 IS NOT NULL>"
    )


# -- the words


def test_scan_take_all_and_count_mean_all_that_match() -> None:
    async def work(bus: Bus, space: Space) -> None:
        for n in range(2_500):
            await space.write((("even", "odd")[n % 2], n))
        assert await space.count(("odd", int)) == 1_250
        assert await space.scan(("odd", int)) == [("odd", n) for n in range(1, 2_500, 2)]
        assert await space.take_all(("even", int)) == [("even", n) for n in range(0, 2_500, 2)]
        assert await space.count() == 1_250
        assert await space.take_all(("even", int)) == []

    with_space(work)


def test_a_long_entry_comes_out_whole() -> None:
    async def work(bus: Bus, space: Space) -> None:
        body = bytes(range(256)) * 12_000
        lease = await space.write(Event("film", body=body), lease_s=60)
        assert await lease.renew(90) == 90
        assert (await space.take(Event("film"))).body == body

    with_space(work)


def test_entries_and_leases_outlive_the_node(tmp_path: Any) -> None:
    async def work() -> None:
        async with tidings.open(tmp_path) as bus:
            space = await bus.space("board")
            await space.write(("a", 1), lease_s=60)
            await space.write(("a", 2))
        async with tidings.open(tmp_path) as bus:
            space = await bus.space("board")
            assert await space.scan(("a", int)) == [("a", 1), ("a", 2)]
            assert [event.ttl_s for event in await space.queue.headers()] == [60, None]

    run(work())


def test_a_watch_ends_with_its_block_or_its_queue() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with space.watch(("a", int), prefetch=10, on_slow="block") as entries:
            for n in range(30):
                await space.write(("a", n))
            assert [await anext(entries) for _ in range(30)] == [("a", n) for n in range(30)]
            assert entries.copies.dropped == 0
            await bus.delete_queue("board")
            with pytest.raises(tidings.errors.Refused, match="deleted"):
                await anext(entries)

    with_space(work)


# -- without await


def test_a_space_without_await() -> None:
    with tidings.blocking.open() as bus:
        space = bus.space("board", lease_s_max=60)
        assert (space.name, repr(space), space.description.lease_s_max) == ("board", "<Space 'board'>", 60)
        assert space.queue.is_empty()
        lease = space.write(("a", 1), lease_s=90)
        assert (lease.granted_s, repr(lease)) == (60, "<Lease 60 s>")
        assert lease.renew(30) == lease.granted_s == 30
        lease.cancel()
        assert space.count() == 0
        mine = space.snapshot(("a", int))
        with space.watch(mine) as entries:
            for n in range(6):
                space.write(("a", n))
            coming = iter(entries)
            assert [next(coming) for _ in range(6)] == [("a", n) for n in range(6)]
            assert entries.copies.dropped == 0
        assert space.read(mine) == space.take(mine) == ("a", 0)
        assert space.read_if_exists(mine) == space.take_if_exists(mine) == ("a", 1)
        with bus.transaction() as tx:
            space.write(("a", 9), transaction=tx)
            assert space.take(("a", 2), transaction=tx) == ("a", 2)
            assert space.count(mine, transaction=tx) == len(space.scan(mine, transaction=tx)) == 4
            tx.rollback()
        assert space.scan(space.template("int_1 > 3") | ("a", 2)) == [("a", 2), ("a", 4), ("a", 5)]
        assert len(space.take_all()) == 4
        with pytest.raises(QueueEmpty):
            space.take(mine, timeout_s=0)
