"""`tidings node`, once its settings are known: the loop, the signals, the lines it prints."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable

import msgspec

from tidings.locks import check_locks
from tidings.node import logs
from tidings.node.config import NodeConfig
from tidings.node.running import RunningNode, pid_file
from tidings.node.server import Node
from tidings.node.systemd import Notifier

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SWITCH_S = 0.0005
"""How long a thread that has something to compute keeps the others from going on.

A commit gives up the interpreter for every call of SQLite's and has to get it back: beside a busy loop or
reader it waits this long each time, a dozen times. With Python's own 5 ms it takes five times as long.
"""


def run(config: NodeConfig, json: bool = False) -> None:
    """Run a node until a signal stops it; raise errors that keep it from starting.

    It prints where it listens and what it keeps, with `json` as one object.
    """
    check_locks("a node in a process of its own")
    logs.show(config.log_level, config.log_form)
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(config, json))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.new_event_loop
    return None


async def _run(config: NodeConfig, json: bool) -> None:
    node = Node(config)
    await node.start()
    # Until here a signal ends the process at once: there is nothing yet to be put in order.
    stopped = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    node.service.on_stop = stopped.set
    if config.security is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, node.reload)
    process = msgspec.convert({**node.about(), "node": node.driver.broker.node}, RunningNode)
    with pid_file(process):
        for line in [describe_json(node)] if json else describe(node):
            print(line, flush=True)  # noqa: T201  # what the command prints
        logs.info("started", node=process.node, boot=node.driver.broker.boot)
        await _serve(node, stopped)
    logs.info("stopped")


async def _serve(node: Node, stopped: asyncio.Event) -> None:
    """Serve until the node is to stop, and stop it."""
    notifier = Notifier()
    notifier.ready(f"listening on {', '.join(node.addresses)}")
    await stopped.wait()
    logs.info("stopping", connections=node.driver.connections)
    await notifier.stopping()
    await node.close()


def describe_json(node: Node) -> str:
    """The object that a node prints instead of these lines."""
    more = {"sensors": node.sensor_addresses, "security": node.config.security}
    return msgspec.json.encode({"node": node.driver.broker.node, **node.about(), **more}).decode()


def describe(node: Node) -> list[str]:
    """The lines that a node prints when it has started: where it listens, and what it keeps."""
    lines = [f"listening on {address}" for address in node.addresses]
    lines += [f"sensors on {address}" for address in node.sensor_addresses]
    if node.metrics_address is not None:
        lines.append(f"metrics on {node.metrics_address}")
    if node.config.security is not None:
        lines.append(f"letting in whom {node.config.security} names")
    if node.config.dir is None:
        lines.append("keeping nothing: no directory was given (--dir)")
    else:
        lines.append(f"keeping events in {node.config.dir}")
    return lines


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=NodeConfig))
