from __future__ import annotations

import pytest

from benchmarks import channel, channel_network, channel_spaces
from benchmarks.wires import TOPICS


def test_the_orders_of_channels_are_measured_beside_a_plain_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "COUNT", 20 * TOPICS)
    monkeypatch.setattr(channel, "SENDERS", 2)
    monkeypatch.setattr(channel, "network_figures", lambda _quick: ())
    monkeypatch.setattr(channel, "space_figures", lambda _quick: ())
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)
    figures = channel.run(quick=True, report=lambda _line: None)["workloads"]
    assert [one["name"] for one in figures] == [
        "fifo over plain",
        "causal over fifo",
        "total over fifo",
        "total, 2 senders",
    ]
    assert all(one["value"] > 0 for one in figures)


def test_what_channels_cost_in_a_network_is_measured_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"MEMBERS": 4, "NODES": 4, "RATES": (10.0,), "MOVE_RATE": 1_000, "ORDERS": ("causal",)}
    for name, value in {**small, "RECORD_NODES": 18, "RECORD_CHANNELS": 20, "CHANNEL_MEMBERS": 2}.items():
        monkeypatch.setattr(channel_network, name, value)
    figures = list(channel_network.network_figures(quick=True))
    assert [one.name for one in figures] == [
        "bytes of causal over fifo, 10/s, stable tree",
        "bytes of causal over fifo, 10/s, a path changes each second",
        "causal: a mover's events held",
        "causal: others while one moves, p99",
        "records that are no channel's, 2 channels on 6 nodes",
    ]
    assert all(one.value > 0 for one in figures[:-1])
    assert figures[-1].value == 0 < figures[-1].beside["records"]


def test_what_a_search_of_several_spaces_costs_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEARCHED": 3, "SHARED": 2, "ENTRIES": 100, "TAKERS": 3, "DELAY_S": 0.0}.items():
        monkeypatch.setattr(channel_spaces, name, value)
    read, taken = channel_spaces.space_figures(quick=True)
    assert read.value > 0
    assert taken.value > 0
