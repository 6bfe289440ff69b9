"""`tidings gateway` as a command; what it does is tested beside the node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.errors import TidingsError
from tidings.node.gateway.driver import Server
from tidings.node.gateway.main import describe_json


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--node", "nonsense"), "is no address"),
        (("--node", "tidings://127.0.0.1:1", "--host", "0.0.0.0"), "can be reached from other machines"),
        (("--node", "tidings://127.0.0.1:1", "--sensor-port", "99999"), "65535"),
        (("--node", "tidings://127.0.0.1:1", "--log-level", "loud"), "one of debug, info, warning, error"),
        (("--node", "tidings://127.0.0.1:1", "--user", "ada"), "credentials need TLS"),
        (("--node", "tidings://127.0.0.1:1", "--security", "nowhere"), "nowhere"),
    ],
)
def test_what_can_not_be_is_said_at_once(flags: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(app, ["gateway", *flags])
    assert isinstance(result.exception, TidingsError)
    assert problem in str(result.exception)


def test_without_a_node_it_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tidings.cli.connection.NODE", "tidings://127.0.0.1:1")
    result = CliRunner().invoke(app, ["gateway"])
    assert isinstance(result.exception, TidingsError)
    assert "start one with 'tidings node'" in str(result.exception)


def test_its_addresses_are_one_object_of_json() -> None:
    class Started:
        addresses = ("tcp 127.0.0.1:4242", "udp 127.0.0.1:4242")

    told = json.loads(describe_json(cast("Server", Started())))
    assert told == {"sensors": ["tcp 127.0.0.1:4242", "udp 127.0.0.1:4242"]}
