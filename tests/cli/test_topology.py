"""`tidings topology --watch`, with real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from node.peers import SOURCE, Start


def test_changes_are_printed_as_they_happen(start: Start) -> None:
    hall = start("--port", "0", "--name", "hall").address()
    watching = subprocess.Popen(
        [sys.executable, "-c", "from tidings.cli import main; main()", "topology", "--watch", "--json"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TIDINGS_NODE": hall},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline()) == {"nodes": 1, "links": 0}
        shed = start("--port", "0", "--name", "shed", "--peers", f"hall={hall}")
        shed.address()
        told = [json.loads(watching.stdout.readline()) for _ in range(2)]
        assert {(one["kind"], *one["names"], one["now"]) for one in told} == {
            ("node", "shed", "there"),
            ("link", "hall", "shed", "up"),
        }
        shed.stop(signal.SIGKILL)
        one = json.loads(watching.stdout.readline())
        assert (one["names"], one["was"], one["now"]) == (["hall", "shed"], "up", "cut")
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate()
