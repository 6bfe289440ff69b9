from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import edge, load, secure, secure_load
from benchmarks.neighbours import BODY, node
from benchmarks.peers import free_port
from benchmarks.secured import RULE, Login, TlsWire, log_in, make_secured
from benchmarks.wires import TOPICS, event_of
from tidings import Filter
from tidings.errors import PeerError

ROWS = [
    "wire, TLS over plain",
    "processor time of the node for an event, TLS",
    "API, lists, TLS over plain",
    "wire, a publish rule over none",
    "memory of a device with 20 events sent upstream, TLS",
    "handshakes",
    "logins by token",
    "logins by password",
    "a publish rule, beside a subscription to value > 50",
    "a publish rule, beside a subscription to everything",
    "100 messages of 150 bytes forwarded, TLS",
    "100 messages of 150 bytes forwarded, plain",
    "lookup at 4 peers, median",
]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without compiled code, in sizes that take no time."""
    sizes = {"COUNT": 10 * TOPICS, "FORWARDED": 1_000, "PEERS": 40, "LOOKUPS": 3, "READINGS": 20}
    for name, value in {**sizes, "LOGINS": 80, "PASSWORDS": 2}.items():
        monkeypatch.setattr(secure, name, value)
    monkeypatch.setattr("tidings.node.compiled.is_installed", lambda: False)


@pytest.mark.slow
def test_a_small_run_measures_every_workload(tiny: None) -> None:
    lines: list[str] = []
    figures = secure.run(True, lines.append)
    assert [one["name"] for one in figures["workloads"]] == ROWS
    for one in figures["workloads"]:
        assert {"name", "unit", "value", "target", "reached", "beside"} <= set(one)
        assert (one["reached"] is None) == (one["target"] is None)
    assert json.loads(json.dumps(figures)) == figures
    assert "numba is not installed: there is no compiled code" in lines


@pytest.mark.slow
def test_users_with_and_without_a_rule_are_let_in_and_others_fail_the_run(tmp_path: Path) -> None:
    secured = make_secured(tmp_path / "security", "bench")
    with node(free_port(), security=str(secured.path), compiled=False) as broker:
        free = TlsWire(broker.port, ca=secured.ca, token=secured.token)
        bounded = TlsWire(broker.port, ca=secured.ca, token=secured.bounded_token)
        assert secure_load.carry(free, free, TOPICS) > 0
        assert secure_load.carry(bounded, free, TOPICS) > 0
        wrong = Login(broker.port, secured.ca, "admin", "a wrong password")
        with load.Child(log_in, wrong, 1) as child, pytest.raises(PeerError, match="was not let in"):
            child.receive()


def test_all_of_the_load_is_within_the_rule() -> None:
    rule = Filter(RULE)
    assert all(rule.matches(event_of(topic)) for topic in range(TOPICS))
    assert not rule.matches(event_of(TOPICS * 1_000))


def test_messages_have_the_size_that_is_said() -> None:
    assert len(BODY) == 150


def test_what_is_shown_of_a_wire_and_a_login_has_no_secret_in_it() -> None:
    assert "tdg_" not in repr(TlsWire(1, token="tdg_secret"))
    assert "secret" not in repr(Login(1, Path("ca.pem"), "ada", "a secret"))


def test_a_device_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "device").touch()
    with pytest.raises(PeerError, match="the device failed"):
        edge.measure(tmp_path / "device", "tidings://127.0.0.1:1", 1)
