"""The walk that all back ends of a filter tree share."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tidings import Event, Filter
from tidings.filters.evaluate import Read, Tests
from tidings.filters.fold import Fold
from tidings.filters.text import write
from tidings.filters.tree import Condition, Expression, Name, Not

EVERY_KIND = [
    "a AND b",
    "a OR b",
    "NOT a",
    "a",
    "TRUE",
    "a = 1",
    "a < b",
    "a BETWEEN 1 AND 2",
    "a IN (1, 2)",
    "a IS NULL",
    "a LIKE 'x'",
]
EVERY_VALUE = ["a < b", "a < b + 1", "a < -b", "a < DISTANCE(x, y, 1, 2)"]


class Kinds(Tests):
    """Notes what it has been asked for."""

    def __init__(self) -> None:
        self.seen: set[type[Any]] = set()

    def condition(self, node: Condition) -> Any:
        self.seen.add(type(node))
        return super().condition(node)

    def value(self, node: Expression) -> Read:
        self.seen.add(type(node))
        return super().value(node)


def test_the_walk_reaches_every_kind_of_node() -> None:
    kinds = Kinds()
    for text in EVERY_KIND + EVERY_VALUE:
        kinds.condition(Filter(text).condition)
    assert kinds.seen == {*get_args(Condition), *get_args(Expression)}


def test_a_back_end_that_lacks_a_kind_of_node_cannot_be_made() -> None:
    class Unfinished(Fold[str, str]):
        pass

    with pytest.raises(TypeError, match="compared_with"):
        Unfinished()  # type: ignore[abstract]


def test_a_back_end_may_read_names_in_its_own_way() -> None:
    class FromBody(Tests):
        def named(self, name: str) -> Read:
            return lambda event: event.body and event.body.decode() + name

    test = FromBody().condition(Filter("a = 'xa' AND b IN ('xb', 'y') AND NOT (c IS NULL)").condition)
    assert test(Event("t", {}, body=b"x")) is True


def test_a_doubled_not_is_written_twice() -> None:
    assert write(Not(Not(Name("a")))) == "NOT NOT a"
