from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.sensors.mqtt import REMEMBERED, MqttInbox

IDS = 8
"""Packet ids of the broker in these tests, which come round soon."""


class ModelBroker:
    """Hands out messages that all look alike, each under a free packet id, until they are acknowledged."""

    def __init__(self) -> None:
        self.unacknowledged: dict[int, int] = {}
        self.sent: set[int] = set()
        self.made = 0
        self._last = 0

    def hand_out(self) -> tuple[int, int] | None:
        """A new message and its packet id; None while there is no free one."""
        for step in range(1, IDS + 1):
            packet_id = (self._last + step - 1) % IDS + 1
            if packet_id not in self.unacknowledged:
                self._last = packet_id
                self.unacknowledged[packet_id] = self.made
                self.made += 1
                return packet_id, self.made - 1
        return None


def test_a_message_is_acknowledged_after_it_is_safe() -> None:
    inbox = MqttInbox()
    number = inbox.arrive(5, False, "t", b"1")
    assert number is not None
    assert inbox.acknowledgements() == []
    inbox.settle(number)
    assert inbox.acknowledgements() == [5]
    assert inbox.acknowledgements() == []


def test_acknowledgements_keep_the_order_of_arrival() -> None:
    inbox = MqttInbox()
    first, second = (inbox.arrive(packet_id, False, "t", b"1") for packet_id in (1, 2))
    inbox.settle(second or 0)
    assert inbox.acknowledgements() == []
    inbox.settle(first or 0)
    assert inbox.acknowledgements() == [1, 2]


def test_a_repeat_counts_once_and_is_acknowledged_over_the_new_connection() -> None:
    inbox = MqttInbox()
    number = inbox.arrive(1, False, "t", b"1")
    inbox.disconnected()
    inbox.settle(number or 0)
    assert inbox.acknowledgements() == []
    assert inbox.arrive(1, True, "t", b"1") is None
    assert inbox.acknowledgements() == [1]


def test_a_repeat_of_what_was_never_seen_is_new() -> None:
    inbox = MqttInbox()
    assert inbox.arrive(1, True, "t", b"1") is not None
    assert inbox.arrive(1, True, "t", b"2") is not None
    assert inbox.arrive(1, True, "u", b"2") is not None
    assert inbox.arrive(1, False, "u", b"2") is not None


def test_what_is_safe_is_remembered_for_a_while() -> None:
    inbox = MqttInbox()
    for packet_id in range(1, REMEMBERED + 10):
        inbox.settle(inbox.arrive(packet_id, False, "t", b"1") or 0)
        inbox.acknowledgements()
    inbox.disconnected()
    assert not inbox.pending
    assert inbox.arrive(REMEMBERED, True, "t", b"1") is None
    assert inbox.arrive(1, True, "t", b"1") is not None


STEPS = st.lists(st.one_of(st.sampled_from(["deliver", "acknowledge", "cut"]), st.integers(0, 20)))


@given(STEPS)
def test_over_connections_that_break_every_message_counts_once(steps: list[str | int]) -> None:
    """What the bridge has acknowledged gets lost when the connection is cut before it was carried over."""
    inbox, broker = MqttInbox(), ModelBroker()
    numbers: dict[int, int] = {}
    taken: list[int] = []
    safe: set[int] = set()

    def settle(number: int) -> None:
        safe.add(numbers.pop(number))
        inbox.settle(number)

    def arrive(packet_id: int, message: int, is_repeat: bool) -> None:
        number = inbox.arrive(packet_id, is_repeat, "t", str(message).encode())
        if number is not None:
            taken.append(message)
            numbers[number] = message

    def acknowledge() -> None:
        for packet_id in inbox.acknowledgements():
            assert broker.unacknowledged.pop(packet_id) in safe

    def reconnect() -> None:
        inbox.acknowledgements()
        inbox.disconnected()
        for packet_id, message in sorted(broker.unacknowledged.items(), key=lambda pair: pair[1]):
            arrive(packet_id, message, is_repeat=True)

    for step in steps:
        if step == "deliver":
            out = broker.hand_out()
            if out is not None:
                arrive(*out, is_repeat=False)
        elif step == "acknowledge":
            acknowledge()
        elif step == "cut":
            reconnect()
        elif numbers:
            settle(sorted(numbers)[int(step) % len(numbers)])
    for number in list(numbers):
        settle(number)
    reconnect()
    acknowledge()
    assert sorted(taken) == list(range(broker.made))
    assert broker.unacknowledged == {}
