"""Lives are carried as what is left; ids are remembered beyond every life; notices come once."""

import pytest
from adhoc.hosts import held, host, meet, note, send

from tidings.adhoc.messages import TTL_S_MAX, MessageId
from tidings.adhoc.seen_ids import SeenIds
from tidings.errors import UserError

DAY_S = 86_400.0


def test_clocks_a_day_apart_neither_shorten_nor_prolong_a_life():
    one, two, three = host("1"), host("2"), host("3")
    send(one, "m", "3", now=1_000.0, ttl_s=100.0)
    one.meet("2", 1_060.0), two.meet("1", 1_060.0 + DAY_S)
    frames = [(two, "1", one.meet("2", 1_060.0)[-1].frame)]
    while frames:
        receiver, sender, frame = frames.pop()
        now = 1_060.0 + DAY_S if receiver is two else 1_060.0
        other = one if receiver is two else two
        frames += [
            (other, receiver.name, s.frame) for s in note(receiver, receiver.receive(sender, frame, now))
        ]
        if not frames and (copy := one.next_copy("2", 1_060.0)) is not None:
            frames.append((two, "1", copy))
    (replica,) = two.buffer
    assert replica.left_s(1_060.0 + DAY_S) == pytest.approx(40.0)
    two.wake(1_060.0 + DAY_S + 39.0)
    assert held(two) == ["m"]
    two.wake(1_060.0 + DAY_S + 41.0)
    assert held(two) == []
    assert three.got == []


def test_a_failure_is_reported_once_after_the_time_that_the_sender_sets():
    one, two = host("1"), host("2")
    send(one, "m", "2", persistent=True, ttl_s=100.0, report_s=10.0)
    note(one, one.wake(10.0))
    assert one.notices == [(1, "", "expired")]
    meet(one, two, now=20.0)
    assert two.got == ["m"]
    assert one.notices == [(1, "", "expired")]


def test_a_non_persistent_message_has_no_notices():
    one, two = host("1"), host("2")
    send(one, "m", "2", ttl_s=100.0)
    send(one, "n", "3", ttl_s=100.0)
    meet(one, two)
    note(one, one.wake(200.0))
    assert one.notices == []


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("inf"), float("nan"), TTL_S_MAX * 2])
def test_a_life_that_can_not_be_is_refused(ttl_s):
    with pytest.raises(UserError, match="life"):
        send(host("1"), "m", "x", ttl_s=ttl_s)


def test_a_message_without_a_life_gets_one():
    assert send(host("1"), "m", "x").ttl_s == DAY_S


def test_a_message_without_recipients_is_refused():
    with pytest.raises(UserError, match="recipients"):
        send(host("1"), "m")


def test_a_message_to_its_own_host_is_delivered_there_at_once():
    one = host("1")
    send(one, "m", "1", persistent=True)
    assert one.got == ["m"]
    assert one.notices == [(1, "1", "delivered")]


def test_ids_are_remembered_when_every_life_is_over():
    seen = SeenIds(life_s=100.0)
    assert seen.add(MessageId("s", 1, 5), 0.0)
    assert not seen.add(MessageId("s", 1, 5), 1.0)
    assert seen.add(MessageId("s", 1, 3), 50.0)
    assert MessageId("s", 1, 4) not in seen
    assert seen.add(MessageId("s", 1, 9), 120.0)
    assert MessageId("s", 1, 4) in seen  # its gap is older than any life
    assert MessageId("s", 1, 5) in seen


def test_senders_beyond_the_room_are_refused_until_others_are_forgotten():
    seen = SeenIds(senders_max=2, life_s=100.0)
    assert seen.add(MessageId("a", 1, 1), 0.0)
    assert seen.add(MessageId("b", 1, 1), 50.0)
    assert not seen.add(MessageId("c", 1, 1), 99.0)
    assert seen.add(MessageId("c", 1, 1), 101.0)
    assert MessageId("b", 1, 1) in seen


def test_what_was_stored_of_ids_is_known_again():
    seen, again = SeenIds(), SeenIds()
    for number in (1, 2, 7):
        seen.add(MessageId("s", 1, number), 0.0)
    again.restore([seen.record(MessageId("s", 1, 7))], 1_000.0)
    assert [MessageId("s", 1, number) in again for number in (1, 2, 3, 7, 8)] == [
        True,
        True,
        False,
        True,
        False,
    ]
