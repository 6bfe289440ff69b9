"""Displacement: non-persistent messages first, then low priorities, then the oldest."""

from adhoc.hosts import held, host, meet, send

from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.messages import CarriedMessage, MessageId, Replica


def _replica(number, persistent=False, priority=4, size=1, ttl_s=100.0):
    message = CarriedMessage(MessageId("s", 1, number), ("x",), ttl_s, persistent, priority, size=size)
    return Replica(message, {"x"}, ttl_s, 0.0)


def _numbers(buffer):
    return [replica.id.counter for replica in buffer]


def test_a_full_buffer_displaces_the_least_and_refuses_less():
    one = host("1", messages_max=2)
    send(one, "n1", "x", persistent=False, priority=9)
    send(one, "p1", "x", persistent=True, priority=0)
    send(one, "p2", "x", persistent=True, priority=4)
    assert held(one) == ["p1", "p2"]
    send(one, "p3", "x", persistent=True, priority=9)
    assert held(one) == ["p2", "p3"]
    send(one, "n2", "x", persistent=False, priority=9)
    assert held(one) == ["p2", "p3"]
    assert one.tallies["refused", "buffer"] == 1
    assert one.tallies["dropped", "displaced"] == 2


def test_of_equal_messages_the_oldest_goes():
    buffer = ReplicaBuffer(messages_max=2)
    displaced = [buffer.put(_replica(number)) for number in (1, 2, 3)]
    assert [[one.id.counter for one in gone] for gone in displaced] == [[], [], [1]]
    assert _numbers(buffer) == [2, 3]


def test_bytes_are_a_limit_too_and_nothing_changes_if_a_message_is_refused():
    buffer = ReplicaBuffer(bytes_max=10)
    for number, size in ((1, 4), (2, 4)):
        buffer.put(_replica(number, size=size))
    assert buffer.put(_replica(3, size=11)) is None
    assert [one.id.counter for one in buffer.put(_replica(4, size=6))] == [1]
    assert buffer.size == 10
    assert [one.id.counter for one in buffer.put(_replica(5, persistent=True, size=5))] == [2, 4]
    assert buffer.put(_replica(6, size=9)) is None
    assert _numbers(buffer) == [5]


def test_a_buffer_of_zero_refuses_everything_and_its_sender_hears_of_it():
    one = host("1", messages_max=0)
    send(one, "m", "x", persistent=True)
    assert held(one) == []
    assert one.notices == [(1, "", "undeliverable")]
    two = host("2", bytes_max=0)
    other = host("0")
    send(other, "m", "x")
    meet(other, two)
    assert held(two) == []
    assert two.tallies["refused", "buffer"] == 1


def test_replicas_expire_and_are_counted():
    one = host("1")
    send(one, "m", "x", ttl_s=10.0)
    assert one.wake_at == 10.0
    one.wake(9.9)
    assert held(one) == ["m"]
    one.wake(10.0)
    assert held(one) == []
    assert one.tallies["dropped", "expired"] == 1
