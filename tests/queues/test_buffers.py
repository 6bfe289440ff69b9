"""Buffers: a full queue displaces messages for better ones; and queues that are limited in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from protocol.rig import Rig

from queues.rig import DONE, GIVE_BACK, Client, job, numbers
from tidings.queues.message import BYTES_EACH


def client(**fields: Any) -> Client:
    ann = Client(Rig())
    ann.create("jobs", **fields)
    return ann


def held(ann: Client) -> list[Any]:
    return numbers(ann.read("jobs"))


def reliable(n: int, priority: int) -> Any:
    return job(n, delivery="reliable", priority=priority)


@pytest.mark.parametrize("kind", ["buffer", "volatile-buffer"])
def test_a_full_buffer_displaces_transient_then_low_then_old_messages_and_refuses_less(kind: str) -> None:
    ann = client(type=kind, max_messages=2)
    ann.put("jobs", job(1, priority=9), reliable(2, 0))
    ann.put("jobs", reliable(3, 4))
    assert held(ann) == [3, 2]
    ann.put("jobs", reliable(4, 9))
    assert held(ann) == [4, 3]
    ann.put("jobs", job(5, priority=9))
    ann.rig.run()
    assert held(ann) == [4, 3]
    assert [code for _, _, code in ann.refusals] == ["queue-full"]


def test_of_equals_the_oldest_is_displaced_and_the_oldest_is_delivered_first() -> None:
    ann = client(type="buffer", max_messages=2)
    ann.put("jobs", 1, 2, 3)
    assert numbers(ann.get("jobs", 5)) == [2, 3]


def test_a_buffer_is_limited_in_bytes() -> None:
    ann = client(type="buffer", max_bytes=3_000)
    ann.put("jobs", job(1, body=b"x" * 500), job(2, body=b"x" * 500), job(3, body=b"x" * 1_000))
    assert held(ann) == [2, 3]
    ann.put("jobs", job(4, body=b"x" * 3_000))
    ann.rig.run()
    assert held(ann) == [2, 3]
    assert [code for _, _, code in ann.refusals] == ["queue-full"]


def test_a_buffer_displaces_after_a_restart_as_before() -> None:
    ann = client(type="buffer", max_messages=2)
    ann.put("jobs", reliable(1, 4), job(2))
    ann.rig.run()
    ann.come(ann.rig.restart())
    ann.put("jobs", reliable(3, 4))
    assert held(ann) == [1, 3]


def test_a_message_in_flight_is_not_displaced() -> None:
    ann = client(type="volatile-buffer", max_messages=2)
    ann.put("jobs", 1, 2)
    first, *_ = ann.get("jobs", 1)
    ann.put("jobs", 3)
    ann.settle(GIVE_BACK, first)
    assert held(ann) == [1, 3]
    ann.put("jobs", 4)
    assert held(ann) == [3, 4]


def test_a_transaction_displaces_nothing() -> None:
    ann = client(type="buffer", max_messages=2)
    ann.put("jobs", 1, 2)
    ann.begin(1)
    ann.put("jobs", reliable(3, 9), transaction=1)
    ann.commit(1)
    ann.rig.run()
    assert held(ann) == [1, 2]
    assert [code for _, _, code in ann.refusals] == ["queue-full"]


def test_a_put_that_could_not_be_stored_leaves_no_trace_in_the_order() -> None:
    ann = client(type="buffer", max_messages=2)
    ann.put("jobs", 1)
    ann.rig.run()
    ann.put("jobs", 2)
    ann.rig.tick()
    ann.rig.fail()
    queue = ann.rig.queues.find("jobs")
    assert len(queue.kind._ranks) == len(queue.shelf)


def test_a_queue_that_is_limited_in_bytes_refuses_what_would_not_fit() -> None:
    ann = client(max_bytes=2_000)
    ann.put("jobs", job(1, body=b"x" * 700), job(2, body=b"x" * 700))
    ann.rig.run()
    assert [code for _, _, code in ann.refusals] == ["queue-full"]
    described = ann.describe("jobs")
    assert BYTES_EACH + 700 < described["bytes"] < 2_000
    (first,) = ann.get("jobs", 1)
    ann.settle(DONE, first)
    ann.rig.run()
    assert "bytes" not in ann.describe("jobs")
    ann.put("jobs", job(3, body=b"x" * 700))
    assert held(ann) == [3]


def test_a_transaction_is_refused_that_would_go_beyond_the_bytes() -> None:
    ann = client(max_bytes=2_000)
    ann.begin(1)
    ann.put("jobs", job(1, body=b"x" * 700), job(2, body=b"x" * 700), transaction=1)
    ann.commit(1)
    ann.rig.run()
    assert held(ann) == []
    assert [code for _, _, code in ann.refusals] == ["queue-full"]


def test_bytes_are_counted_again_after_a_restart() -> None:
    ann = client(max_bytes=2_000)
    ann.put("jobs", job(1, body=b"x" * 700))
    ann.rig.run()
    before = ann.describe("jobs")["bytes"]
    ann.come(ann.rig.restart())
    assert ann.describe("jobs")["bytes"] == before
