"""Budgets of memory from the settings, and memory that is given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tidings
from tidings.log.arguments import CollapseTerms
from tidings.log.chunks import CollapsedPart
from tidings.node import memory
from tidings.node.config import NodeConfig
from tidings.node.memory import GivingBack, budgets_of, machine_memory
from tidings.protocol.memory import Budgets
from tidings.testing import NodeProcess


def test_what_is_not_said_is_a_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: 16 << 30)
    assert budgets_of(NodeConfig()) == Budgets(4 << 30, 2 << 30, 512 << 20)
    assert budgets_of(NodeConfig(memory_max=800)) == Budgets(800, 400, 100)
    assert budgets_of(NodeConfig(memory_user_max=7, memory_session_max=5)) == Budgets(4 << 30, 7, 5)


@pytest.mark.parametrize(("text", "limit"), [("1000000\n", 1_000_000), ("max\n", None), (None, None)])
def test_a_control_group_limits_the_memory_of_the_machine(
    tmp_path: Path, text: str | None, limit: int | None
) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    whole = machine_memory(tmp_path / "none")
    assert whole > 1 << 20
    assert machine_memory(file) == (whole if limit is None else limit)


def test_memory_is_given_back_when_much_less_is_used_than_before() -> None:
    given: list[None] = []
    giving = GivingBack(lambda: given.append(None))
    most = 10 * memory.GIVEN_BACK_MIN
    assert [giving.look(used) for used in (0, most, most - 1, most // 2 + 1, 100, 100)] == [
        False,
        False,
        False,
        False,
        True,
        False,
    ]
    assert len(given) == 1


def test_the_c_library_is_asked_and_nothing_happens_where_it_can_not() -> None:
    giving = GivingBack()
    giving.look(1 << 40)
    assert giving.look(0)


def test_a_node_that_collapses_events_does_without_pandas(tmp_path: Path) -> None:
    terms = CollapseTerms(
        columns={"n": "int", "value": "double"}, by=("n",), rules={"high": "highest(value)"}
    )

    async def collapse(address: str) -> list[object]:
        async with tidings.connect(address) as bus:
            await bus.publish("t", n=1, value=1.5, delivery="persistent")
            return [one async for parts, _ in bus.log.collapsed(1, None, "", terms) for one in parts]

    with NodeProcess(tmp_path) as node:
        found = asyncio.run(collapse(node.address))
        modules = Path(f"/proc/{node.pid}/maps").read_text()
    assert [type(one) for one in found] == [CollapsedPart]
    assert "/pyarrow/" in modules
    assert "/pandas/" not in modules
