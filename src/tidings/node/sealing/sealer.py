"""Reads the log of a node, writes it into files, and tells the node; then joins files that are small.

It may be killed at any moment. A file is there whole or not at all, and goes on where the one before it ends;
the node is told after it is there, and forgets nothing before. Who begins finds in the folder how far the one
before came.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tidings.errors import InternalError, StoreError
from tidings.log.folder import FileInfo, Folder
from tidings.log.parts import LivePart, Part
from tidings.log.sealing import Cut, Cutter, to_join
from tidings.log.upkeep import merge_files
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
        self._last = 0  # the position up to which files have all

    async def begin(self) -> None:
        """Look how far the files are, and tell the node; what an earlier one left half done is cleaned up."""
        self._node = (await self._ask("log.status"))["node"]
        await self._do(self._folder.clean, self._node)
        found = await self._do(self._folder.files, self._node)
        if found:
            await self._tell(found[-1].claim.last)

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
        cutter, position = Cutter(first), first
        while position < end:
            parts, position = await self._read(position, end)
            for cut in cutter.add(parts):
                await self._write(cut)
        for cut in cutter.finish(end - 1):
            await self._write(cut)
        if self._last < end - 1:  # there was nothing behind the last file
            await self._tell(end - 1)

    async def _read(self, start: int, end: int) -> tuple[list[LivePart], int]:
        # What can't be read of the store can't be sealed either; the node has reported it.
        asked = {"start": start, "end": end, "size_max": READ_SIZE, "skip": True}
        answer = await self._ask("log.read", **asked)
        parts = msgspec.convert(answer["parts"], list[Part])
        live = [part for part in parts if isinstance(part, LivePart)]
        if len(live) < len(parts):
            raise InternalError(f"what stands from {start} on was sealed before")
        return live, answer["next"]

    async def _write(self, cut: Cut) -> None:
        info = await self._do(self._folder.write, cut.parts, self._node, cut.first, cut.last)
        logs.info("sealed", first=cut.first, last=cut.last, bytes=info.size)
        await self._tell(cut.last)

    async def _join(self) -> bool:
        files: list[FileInfo] = await self._do(self._folder.files, self._node)
        chosen = to_join(files)
        if chosen:
            info = await self._do(_joined, self._folder, chosen)
            logs.info("joined", files=len(chosen), bytes=info.size)
            await self._tell(self._last)  # so that the node looks at the folder
        return bool(chosen)

    async def _tell(self, position: int) -> None:
        await self._ask("log.sealed", position=position)
        self._last = max(self._last, position)

    async def _ask(self, operation: str, **arguments: Any) -> Any:
        return await self._link.call(operation, arguments, None)

    async def _do(self, act: Any, *arguments: Any) -> Any:
        """Do something with the folder, in a thread; StoreError for what the filesystem says."""
        try:
            return await asyncio.to_thread(act, *arguments)
        except OSError as error:
            raise StoreError(str(self._folder), f"can't be used: {error}") from None


def _joined(folder: Folder, files: list[FileInfo]) -> FileInfo:
    """One file in the place of these; in one go, so that who is told to stop leaves no event twice."""
    info = merge_files(folder, files)
    folder.remove(files)
    return info
