"""How long durable subscriptions have been behind: what is asked of the store for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidings.node.metrics import AGES_MAX, AT_ONCE, Ages

NOW = 1_000.0


class Store:
    """Events that were stored at the second of their position, up to 500; counts what it is asked."""

    def __init__(self) -> None:
        self.looked: list[int] = []
        self.questions = 0

    def look(self, position: int) -> int | None:
        self.looked.append(position)
        return position * 1_000_000 if position <= 500 else None

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Future[Any]:
        self.questions += 1
        found: Future[Any] = Future()
        found.set_result(question(*arguments))
        return found


def durable(name: str, cursor: int, depth: int = 1) -> dict[str, Any]:
    return {"owner": "o", "name": name, "cursor": cursor, "depth": depth}


def test_the_age_of_the_first_event_behind_the_cursor_is_told() -> None:
    store = Store()
    ages = Ages(store.look, store.ask)
    durables = [durable("a", 9), durable("b", 99), durable("there", 7, depth=0), durable("none", 500)]
    assert asyncio.run(ages.oldest_s(durables, NOW)) == {("o", "a"): 990.0, ("o", "b"): 900.0}
    assert asyncio.run(ages.oldest_s(durables[:1], 0.0)) == {("o", "a"): 0.0}


def test_cursors_at_one_place_are_looked_up_once_and_not_again_until_they_move() -> None:
    store = Store()
    ages = Ages(store.look, store.ask)
    durables = [durable(str(number), 9) for number in range(200)]
    assert len(asyncio.run(ages.oldest_s(durables, NOW))) == 200
    assert store.looked == [10]
    asyncio.run(ages.oldest_s(durables, NOW))
    assert store.looked == [10]
    asyncio.run(ages.oldest_s([*durables, durable("moved", 19)], NOW))
    assert store.looked == [10, 20]


def test_many_are_looked_up_some_at_a_time_and_not_more_than_so_many() -> None:
    store = Store()
    ages = Ages(store.look, store.ask)
    asyncio.run(ages.oldest_s([durable(str(number), number) for number in range(2 * AGES_MAX)], NOW))
    assert len(store.looked) == AGES_MAX
    assert store.questions == AGES_MAX // AT_ONCE
