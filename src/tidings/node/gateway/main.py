"""`tidings gateway`, once its settings are known: the loop, the signals, the lines it prints.

As the child of a node it ends when its standard input does, which is when the node is gone.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from functools import partial

import msgspec

from tidings.errors import TidingsError
from tidings.node import logs
from tidings.node.child import watch_parent
from tidings.node.gateway.config import FAILED, FIGURES, GatewayConfig
from tidings.node.gateway.driver import Server

GARBAGE = 50_000
"""New objects before the garbage collector runs: messages come by the thousand, and have no cycles."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(config: GatewayConfig, json: bool = False) -> None:
    """Run a gateway until a signal stops it; raise errors that keep it from starting.

    It prints its addresses, with `json` as one object.
    """
    from tidings.node.main import loop_factory

    logs.show(config.log_level, config.log_form)
    gc.set_threshold(GARBAGE)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(config, json))


async def _run(config: GatewayConfig, json: bool) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    server = Server(config)
    server.on_failure = stopped.set
    if config.is_child:
        watch_parent(partial(_orphan, server, stopped))
    if not await _start(server, stopped):
        return
    for number in SIGNALS[: 1 if config.is_child else 2]:
        loop.add_signal_handler(number, stopped.set)
    if config.security is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload)
    for line in [describe_json(server)] if json else describe(server):
        print(line, flush=True)  # noqa: T201  # what the command prints
    if config.is_child:
        server.on_figures = _tell  # not before, as the node waits for the lines above
        _tell(server.figures())
    logs.info("the gateway has started", node=server.uplink.core.node)
    await stopped.wait()
    failure = server.failure
    logs.info("the gateway stops", connections=len(server.hub))
    await server.close()
    if failure is not None:
        raise failure


async def _start(server: Server, stopped: asyncio.Event) -> bool:
    """Start, and wait for the node, unless stopped meanwhile; return whether it has started."""
    starting, stopping = asyncio.ensure_future(server.start()), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


def describe(server: Server) -> list[str]:
    """Return the lines that a gateway prints when it has started: its addresses for sensor networks."""
    return [f"sensors on {address}" for address in server.addresses]


def describe_json(server: Server) -> str:
    """The same as one object."""
    return msgspec.json.encode({"sensors": server.addresses}).decode()


def _tell(figures: dict[str, int]) -> None:
    """Report the figures to the node."""
    print(f"{FIGURES}{msgspec.json.encode(figures).decode()}", flush=True)  # noqa: T201  # read by the node


def _orphan(server: Server, stopped: asyncio.Event) -> None:
    """Stop, as the node is gone."""
    server.is_orphan = True
    stopped.set()


def main() -> None:
    """Run the child of a node, whose settings are its only argument; report errors of the start."""
    try:
        run(msgspec.json.decode(sys.argv[1], type=GatewayConfig))
    except TidingsError as error:
        print(f"{FAILED}{error}", flush=True)  # noqa: T201  # read by the node
        sys.exit(2)


if __name__ == "__main__":
    main()
