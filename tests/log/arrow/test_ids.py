"""Ids made for many events at once are those made one by one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from strategies import systems

from tidings.ids import make_id
from tidings.log.arrow.ids import made_ids

numbers = st.one_of(
    st.integers(0, 40), st.integers(0, 2**63 - 1), st.integers(0, 63).map(lambda bit: 2**bit - 1)
)


@given(st.lists(st.tuples(st.none() | systems, st.sampled_from([0, 1, 2**63 - 1]), numbers), max_size=30))
def test_many_ids_are_made_as_single_ones_are(rows: list[tuple[str | None, int, int]]) -> None:
    whose = pa.array([system for system, _, _ in rows], pa.string())
    when = pa.array([epoch for _, epoch, _ in rows], pa.int64())
    made = made_ids(whose, when, pa.array([counter for _, _, counter in rows], pa.int64()))
    made.validate(full=True)
    wanted = [None if system is None or not counter else make_id(system, epoch, counter)
              for system, epoch, counter in rows]  # fmt: skip
    assert made.to_pylist() == wanted
