"""The process that seals: its lock, its loop, and how it ends.

It is the only one that writes files of its node, which the lock sees to: one whose node was killed may be at
it still when the next one comes. It gives way to whatever else wants the processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path

import msgspec

from tidings.backoff import Backoff
from tidings.errors import Disconnected, StoreError, TidingsError
from tidings.ids import ClockIds, new_system
from tidings.log.folder import Folder
from tidings.node import logs
from tidings.node.child import watch_parent
from tidings.node.lasting import Lasting
from tidings.node.sealing.config import SealingConfig
from tidings.node.sealing.sealer import Sealer
from tidings.protocol.connection import Connection
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial
from tidings.transport.link import Link

LOOK_S = 0.5
"""How often it asks whether there is something to do."""
IDLE_S_MAX = 30.0
"""After so long with nothing to do it leaves; the node starts another when there is."""
NICE = 10
"""By how much it gives way to others."""


async def run(config: SealingConfig) -> None:
    """Seal until told to stop, or there was nothing to do for a while."""
    stopped = asyncio.Event()
    watch_parent(stopped.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    working, stopping = asyncio.ensure_future(_work(config)), asyncio.ensure_future(stopped.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stopped.is_set():  # a file that is being written is finished before the process ends
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError, TidingsError):
            await working
    else:
        working.result()


async def _work(config: SealingConfig) -> None:
    await wait_lock(Path(config.lock))
    async with _linked(config.node) as link:
        await _try_hard(Sealer(link, Folder(config.folder)))


async def _try_hard(sealer: Sealer) -> None:
    """Do what there is to do, again and again; a folder that can't be used now may be later."""
    backoff = Backoff(random.random)
    idle_s, has_begun, trouble = 0.0, False, Lasting("the log can't be sealed", "the log can be sealed again")
    while idle_s < IDLE_S_MAX:
        try:
            if not has_begun:
                await sealer.begin()
                has_begun = True
            idle_s = 0.0 if await sealer.work() else idle_s + LOOK_S
            backoff.reset()
            trouble.succeed()
            trouble.look(time.monotonic())
        except StoreError as error:
            trouble.fail(str(error), time.monotonic())
            await sealer.fail(str(error))
            await asyncio.sleep(backoff.next_s())
        if idle_s:
            await asyncio.sleep(LOOK_S)
    trouble.look(inf)  # nothing can fail any more before this process ends


@contextlib.asynccontextmanager
async def _linked(address: str) -> AsyncIterator[Link]:
    core = Connection(ClockIds(new_system(os.urandom), time.time()), "sealing")
    link = Link(core, False, random.random)
    link.start(dial(address, Credentials()))
    try:
        await link.wait_connected(None)
        yield link
    finally:
        await link.close()


async def wait_lock(path: Path) -> None:
    """Wait until no other process has the lock, and have it until this one ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await asyncio.sleep(LOOK_S)


def main() -> None:
    """Run the child of a node, whose settings are its only argument."""
    config = msgspec.json.decode(sys.argv[1], type=SealingConfig)
    logs.show(config.log_level, config.log_form)
    os.nice(NICE)
    try:
        asyncio.run(run(config))
    except Disconnected:  # the node is gone, or has cut us off: another is started if it is there
        sys.exit(1)
    except TidingsError as error:
        logs.error("the log can't be sealed", problem=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
