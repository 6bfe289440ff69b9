"""A disk that has done no more than it was made to do, rebuilt from the calls of a real process.

What was written is safe once its file was synced, and a name (of a file made, renamed or removed, or of a
folder) once its folder was. A sync that fails has lost what it covered: systems forget that it is to be
written, so a later one does not make it safe. When the power fails everything else is lost, or a part of it
is: any of the sectors that were written since, whole, in any order.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from guarantees.trace import SYNCS, Call, Moment

SECTOR = 512


class File:
    """The content of a file, as it is safe, and what was done to it since."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.pending: list[Call] = []

    def sync(self, count: int) -> None:
        """The first `count` pending changes are safe now."""
        for call in self.pending[:count]:
            apply(self.safe, call)
        del self.pending[:count]

    def lose(self, count: int) -> None:
        """The first `count` pending changes will not become safe."""
        del self.pending[:count]

    def after_power_cut(self, random: Random | None) -> bytes:
        """What is found of it: what is safe, and of the rest nothing, or what chance has left."""
        content = bytearray(self.safe)
        for call in self.pending if random is not None else ():
            assert random is not None
            if call.name == "ftruncate":
                if random.random() < 0.5:
                    apply(content, call)
                continue
            for at in range(0, len(call.data), SECTOR):
                if random.random() < 0.5:
                    part = call._replace(data=call.data[at : at + SECTOR], number=call.number + at)
                    apply(content, part)
        return bytes(content)


def apply(content: bytearray, call: Call) -> None:
    """Do to the content what the call asked for."""
    size = call.number if call.name == "ftruncate" else call.number + len(call.data)
    if call.name == "ftruncate":
        del content[size:]
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if call.name == "pwrite64":
        content[call.number : size] = call.data


class Disk:
    """All that lies in and below a folder; its own name is safe from the beginning."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._names: dict[str, File | None] = {self._home: None}  # None: a folder
        self._safe_names = dict(self._names)
        self._covered: dict[Call, int] = {}  # by sync under way: how many changes it covers

    def take(self, moment: Moment) -> None:
        """Follow what the process has done."""
        call = moment.call
        if not call.target.startswith(self._home):
            return
        if call.name in SYNCS:
            self._sync(moment)
        elif call.name in ("pwrite64", "ftruncate"):
            file = self._names.get(call.target)
            if not moment.is_end and file is not None:
                file.pending.append(call)
        elif moment.is_end:
            self._rename(call)

    def _rename(self, call: Call) -> None:
        match call.name:
            case "mkdir":
                self._names[call.target] = None
            case "openat" if b"O_CREAT" in call.data:
                self._names.setdefault(call.target, File())
            case "unlink":
                del self._names[call.target]
            case "rename":
                self._names[call.texts[1]] = self._names.pop(call.texts[0])

    def _sync(self, moment: Moment) -> None:
        file = self._names.get(moment.call.target)
        if file is None:
            if moment.is_end and moment.call.result >= 0:
                self._sync_folder(moment.call.target)
        elif moment.is_end:
            finish = file.sync if moment.call.result >= 0 else file.lose
            finish(self._covered.pop(moment.call))
        else:
            self._covered[moment.call] = len(file.pending)

    def _sync_folder(self, folder: str) -> None:
        for path in {*self._names, *self._safe_names}:
            if str(Path(path).parent) == folder:
                if path in self._names:
                    self._safe_names[path] = self._names[path]
                else:
                    del self._safe_names[path]

    def cut_power(self, target: Path, random: Random | None = None) -> None:
        """Write what is found afterwards to another folder; with chance, some of what was not safe is."""
        names = self._names if random is not None and random.random() < 0.5 else self._safe_names
        for path in sorted(names):
            place = target / Path(path).relative_to(self._home)
            file = names[path]
            if not place.parent.exists() and place != target:
                continue  # its folder is lost
            if file is None:
                place.mkdir()
            else:
                place.write_bytes(file.after_power_cut(random))
