"""Reads the log of a node, writes it into files, and tells the node; then joins files that are small.

It may be killed at any moment. A file is there whole or not at all, and goes on where the one before it ends;
the node is told after it is there, and forgets nothing before. Who begins finds in the folder how far the one
before came.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tidings.errors import InternalError, StoreDamaged, StoreError
from tidings.log.folder import FileInfo, Folder
from tidings.log.parts import LivePart, Part
from tidings.log.sealing import Cut, Cutter, holes, to_join
from tidings.node import logs
from tidings.transport.link import Link

READ_SIZE = 4 << 20
"""Bytes of the log that are asked for at once."""


class Sealer:
    """Seals the log of the node at the other end of a link into a folder."""

    def __init__(self, link: Link, folder: Folder) -> None:
        self._link = link
        self._folder = folder
        self._node = ""
        self._first = 0  # where sealing began last
        self._damaged: set[str] = set()  # the paths of files that can't be joined

    async def begin(self) -> None:
        """Look how far the files are, and tell the node; what an earlier one left half done is cleaned up."""
        status = await self._ask("log.status")
        self._node = status["node"]
        found = await self._do(self._folder.files, self._node)
        if found and found[-1].claim.last >= status["end"]:
            problem = f"{found[-1].path} has positions that the store has never had: it is an older copy"
            raise StoreError(str(self._folder), problem)
        await self._do(self._folder.clean, self._node)
        if found:
            await self._tell(0)

    async def fail(self, problem: str) -> None:
        """Tell the node, and so those who wait there, why nothing can be sealed just now."""
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
        self._first, told = first, 0
        for begin, stop in holes(files, first, end):
            told = await self._fill(begin, stop) or told
        if told < end - 1:  # there was nothing behind the last file
            await self._tell(end - 1)

    async def _fill(self, first: int, end: int) -> int:
        """Write what stands in a hole; the position up to which that was something, 0 if it was nothing."""
        cutter, position, last = Cutter(first), first, 0
        while position < end:
            parts, position = await self._read(position, end)
            for cut in cutter.add(parts):
                last = await self._write(cut)
        for cut in cutter.finish(end - 1):
            last = await self._write(cut)
        return last

    async def _read(self, start: int, end: int) -> tuple[list[LivePart], int]:
        # What can't be read of the store can't be sealed either; the node has reported it.
        asked = {"start": start, "end": end, "size_max": READ_SIZE, "skip": True, "skip_pruned": True}
        answer = await self._ask("log.read", **asked)
        parts = msgspec.convert(answer["parts"], list[Part])
        live = [part for part in parts if isinstance(part, LivePart)]
        if len(live) < len(parts):
            raise InternalError(f"what stands from {start} on was sealed before")
        return live, answer["next"]

    async def _write(self, cut: Cut) -> int:
        info = await self._do(self._folder.write, cut.parts, self._node, cut.first, cut.last)
        logs.info("sealed", first=cut.first, last=cut.last, bytes=info.size)
        await self._tell(cut.last)
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
        await self._tell(0)  # so that the node looks at the folder
        return True

    async def _tell(self, position: int) -> None:
        await self._ask("log.sealed", position=position, first=self._first)

    async def _ask(self, operation: str, **arguments: Any) -> Any:
        return await self._link.call(operation, arguments, None)

    async def _do(self, act: Any, *arguments: Any) -> Any:
        """Do something with the folder, in a thread; StoreError for what the filesystem says."""
        try:
            return await asyncio.to_thread(act, *arguments)
        except OSError as error:
            raise StoreError(str(self._folder), f"can't be used: {error}") from None
