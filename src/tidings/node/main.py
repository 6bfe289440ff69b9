"""`tidings node`, once its settings are known: the loop, the signals, the lines it prints, and systemd.

The node notifies systemd, or whatever else started it and set NOTIFY_SOCKET, by the protocol of sd_notify(3):
datagrams of `NAME=VALUE` lines to a Unix socket. A node says when it serves and when it stops. If
WATCHDOG_USEC asks for it, the node's loop says that it turns, twice in each such time: systemd restarts a
node whose loop stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping

import msgspec

from tidings.locks import check_locks
from tidings.node import logs
from tidings.node.config import NodeConfig
from tidings.node.local import RunningNode, pid_file
from tidings.node.memory import withhold_pandas
from tidings.node.server import Node

SIGNALS = (signal.SIGTERM, signal.SIGINT)
GARBAGE = 50_000
"""New objects before the garbage collector runs: events, filters and messages come by the thousand."""
SWITCH_S = 0.0005
"""How long a thread that has something to compute keeps the others from going on.

A commit gives up the interpreter for every call of SQLite's and has to get it back: beside a busy loop or
reader it waits this long each time, a dozen times. With Python's own 5 ms it takes five times as long.
"""
BEATS = 2
"""Signs of life in the time that systemd waits for one."""
MICROSECONDS = 1_000_000


def run(config: NodeConfig, json: bool = False) -> None:
    """Run a node until a signal stops it; raise errors that keep it from starting.

    It prints where it listens and what it keeps, with `json` as one object.
    """
    check_locks("a node in a process of its own")
    logs.show(config.log_level, config.log_form)
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(GARBAGE)
    withhold_pandas()
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


class Notifier:
    """Notifies the supervisor of the process; without one, does nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._place = environment.get("NOTIFY_SOCKET", "")
        self.beat_s = _beat_s(environment) if self._place else None
        """Seconds between two signs of life; None if nobody wants them."""
        self._beating: asyncio.Task[None] | None = None
        self._has_failed = False

    def ready(self, status: str) -> None:
        """Say that the node serves; give signs of life from now on, if they are wanted."""
        self.notify("READY=1", f"STATUS={status}")
        if self.beat_s is not None:
            self._beating = asyncio.get_running_loop().create_task(
                self._beat(self.beat_s), name="tidings watchdog"
            )

    async def stopping(self) -> None:
        """Say that the node stops; it may take its time, and gives no more signs of life."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        self.notify("STOPPING=1")

    async def _beat(self, every_s: float) -> None:
        while True:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(every_s)

    def notify(self, *lines: str) -> None:
        """Send lines to the supervisor; failure is logged once."""
        if not self._place:
            return
        # A name that begins with @ is one of Linux's abstract sockets.
        place = f"\0{self._place[1:]}" if self._place.startswith("@") else self._place
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), place)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logs.warning("systemd can't be notified", socket=self._place, problem=str(error))


def _beat_s(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between signs of life, None if none are wanted of this process."""
    with contextlib.suppress(ValueError):
        if int(environment.get("WATCHDOG_PID", os.getpid())) == os.getpid():
            limit_us = int(environment.get("WATCHDOG_USEC", "0"))
            return limit_us / MICROSECONDS / BEATS if limit_us > 0 else None
    return None


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
        lines.append(f"users and rules from {node.config.security}")
    if node.config.dir is None:
        lines.append("keeping nothing: no directory was given (--dir)")
    else:
        lines.append(f"keeping events in {node.config.dir}")
    return lines


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=NodeConfig))
