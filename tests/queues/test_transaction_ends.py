"""How transactions end: committed, rolled back, out of time, cut off, or lost in a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from protocol.rig import event

from queues.rig import Client, Rig, job, numbers, pass_time
from tidings.event.wire import encode_events
from tidings.protocol.messages import Commit, Put
from tidings.queues import transactions


def two(**fields: object) -> tuple[Client, Client]:
    """Two clients of a queue; the first has begun transaction 1."""
    rig = Rig()
    ann, bob = Client(rig, "a", "ann"), Client(rig, "b", "bob")
    ann.create("jobs", **fields)
    ann.begin(1)
    return ann, bob


def test_a_transaction_that_takes_too_long_is_rolled_back() -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    assert ann.ask("begin", transaction=2, timeout_s=5.0) == {"timeout_s": 5.0}
    ann.get("jobs", transaction=2)
    ann.put("jobs", 2, transaction=2)
    pass_time(ann.rig, 6.0)
    assert numbers(bob.read("jobs")) == [1]
    counter = ann.commit(2)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "rolled-back")]


def test_a_transaction_may_not_take_longer_than_the_node_grants() -> None:
    ann, _ = two()
    assert ann.ask("begin", transaction=2) == {"timeout_s": transactions.TRANSACTION_S}
    granted = ann.ask("begin", transaction=3, timeout_s=1e9)
    assert granted == {"timeout_s": transactions.TRANSACTION_S_MAX}


def test_a_committed_transaction_does_not_time_out() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    ann.commit(1)
    ann.rig.run()
    pass_time(ann.rig, 1_000.0)
    assert numbers(bob.read("jobs")) == [1]


@pytest.mark.parametrize("end", [Client.roll_back, Client.commit])
def test_a_transaction_has_the_whole_of_its_time_though_another_had_its_number(
    end: Callable[[Client, int], None],
) -> None:
    ann, bob = two()
    ann.begin(2, 5.0)
    end(ann, 2)
    pass_time(ann.rig, 3.0)
    ann.begin(2, 5.0)
    ann.put("jobs", 1, transaction=2)
    pass_time(ann.rig, 3.0)
    ann.commit(2)
    ann.rig.run()
    assert ann.refusals == []
    assert numbers(bob.read("jobs")) == [1]


@pytest.mark.parametrize("clean", [False, True])
def test_a_transaction_ends_with_its_connection(clean: bool) -> None:
    ann, bob = two()
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    ann.put("jobs", 2, transaction=1)
    ann.leave() if clean else ann.lose()
    assert numbers(bob.read("jobs")) == [1]


def test_a_number_can_not_be_used_by_two_open_transactions() -> None:
    ann, bob = two()
    assert ann.fails("begin", transaction=1).code == "exists"
    bob.begin(1)
    ann.roll_back(1)
    ann.begin(1)


def test_a_client_has_a_bounded_number_of_transactions_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTIONS_MAX", 1)
    ann, _ = two()
    assert ann.fails("begin", transaction=2).code == "limit"


def test_a_transaction_holds_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "SIZE_MAX", 2_000)
    ann, _ = two()
    ann.put("jobs", 1, job(2, body=bytes(3_000)), transaction=1)
    ann.rig.run()
    assert ann.refusals == [(2, 2, "limit")]


@pytest.mark.parametrize("what", ["put", "get", "commit"])
def test_nothing_can_be_done_in_a_transaction_that_is_not_open(what: str) -> None:
    ann, bob = two()
    if what == "get":
        assert bob.fails("get", queue="jobs", transaction=1).code == "rolled-back"
        return
    counter = bob.put("jobs", 1, transaction=1) if what == "put" else bob.commit(1)
    ann.rig.run()
    assert bob.refusals == [(counter, counter, "rolled-back")]


@pytest.mark.parametrize("end", [Client.roll_back, Client.commit])
def test_who_waits_in_a_transaction_is_told_when_it_ends(end: Callable[[Client, int], None]) -> None:
    ann, bob = two()
    waiting = ann.wait("jobs", transaction=1)
    end(ann, 1)
    ann.rig.run()
    assert ann.got(waiting) == []
    bob.put("jobs", 1)
    assert numbers(bob.get("jobs")) == [1]


def test_rolling_back_what_is_not_open_is_no_mistake() -> None:
    ann, _ = two()
    ann.roll_back(1)
    ann.roll_back(1)


# Full and deleted queues


def test_a_full_queue_refuses_the_commit_and_all_is_rolled_back() -> None:
    ann, bob = two(max_messages=1)
    ann.create("bills")
    bob.put("bills", 9)
    ann.get("bills", transaction=1)
    ann.put("bills", 1, transaction=1)
    ann.put("jobs", 2, transaction=1)
    bob.put("jobs", 3)
    counter = ann.commit(1)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "queue-full")]
    assert numbers(bob.read("jobs")) == [3]
    assert numbers(bob.read("bills")) == [9]
    assert ann.fails("get", queue="jobs", transaction=1).code == "rolled-back"


def test_what_a_transaction_takes_makes_room_for_what_it_puts() -> None:
    ann, bob = two(max_messages=1)
    bob.put("jobs", 1)
    ann.get("jobs", transaction=1)
    ann.put("jobs", 2, transaction=1)
    ann.commit(1)
    ann.rig.run()
    assert ann.refusals == []
    assert numbers(bob.read("jobs")) == [2]


def test_a_queue_that_is_deleted_under_a_transaction_refuses_the_commit() -> None:
    ann, bob = two()
    ann.create("bills")
    ann.put("bills", 1, transaction=1)
    ann.put("jobs", 2, transaction=1)
    bob.ask("queue.delete", queue="bills")
    counter = ann.commit(1)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "queue-not-found")]
    assert bob.read("jobs") == []


def test_a_queue_that_was_made_anew_is_not_the_one_that_was_meant() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    bob.ask("queue.delete", queue="jobs")
    bob.create("jobs")
    counter = ann.commit(1)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "queue-not-found")]
    assert bob.read("jobs") == []


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_what_was_taken_or_read_of_a_deleted_queue_is_gone_either_way(ending: str) -> None:
    ann, bob = two()
    bob.put("jobs", 1, 2)
    ann.get("jobs", where="n = 1", transaction=1)
    ann.read("jobs", transaction=1)
    bob.ask("queue.delete", queue="jobs")
    ann.commit(1) if ending == "commit" else ann.roll_back(1)
    ann.rig.run()
    assert list(ann.rig.store.messages()) == []
    assert ann.rig.queues.size == 0


# Publications


def test_publications_of_a_transaction_leave_at_the_commit() -> None:
    ann, bob = two()
    bob.subscribe("n > 0")
    ann.put("", 1, transaction=1)
    ann.rig.run()
    assert bob.told == []
    ann.commit(1)
    ann.rig.run()
    assert bob.told == [1]


def test_publications_of_a_transaction_that_is_rolled_back_never_leave() -> None:
    ann, bob = two()
    bob.subscribe("n > 0")
    ann.put("", 1, transaction=1)
    ann.roll_back(1)
    assert bob.told == []


def test_what_has_no_queue_and_no_transaction_is_refused() -> None:
    ann, _ = two()
    counter = ann.put("", 1)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "queue-not-found")]


def test_publications_of_a_commit_fill_bound_queues() -> None:
    ann, bob = two()
    bob.create("bound", bind="n = 7")
    ann.put("", 7, transaction=1)
    ann.commit(1)
    assert numbers(bob.get("bound")) == [7]


# Commits, cuts and crashes


def prepared() -> tuple[Client, Client, int]:
    """A transaction that has taken 1, put 2 and published 3, and the counter of its commit."""
    ann, bob = two()
    bob.put("jobs", 1)
    bob.rig.run()
    ann.get("jobs", transaction=1)
    ann.put("jobs", 2, transaction=1)
    ann.put("", job(3, delivery="persistent"), transaction=1)
    ann.rig.run()
    return ann, bob, ann.commit(1)


def found(rig: Rig) -> tuple[list[int], int]:
    """What is there after a crash: the messages, and how many events of the stream."""
    again = rig.restart()
    return numbers(Client(again, "c").read("jobs")), len(again.stored)


def test_a_crash_before_the_tick_undoes_all_of_a_commit() -> None:
    ann, _, _ = prepared()
    assert found(ann.rig) == ([1], 0)


def test_a_crash_before_the_disk_has_it_undoes_all_of_a_commit() -> None:
    ann, _, counter = prepared()
    ann.rig.tick()
    assert ann.accepted < counter
    assert found(ann.rig) == ([1], 0)


def test_a_crash_after_the_disk_has_it_undoes_nothing_of_a_commit() -> None:
    ann, _, counter = prepared()
    ann.rig.tick()
    ann.rig.sync()
    assert ann.accepted == counter
    assert found(ann.rig) == ([2], 1)


def test_a_commit_that_is_sent_again_after_a_crash_is_done_once() -> None:
    ann, _, counter = prepared()
    ann.rig.run()
    ann.come(ann.rig.restart())
    assert ann.welcome.counter == counter
    ann.peer.send(Commit(counter, 0, 1))
    ann.rig.run()
    assert ann.refusals == []
    assert numbers(ann.read("jobs")) == [2]


def test_a_commit_that_was_lost_in_a_crash_is_told_to_be_rolled_back() -> None:
    ann, _, counter = prepared()
    ann.come(ann.rig.restart())
    ann.peer.send(Commit(counter, 0, 1))
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "rolled-back")]


def test_a_commit_that_is_sent_again_after_a_cut_is_done_once() -> None:
    ann, bob, counter = prepared()
    ann.rig.tick()
    ann.lose()
    ann.come()
    ann.peer.send(Put("jobs", 0, 1), encode_events([event(counter - 2)]))
    ann.peer.send(Commit(counter, 0, 1))
    ann.rig.run()
    assert ann.refusals == []
    assert numbers(bob.read("jobs")) == [2]


def test_a_commit_that_was_cut_off_on_its_way_is_told_to_be_rolled_back() -> None:
    ann, bob = two()
    ann.put("jobs", 1, transaction=1)
    ann.rig.run()
    ann.lose()
    ann.come()
    counter = ann.commit(1)
    ann.rig.run()
    assert ann.refusals == [(counter, counter, "rolled-back")]
    assert bob.read("jobs") == []


def test_a_commit_is_accepted_when_it_is_on_disk() -> None:
    ann, _ = two()
    ann.put("jobs", 1, transaction=1)
    counter = ann.commit(1)
    ann.rig.tick()
    assert ann.accepted < counter
    ann.rig.sync()
    assert ann.accepted == counter


def test_a_commit_of_nothing_is_accepted() -> None:
    ann, _ = two()
    counter = ann.commit(1)
    ann.rig.run()
    assert (ann.accepted, ann.refusals) == (counter, [])
