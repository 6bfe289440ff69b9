from __future__ import annotations

from pathlib import Path

import pytest

import tidings
from tidings.errors import ConfigError, Disconnected, UserError
from tidings.testing import NodeProcess, Proxy


def test_a_killed_node_has_its_address_and_its_messages_when_it_is_restarted(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        address, first = node.address, node.pid
        with Proxy(address) as proxy, tidings.blocking.connect(proxy.address, random=lambda: 0.0) as bus:
            queue = bus.create_queue("jobs")
            queue.put("job", n=1)
            node.kill()
            assert not node.is_running
            node.restart()
            assert (node.address, node.pid == first) == (address, False)
            assert queue.get()["n"] == 1
            with pytest.raises(UserError, match="runs already"):
                node.start()
            node.restart()
            assert queue.is_empty()
    assert not node.is_running
    assert "started" in node.log.read_text()


def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    with pytest.raises(Disconnected, match="did not start") as raised:
        NodeProcess(tmp_path).start()
    assert "store" in str(raised.value)


def test_a_setting_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prot"):
        NodeProcess(tmp_path, prot=7300)


def test_a_node_that_was_not_started_has_no_process(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path)
    node.kill()
    node.stop()
    with pytest.raises(UserError, match="not started"):
        _ = node.pid
