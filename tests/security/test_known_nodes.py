"""The file of nodes that are known by joining."""

from __future__ import annotations

from pathlib import Path

import pytest
from security.places import made

from tidings.errors import ConfigError
from tidings.security.directory import SecurityDirectory
from tidings.security.known_nodes import forget, read_known, remember


@pytest.fixture
def home(tmp_path: Path) -> SecurityDirectory:
    return made(tmp_path / "security")


def test_nodes_are_remembered_in_their_order_and_forgotten(home: SecurityDirectory) -> None:
    assert read_known(home) == {}
    remember(home, "shed", ("tidings+tls://10.0.0.8:7300", "tidings+tls://shed.example:7300"))
    remember(home, "attic", ())
    remember(home, "shed", ("tidings+tls://10.0.0.9:7300",))
    assert list(read_known(home).items()) == [("shed", ("tidings+tls://10.0.0.9:7300",)), ("attic", ())]
    assert forget(home, "shed")
    assert not forget(home, "shed")
    assert read_known(home) == {"attic": ()}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shed tidings://10.0.0.8:7300", "is reached by tidings\\+tls"),
        ("shed nowhere", "is no address"),
        ("a@b", "none of"),
        ("attic", "attic is named twice"),
    ],
)
def test_a_mistake_is_said_with_its_line(home: SecurityDirectory, line: str, problem: str) -> None:
    home.peers.write_text(f"# nodes\nattic  # away\n{line}\n")
    with pytest.raises(ConfigError, match=f"peers, line 3: .*{problem}"):
        read_known(home)


def test_a_file_that_others_may_write_is_refused(home: SecurityDirectory) -> None:
    remember(home, "attic", ())
    home.peers.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 644"):
        read_known(home)
