"""The outbox: in order, and not before the mark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.protocol.outbox import Outbox


def test_frames_without_a_mark_leave_at_once_and_in_order() -> None:
    outbox = Outbox()
    outbox.put(b"one")
    outbox.put(b"two")
    assert outbox.take(0) == [b"one", b"two"]
    assert (len(outbox), outbox.size) == (0, 0)


def test_a_frame_behind_one_that_waits_does_not_overtake_it() -> None:
    outbox = Outbox()
    outbox.put(b"waits", 2)
    outbox.put(b"behind")
    assert outbox.take(1) == []
    assert (len(outbox), outbox.size) == (2, 11)
    assert outbox.take(2) == [b"waits", b"behind"]


@given(
    st.lists(
        st.one_of(st.tuples(st.just("put"), st.integers(0, 9)), st.tuples(st.just("mark"), st.integers(0, 3)))
    )
)
def test_what_leaves_is_what_came_in_its_order_and_never_early(steps: list[tuple[str, int]]) -> None:
    outbox, durable, put, left = Outbox(), 0, [], []
    for step, number in steps:
        if step == "put":
            put.append((b"x" * len(put), number))
            outbox.put(*put[-1])
        else:
            durable += number
            taken = outbox.take(durable)
            assert all(mark <= durable for _, mark in put[len(left) : len(left) + len(taken)])
            left += taken
            following = put[len(left) :]
            assert not following or following[0][1] > durable
        assert left == [frame for frame, _ in put[: len(left)]]
        assert outbox.size == sum(len(frame) for frame, _ in put[len(left) :])
        assert len(outbox) == len(put) - len(left)


def test_what_is_patient_lets_others_pass_and_keeps_its_order() -> None:
    outbox = Outbox()
    outbox.put(b"first", 1, is_patient=True)
    outbox.put(b"answer")
    outbox.put(b"second", 2, is_patient=True)
    outbox.put(b"promise", 2)
    outbox.put(b"behind it")
    assert outbox.take(0) == [b"answer"]
    assert outbox.take(1) == [b"first"]
    assert outbox.take(2) == [b"second", b"promise", b"behind it"]
    assert outbox.size == 0


def test_the_last_word_passes_nothing() -> None:
    outbox = Outbox()
    outbox.put(b"accepted", 1, is_patient=True)
    outbox.end(b"bye")
    assert outbox.take(0) == []
    assert outbox.take(1) == [b"accepted", b"bye"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=8),
)
def test_patience_and_sizes_let_out_what_a_look_at_each_frame_would(
    frames: list[tuple[int, int, bool]], takes: list[tuple[int, int]]
) -> None:
    outbox, left = Outbox(), [(mark, bytes([65 + n]) * size, p) for n, (mark, size, p) in enumerate(frames)]
    for mark, frame, is_patient in left:
        outbox.put(frame, mark, is_patient)
    for durable, size_max in takes:
        expected = may_leave(left, durable, size_max)
        assert outbox.take(durable, size_max) == [frame for _, frame, _ in expected]
        left = [one for one in left if one not in expected]
        assert (len(outbox), outbox.size) == (len(left), sum(len(frame) for _, frame, _ in left))


def may_leave(
    frames: list[tuple[int, bytes, bool]], durable: int, size_max: int
) -> list[tuple[int, bytes, bool]]:
    ready: list[tuple[int, bytes, bool]] = []
    for one in frames:
        mark, frame, is_patient = one
        if mark > durable:
            if is_patient:
                continue
            break
        if ready and sum(len(other) for _, other, _ in ready) + len(frame) > size_max:
            break
        ready.append(one)
    return ready
