"""The location of a node as a process: `node/location.py` starts it, and says what it is.

It imports the classes that the node was given, and runs the agents that rest in the node's queue `agents`
until the node is gone.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import msgspec

from tidings.client.mobile import MobileAgent, load_class
from tidings.errors import Disconnected, TidingsError, UserError
from tidings.node import logs
from tidings.node.child import done_before, watch_parent
from tidings.node.location import FAILED, READY, LocationConfig


def classes_of(text: str) -> list[type[MobileAgent]]:
    """Import the classes of a setting; UserError if one can't be."""
    paths = [one.strip() for one in text.split(",") if one.strip()]
    if not paths:
        raise UserError("agents: no classes are given; it is module:Class, …")
    return [load_class(path) for path in paths]


async def _run(config: LocationConfig) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    watch_parent(stopped.set)
    await done_before(stopped, _locate(config))


async def _locate(config: LocationConfig) -> None:
    import tidings

    classes = classes_of(config.classes)
    # Not again: a node that is gone starts another one, and whatever waits for an answer here has to end.
    bus = tidings.connect(config.node, name="location", reconnect=False)
    async with bus, bus.location(*classes, address=config.node) as location:
        print(f"{READY}{len(classes)} classes", flush=True)  # noqa: T201  # read by the node
        logs.info("agents may run here", classes=len(classes), node=location.node)
        await location.wait()


def main() -> None:
    """Run the child of a node."""
    config = msgspec.json.decode(sys.argv[1], type=LocationConfig)
    logs.show(config.log_level, config.log_form)
    try:
        asyncio.run(_run(config))
    except Disconnected:
        return  # the node is gone
    except TidingsError as error:
        print(f"{FAILED}{error}", flush=True)  # noqa: T201  # read by the node
        sys.exit(2)


if __name__ == "__main__":
    main()
