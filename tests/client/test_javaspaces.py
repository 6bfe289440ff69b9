"""The rules of JavaSpaces, one test each, on a node in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import pytest

import tidings
from client.nodes import run
from tidings import Event, Filter
from tidings.client import Bus, Space
from tidings.client.tuples import Entry
from tidings.errors import MessageNotHeld, QueueEmpty, UserError

WAITING = 5_000
"""Takes that wait at the same time."""

Work = Callable[[Bus, Space], Awaitable[None]]


def with_space(work: Work, **wish: Any) -> None:
    async def within() -> None:
        async with tidings.open() as bus:
            await work(bus, await bus.space("board", **wish))

    run(within())


async def begin(space: Space, *takings: Coroutine[Any, Any, Entry]) -> list[asyncio.Task[Entry]]:
    """Tasks that wait at the node, for what is there not yet."""
    count = (await space.queue.describe()).waiting + len(takings)
    tasks = [asyncio.create_task(taking) for taking in takings]
    while (await space.queue.describe()).waiting < count:
        assert not any(task.done() for task in tasks)
    return tasks


# -- leases


def test_a_lease_is_granted_as_it_was_asked_for() -> None:
    async def work(bus: Bus, space: Space) -> None:
        assert (await space.write(("a", 1), lease_s=60)).granted_s == 60
        assert (await space.write(("a", 2))).granted_s is None
        assert (await space.write(Event("a", ttl_s=30))).granted_s == 30
        assert (await space.write(Event("a", ttl_s=30), 20)).granted_s == 20
        assert [event.ttl_s for event in await space.queue.headers()] == [60, None, 30, 20]

    with_space(work)


def test_the_space_may_shorten_a_lease() -> None:
    async def work(bus: Bus, space: Space) -> None:
        assert (await space.write(("a", 1), lease_s=60)).granted_s == 50
        assert (await space.write(("a", 2), lease_s=40)).granted_s == 40
        assert (await space.write(("a", 3))).granted_s == 50
        assert [event.ttl_s for event in await space.queue.headers()] == [50, 40, 50]

    with_space(work, lease_s_max=50)


def test_the_space_may_have_a_lease_for_entries_without_one() -> None:
    async def work(bus: Bus, space: Space) -> None:
        assert (await space.write(("a", 1))).granted_s == 20
        assert (await space.write(("a", 2), lease_s=40)).granted_s == 40
        assert [event.ttl_s for event in await space.queue.headers()] == [20, 40]

    with_space(work, ttl_s=20)


def test_an_entry_is_gone_when_its_lease_is_over() -> None:
    async def work(bus: Bus, space: Space) -> None:
        reports = await bus.create_queue("reports")
        await space.write(Event("a", report="expired", reply_to="reports"), lease_s=0.01)
        await space.write(Event("b"), lease_s=60)
        assert (await reports.get(timeout_s=20)).type == "report.expired"
        assert [entry.type for entry in await space.scan()] == ["b"]

    with_space(work)


def test_a_lease_that_was_shortened_is_over_sooner() -> None:
    async def work(bus: Bus, space: Space) -> None:
        reports = await bus.create_queue("reports")
        lease = await space.write(Event("a", report="expired", reply_to="reports"), lease_s=60)
        assert lease.granted_s == 0.01
        await reports.get(timeout_s=20)
        assert await space.count() == 0

    with_space(work, lease_s_max=0.01)


def test_a_lease_is_renewed_from_now_on() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(("a", 1), lease_s=30)
        await space.write(("a", 2), lease_s=30)
        assert await lease.renew(60) == lease.granted_s == 60
        first, second = await space.queue.headers()
        assert first.ttl_s >= 60
        assert second.ttl_s == 30
        assert await space.scan() == [("a", 1), ("a", 2)]

    with_space(work)


def test_a_renewed_lease_may_be_shortened_too() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(("a", 1), lease_s=30)
        assert await lease.renew(60) == lease.granted_s == 50

    with_space(work, lease_s_max=50)


def test_an_entry_whose_lease_is_cancelled_is_gone() -> None:
    async def work(bus: Bus, space: Space) -> None:
        kept = await space.write(("a", 1))
        lease = await space.write(("a", 1))
        await lease.cancel()
        assert lease.granted_s == 0
        assert await space.count() == 1
        await kept.cancel()
        assert await space.count() == 0

    with_space(work)


def test_the_lease_of_an_entry_that_is_gone_is_over() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(("a", 1), lease_s=60)
        await space.take(("a", 1))
        for again in (lease.renew(60), lease.cancel()):
            with pytest.raises(MessageNotHeld, match="board"):
                await again

    with_space(work)


def test_the_lease_of_an_entry_that_is_written_anew_is_a_new_one() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(Event("a"))
        entry = await space.read()
        lease = await space.write(entry)
        await lease.cancel()
        assert await space.count() == 1
        assert (await space.read()).id == entry.id

    with_space(work)


def test_an_id_from_outside_is_kept_and_its_lease_found_by_it() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(Event("a", id="outside-1"), lease_s=30)
        assert (await space.read()).id == "outside-1"
        assert await lease.renew(60) == 60

    with_space(work)


@pytest.mark.parametrize("lease_s", [-1, 0, 0.0, float("nan"), float("inf"), True, "60", 1e11])
def test_what_is_no_lease_is_refused_by_name(lease_s: Any) -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(("a", 1))
        with pytest.raises(UserError, match=f"lease_s={lease_s!r}"):
            await space.write(("a", 1), lease_s=lease_s)
        with pytest.raises(UserError, match=f"lease_s={lease_s!r}"):
            await lease.renew(lease_s)
        assert await space.count() == 1

    with_space(work)


def test_an_entry_without_any_time_to_live_is_refused_by_name() -> None:
    async def work(bus: Bus, space: Space) -> None:
        with pytest.raises(UserError, match=r"ttl_s=0\.0"):
            await space.write(Event("a", ttl_s=0))

    with_space(work)


def test_there_are_no_leases_in_a_queue_that_ignores_them() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(Event("a", ttl_s=30))
        assert lease.granted_s is None
        with pytest.raises(UserError, match="never expire"):
            await space.write(("a", 2), lease_s=60)
        with pytest.raises(UserError, match="never expire"):
            await lease.renew(60)
        await lease.cancel()
        assert await space.count() == 0

    with_space(work, expiry=False)


# -- read and take


def test_read_leaves_the_entry_and_take_takes_it() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        assert await space.read(("a", int)) == ("a", 1)
        assert await space.take(("a", int)) == ("a", 1)
        assert await space.count() == 0

    with_space(work)


def test_a_take_that_waits_is_answered_by_a_later_write() -> None:
    async def work(bus: Bus, space: Space) -> None:
        (taking,) = await begin(space, space.take(("b", int)))
        await space.write(("a", 1))
        await space.write(("b", 2))
        assert await taking == ("b", 2)
        assert await space.scan() == [("a", 1)]

    with_space(work)


def test_reads_that_wait_are_all_answered_by_one_write_and_leave_it() -> None:
    async def work(bus: Bus, space: Space) -> None:
        readings = await begin(space, *(space.read(("a", int)) for _ in range(3)))
        await space.write(("a", 1))
        assert await asyncio.gather(*readings) == [("a", 1)] * 3
        assert await space.count() == 1

    with_space(work)


def test_one_of_those_who_wait_takes_an_entry_the_one_who_came_first() -> None:
    async def work(bus: Bus, space: Space) -> None:
        (first,) = await begin(space, space.take(("a", int)))
        (second,) = await begin(space, space.take(("a", int)))
        await space.write(("a", 1))
        assert await first == ("a", 1)
        assert (await space.queue.describe()).waiting == 1
        await space.write(("a", 2))
        assert await second == ("a", 2)

    with_space(work)


def test_who_waits_no_longer_takes_nothing() -> None:
    async def work(bus: Bus, space: Space) -> None:
        (taking,) = await begin(space, space.take(("a", int)))
        taking.cancel()
        await asyncio.wait([taking])
        await space.write(("a", 1))
        assert await space.count() == 1

    with_space(work)


def test_the_time_limit_says_how_long_to_wait() -> None:
    async def work(bus: Bus, space: Space) -> None:
        for limit in (0, 0.01):
            for waiting in (space.read(("a",), timeout_s=limit), space.take(("a",), timeout_s=limit)):
                with pytest.raises(QueueEmpty, match="board"):
                    await waiting

    with_space(work)


def test_if_exists_does_not_wait_for_what_is_not_there() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        for waiting in (space.read_if_exists(("b", int)), space.take_if_exists(("b", int))):
            with pytest.raises(QueueEmpty, match="board"):
                await waiting
        assert await space.read_if_exists(("a", int)) == ("a", 1)
        assert await space.take_if_exists(("a", int)) == ("a", 1)

    with_space(work)


def test_if_exists_waits_for_a_transaction_that_is_rolled_back() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            await space.take(("a", int), transaction=tx)
            reading, taking = await begin(
                space, space.read_if_exists(("a", int)), space.take_if_exists(("a", int))
            )
            await tx.rollback()
        assert await reading == ("a", 1)
        assert await taking == ("a", 1)

    with_space(work)


def test_if_exists_gives_up_when_the_transaction_is_committed() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            await space.take(("a", int), transaction=tx)
            (taking,) = await begin(space, space.take_if_exists(("a", int)))
        with pytest.raises(QueueEmpty):
            await taking

    with_space(work)


def test_if_exists_waits_no_longer_than_its_limit() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            await space.take(("a", int), transaction=tx)
            with pytest.raises(QueueEmpty):
                await space.take_if_exists(("a", int), timeout_s=0.01)

    with_space(work)


def test_if_exists_does_not_wait_for_its_own_transaction() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            assert await space.take(("a", int), transaction=tx) == ("a", 1)
            with pytest.raises(QueueEmpty):
                await space.take_if_exists(("a", int), transaction=tx)

    with_space(work)


# -- transactions


def test_what_is_written_is_seen_by_its_transaction_at_once_and_by_others_at_the_commit() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with bus.transaction() as tx:
            await space.write(("a", 1), transaction=tx)
            assert await space.count() == 0
            assert await space.count(transaction=tx) == 1
            assert await space.read(("a", int), transaction=tx) == ("a", 1)
            assert await space.scan(transaction=tx) == [("a", 1)]
        assert await space.scan() == [("a", 1)]

    with_space(work)


def test_what_is_written_and_taken_in_one_transaction_was_never_there() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with space.watch() as entries:
            async with bus.transaction() as tx:
                await space.write(("a", 1), transaction=tx)
                assert await space.take(("a", int), transaction=tx) == ("a", 1)
            await space.write(("b", 2))
            assert await anext(entries) == ("b", 2)
        assert await space.scan() == [("b", 2)]

    with_space(work)


def test_what_was_written_in_a_transaction_that_is_rolled_back_was_never_there() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with bus.transaction() as tx:
            await space.write(("a", 1), transaction=tx)
            await tx.rollback()
        assert await space.count() == 0

    with_space(work)


def test_what_a_transaction_has_read_others_may_read_but_not_take() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx, bus.transaction() as other:
            assert await space.read(("a", int), transaction=tx) == ("a", 1)
            assert await space.read(("a", int)) == ("a", 1)
            assert await space.read(("a", int), transaction=other) == ("a", 1)
            for transaction in (None, other):
                with pytest.raises(QueueEmpty):
                    await space.take(("a", int), timeout_s=0, transaction=transaction)
            assert await space.take_all() == []
            (taking,) = await begin(space, space.take(("a", int)))
        assert await taking == ("a", 1)

    with_space(work)


def test_what_a_transaction_has_waited_for_and_read_others_may_not_take_either() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with bus.transaction() as tx:
            (reading,) = await begin(space, space.read(("a", int), transaction=tx))
            (taking,) = await begin(space, space.take(("a", int)))
            await space.write(("a", 1))
            assert await reading == ("a", 1)
            assert await space.count() == 1
            assert not taking.done()
        assert await taking == ("a", 1)

    with_space(work)


def test_a_transaction_may_take_what_it_alone_has_read() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            await space.read(("a", int), transaction=tx)
            assert await space.take(("a", int), timeout_s=0, transaction=tx) == ("a", 1)
        assert await space.count() == 0

    with_space(work)


def test_what_a_transaction_has_taken_is_gone_for_others() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 1))
        async with bus.transaction() as tx:
            await space.take(("a", int), transaction=tx)
            for waiting in (space.read(("a", int), timeout_s=0), space.take(("a", int), timeout_s=0)):
                with pytest.raises(QueueEmpty):
                    await waiting
            assert await space.scan() == []
        assert await space.count() == 0

    with_space(work)


def test_what_was_taken_comes_back_to_its_old_place() -> None:
    async def work(bus: Bus, space: Space) -> None:
        for n in range(3):
            await space.write(("a", n))
        async with bus.transaction() as tx:
            assert await space.take(("a", 1), transaction=tx) == ("a", 1)
            assert await space.take_all(("a", 0), transaction=tx) == [("a", 0)]
            await tx.rollback()
        assert await space.scan() == [("a", 0), ("a", 1), ("a", 2)]

    with_space(work)


def test_a_take_that_waits_in_a_transaction_is_part_of_it() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with bus.transaction() as tx:
            (taking,) = await begin(space, space.take(("a", int), transaction=tx))
            await space.write(("a", 1))
            assert await taking == ("a", 1)
            assert await space.count() == 0
            await tx.rollback()
        assert await space.count() == 1

    with_space(work)


def test_an_entry_that_came_back_has_its_lease() -> None:
    async def work(bus: Bus, space: Space) -> None:
        lease = await space.write(("a", 1), lease_s=30)
        async with bus.transaction() as tx:
            await space.take(("a", int), transaction=tx)
            with pytest.raises(MessageNotHeld):
                await lease.renew(60)
            await tx.rollback()
        assert await lease.renew(60) == 60

    with_space(work)


def test_the_lease_of_an_entry_begins_with_the_commit() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with bus.transaction() as tx:
            lease = await space.write(("a", 1), 30, tx)
            with pytest.raises(MessageNotHeld):
                await lease.renew(60)
        assert await lease.renew(60) == 60
        await lease.cancel()
        assert await space.count() == 0

    with_space(work)


# -- notify


def test_a_watch_is_told_of_matching_writes_and_takes_nothing() -> None:
    async def work(bus: Bus, space: Space) -> None:
        await space.write(("a", 0))
        async with space.watch(("a", int)) as entries:
            await space.write(("a", 1))
            await space.write(("b", 2))
            await space.write(("a", 3))
            assert [await anext(entries) for _ in range(2)] == [("a", 1), ("a", 3)]
        assert await space.count() == 4

    with_space(work)


def test_a_watch_is_told_once_at_the_commit() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with space.watch() as entries:
            async with bus.transaction() as tx:
                await space.write(("late", 1), transaction=tx)
                await space.write(("early", 2))
            async with bus.transaction() as tx:
                await space.write(("never", 3), transaction=tx)
                await tx.rollback()
            await space.write(("last", 4))
            told = [await anext(entries) for _ in range(3)]
        assert told == [("early", 2), ("late", 1), ("last", 4)]

    with_space(work)


def test_a_watch_is_not_told_again_of_what_comes_back() -> None:
    async def work(bus: Bus, space: Space) -> None:
        async with space.watch() as entries:
            await space.write(("a", 1))
            async with bus.transaction() as tx:
                await space.take(transaction=tx)
                await tx.rollback()
            await space.write(("b", 2))
            assert [await anext(entries) for _ in range(2)] == [("a", 1), ("b", 2)]

    with_space(work)


# -- templates


def test_a_template_matches_entries_of_subtypes() -> None:
    async def work(bus: Bus, space: Space) -> None:
        for kind in ("shape", "shape.circle", "shape.circle.unit", "shapes", "fire"):
            await space.write(Event(kind))
        for template in (Event("shape"), {"type": "shape"}, space.template(type="shape")):
            found = [entry.type for entry in await space.scan(template)]
            assert found == ["shape", "shape.circle", "shape.circle.unit"]

    with_space(work)


def test_a_snapshot_is_accepted_wherever_a_template_is() -> None:
    async def work(bus: Bus, space: Space) -> None:
        mine = space.snapshot(("a", int))
        async with space.watch(mine) as entries:
            for n in range(5):
                await space.write(("a", n))
            assert await anext(entries) == ("a", 0)
        assert await space.read(mine) == await space.take(mine) == ("a", 0)
        assert await space.read_if_exists(mine) == await space.take_if_exists(mine) == ("a", 1)
        assert await space.count(mine) == 3
        assert await space.scan(mine) == await space.take_all(mine) == [("a", 2), ("a", 3), ("a", 4)]
        assert space.snapshot(mine) is mine
        assert space.template(mine).filter == mine.filter

    with_space(work)


# -- many who wait


def test_thousands_of_takes_that_wait_cost_nothing_until_one_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    test = Filter.test
    evaluated = 0

    def counted(filter: Filter) -> Any:
        nonlocal evaluated
        evaluated += 1
        return test.__get__(filter)

    async def cost(space: Space, entries: Iterable[tuple[Any, ...]]) -> int:
        before = evaluated
        for entry in entries:
            await space.write(entry)
        return evaluated - before

    async def work(bus: Bus, space: Space) -> None:
        takings = await begin(space, *(space.take(("answer", n, str)) for n in range(WAITING)))
        monkeypatch.setattr(Filter, "test", property(counted))
        assert await cost(space, [("question", -n, "what") for n in range(1, 100)]) == 0
        assert await cost(space, [("question", n, "what") for n in range(100)]) <= 100
        assert (await space.queue.describe()).waiting == WAITING
        answers = [("answer", n, f"this {n}") for n in range(WAITING)]
        assert await cost(space, reversed(answers)) == WAITING
        assert await asyncio.gather(*takings) == answers
        assert await space.count() == 199

    with_space(work)
