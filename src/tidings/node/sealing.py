"""The sealing process, a child of its node: its settings, its lock, its loop, and its end.

It is the only one that writes files of its node, which the lock sees to: one whose node was killed may be at
it still when the next one comes. It gives way to whatever else wants the processor.

It reads the log of the node, writes it into files, and reports that to the node; then it joins small files.
It may be killed at any moment. A file is there whole or not at all, and goes on where the one before it ends;
the process reports a file when it is there, and the node releases nothing before. A new process finds in the
folder how far the last one came.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tidings.errors import Disconnected, InternalError, StoreDamaged, StoreError, TidingsError
from tidings.ids import ClockIds, new_system
from tidings.locks import lock
from tidings.log.chunks import FileInfo, LivePart, Part
from tidings.log.retention import LogRetention
from tidings.log.sealing import FileCut, FileCutter, holes, to_join
from tidings.log.segment_folder import Folder
from tidings.node import logs
from tidings.node.child import ChildProcess, done_before, watch_parent
from tidings.node.config import NodeConfig
from tidings.node.logs import Lasting, Level, LogForm
from tidings.node.memory import withhold_pandas
from tidings.protocol.connection import Connection
from tidings.timers import Backoff
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial
from tidings.transport.link import Link

LOCK = "tidings.sealing.lock"
"""The file in the node's directory that who seals has locked."""
LOOK_S = 0.5
"""How often it asks whether there is something to do."""
IDLE_S_MAX = 30.0
"""After so long with nothing to do it leaves; the node starts another when there is."""
NICE = 10
"""By how much it gives way to others."""
READ_SIZE = 4 << 20
"""Bytes of the log that are asked for at once."""


class SealingConfig(Struct, frozen=True):
    """Settings of the process that seals, which are its only argument: there is no secret among them."""

    node: str  # the address of the node, by its own socket
    folder: str  # a path, or the URI of a folder on any Arrow filesystem
    lock: str  # a file beside the store, which who seals has locked
    log_level: Level = "info"
    log_form: LogForm = "text"


def settings_of(config: NodeConfig, folder: str, socket: Path) -> SealingConfig:
    """The settings of who seals for a node, and comes by this socket."""
    assert config.dir is not None, "what is not kept is not sealed"
    lock = Path(config.dir) / LOCK
    address = f"tidings+unix://{socket.absolute()}"
    return SealingConfig(address, folder, str(lock.absolute()), config.log_level, config.log_form)


class SealingProcess(ChildProcess[SealingConfig]):
    """The child as its node sees it: there while there is something to seal, and for a while after.

    A node that has nothing to seal has no such child: it costs memory, and reading Arrow takes a second.
    """

    may_leave = True

    def __init__(self, config: SealingConfig, log: LogRetention) -> None:
        super().__init__("sealing", "tidings.node.sealing", config)
        self._log = log
        self._wanted = asyncio.Event()

    def look(self) -> None:
        """See whether there is something to seal; called now and then."""
        if self._log.wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def _wait_wanted(self) -> None:
        await self._wanted.wait()


class Sealer:
    """Seals the log of the node at the other end of a link into a folder."""

    def __init__(self, link: Link, folder: Folder) -> None:
        self._link = link
        self._folder = folder
        self._node = ""
        self._first = 0  # where sealing began last
        self._damaged: set[str] = set()  # the paths of files that can't be joined

    async def begin(self) -> None:
        """Report to the node how far the files are; remove the unfinished ones of an earlier process."""
        status = await self._ask("log.status")
        self._node = status["node"]
        found = await self._do(self._folder.files, self._node)
        if found and found[-1].claim.last >= status["end"]:
            problem = f"{found[-1].path} has positions that the store has never had: it is an older copy"
            raise StoreError(str(self._folder), problem)
        await self._do(self._folder.clean, self._node)
        if found:
            await self._report(0)

    async def fail(self, problem: str) -> None:
        """Report to the node, and so to those who wait there, why nothing can be sealed just now."""
        await self._ask("log.sealed", position=0, problem=problem)

    async def work(self) -> bool:
        """Seal what is wanted, or join a few files; whether there was anything to do.

        Raises StoreError if the folder can't be written to, and what the node refuses.
        """
        status = await self._ask("log.status")
        if status["wanted"] > status["sealed"]:
            await self._seal(status["sealed"] + 1, status["wanted"] + 1)
            return True
        return await self._join()

    async def _seal(self, first: int, end: int) -> None:
        """Put into files what none has: a claim must not cover a file with what the store has no more."""
        files: list[FileInfo] = await self._do(self._folder.files, self._node)
        self._first, last = first, 0
        for begin, stop in holes(files, first, end):
            last = await self._fill(begin, stop) or last
        if last < end - 1:  # there was nothing behind the last file
            await self._report(end - 1)

    async def _fill(self, first: int, end: int) -> int:
        """Write what stands in a hole; the position up to which that was something, 0 if it was nothing."""
        cutter, position, last = FileCutter(first), first, 0
        while position < end:
            parts, position = await self._read(position, end)
            for cut in cutter.add(parts):
                last = await self._write(cut)
        for cut in cutter.finish(end - 1):
            last = await self._write(cut)
        return last

    async def _read(self, start: int, end: int) -> tuple[list[LivePart], int]:
        # What can't be read of the store can't be sealed either; the node has reported it.
        asked = {
            "start": start,
            "end": end,
            "size_max": READ_SIZE,
            "skip": True,
            "skip_pruned": True,
            "sealing": True,
        }
        answer = await self._ask("log.read", **asked)
        parts = msgspec.convert(answer["parts"], list[Part])
        live = [part for part in parts if isinstance(part, LivePart)]
        if len(live) < len(parts):
            raise InternalError(f"the log from position {start} on was sealed before")
        return live, answer["next"]

    async def _write(self, cut: FileCut) -> int:
        info = await self._do(self._folder.write, cut.parts, self._node, cut.first, cut.last)
        logs.info("sealed", first=cut.first, last=cut.last, bytes=info.size)
        await self._report(cut.last)
        return cut.last

    async def _join(self) -> bool:
        files: list[FileInfo] = await self._do(self._folder.files, self._node)
        chosen = to_join([file for file in files if file.path not in self._damaged])
        if not chosen:
            return False
        try:
            info = await self._do(self._folder.join, chosen)
        except StoreDamaged as damage:
            if damage.path not in {file.path for file in chosen}:
                raise
            self._damaged.add(damage.path)
            logs.error("damage in the store", problem=str(damage))
            return True
        logs.info("joined", files=len(chosen), bytes=info.size)
        await self._report(0)  # so that the node looks at the folder
        return True

    async def _report(self, position: int) -> None:
        await self._ask("log.sealed", position=position, first=self._first)

    async def _ask(self, operation: str, **arguments: Any) -> Any:
        return await self._link.call(operation, arguments, None)

    async def _do(self, act: Any, *arguments: Any) -> Any:
        """Do something with the folder, in a thread; StoreError for what the filesystem says."""
        try:
            return await asyncio.to_thread(act, *arguments)
        except OSError as error:
            raise StoreError(str(self._folder), f"can't be used: {error}") from None


async def run(config: SealingConfig) -> None:
    """Seal until stopped, or until there was nothing to do for a while."""
    stopped = asyncio.Event()
    watch_parent(stopped.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    # A file that is being written is finished before the process ends.
    await done_before(stopped, _work(config))


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
            return lock(handle)
        await asyncio.sleep(LOOK_S)


def main() -> None:
    """Run the child of a node, whose settings are its only argument."""
    config = msgspec.json.decode(sys.argv[1], type=SealingConfig)
    logs.show(config.log_level, config.log_form)
    os.nice(NICE)
    withhold_pandas()
    try:
        asyncio.run(run(config))
    except Disconnected:  # the node is gone, or has cut us off: another is started if it is there
        sys.exit(1)
    except TidingsError as error:
        logs.error("the log can't be sealed", problem=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
