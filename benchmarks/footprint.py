"""What tidings takes before it does anything: memory of a node and of its connections, time to import."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import load, peers
from benchmarks.figures import Figure
from benchmarks.wires import TidingsWire

SETTLE_S = 1.5
"""How long a node is left alone before its memory is read."""


def imports(rounds: int) -> Iterator[Figure]:
    """Milliseconds that importing adds to the start of an interpreter: of the package, and of its client."""
    codes = {"bare": "pass", "package": "import tidings", "client": "import tidings; tidings.connect"}
    best = {name: min(_start_ms(code) for _ in range(rounds)) for name, code in codes.items()}
    for name, label in (("package", "import tidings"), ("client", "import tidings, and its client")):
        over = max(0.0, best[name] - best["bare"])
        goal = 100.0 if name == "package" else None
        yield Figure(
            label, "ms over a bare interpreter", over, goal, {"bare": best["bare"]}, less_is_better=True
        )


def _start_ms(code: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1e3 * (time.monotonic() - started)


def memory(connections: int, has_compiled: bool) -> Iterator[Figure]:
    """A node that does nothing, and what connections that do nothing, or subscribe, add to it."""
    yield _idle("memory of an idle node", has_compiled)
    with tempfile.TemporaryDirectory() as home:
        yield _idle("memory of an idle node with a directory", has_compiled, Path(home))
    # A node without compiled code: many subscriptions would load it, and that is not what is asked here.
    with peers.node(compiled=False) as node, ExitStack() as stack:
        wire = TidingsWire(node.port)
        for name, steps in (
            ("memory of a connection", wire.begin),
            ("memory of a connection with a filter", lambda: wire.subscribe((0,))),
        ):
            before_kb = node.memory_kb
            for _ in range(connections):
                stack.enter_context(load.call(wire, steps()))
            time.sleep(SETTLE_S)
            each_kb = (node.memory_kb - before_kb) / connections
            goal = 10.0 if steps == wire.begin else None
            yield Figure(name, "KB", each_kb, goal, {}, less_is_better=True)


def _idle(name: str, has_compiled: bool, directory: Path | None = None) -> Figure:
    with peers.node(compiled=has_compiled, directory=directory) as node:
        time.sleep(SETTLE_S)
        return Figure(name, "MB", node.memory_kb / 1e3, 60.0, {}, less_is_better=True)


def with_compiled(node: peers.Broker) -> Figure:
    """The memory of a node that has loaded its compiled code; it does not use pyarrow."""
    value = node.memory_kb / 1e3
    return Figure("memory of a node with compiled code", "MB", value, 220.0, {}, less_is_better=True)
