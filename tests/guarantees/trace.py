"""What a process asked of the system, as strace saw it: its writes, its syncs and what it sent, in order.

Each call has two moments, because another thread may do something between them: it begins, and it ends. What
is written or sent may be there from the first on; what is synced is safe from the second on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE_CALLS = "openat,mkdir,pwrite64,ftruncate,unlink,rename,fsync,fdatasync"
SEND_CALLS = "write,writev,sendto,sendmsg"
SYNCS = ("fsync", "fdatasync")
DATA_MAX = 1 << 20
"""Bytes of a write that are recorded: more than any that the tests cause."""

_LINE = re.compile(r"\d+ +(?P<text>.*)\n")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_FILE = re.compile(r"\d+<(?P<path>(?:\\x[0-9a-f]{2})+)>")
_SOCKET = re.compile(r"\d+<(?P<name>(?:TCP|UNIX)[^<]*?\])>")
_LAST_NUMBER = re.compile(r", (\d+)\)$")


def command(output: Path, *further: str) -> list[str]:
    """The command that runs what follows it, and records it; further options of strace may change calls."""
    calls = f"trace={FILE_CALLS},{SEND_CALLS}"
    options = ["-f", "-qq", "-yy", "-xx", "-s", str(DATA_MAX), "-e", "signal=none", "-e", calls]
    return ["strace", *options, *further, "-o", str(output)]


class Call(NamedTuple):
    """A call that succeeded, or a sync that may have failed."""

    name: str
    target: str  # the path or the socket of its descriptor; for others the first path given
    data: bytes  # written or sent
    number: int  # the last argument: an offset or a size
    texts: tuple[str, ...]  # paths given
    result: int  # negative: it failed


class Moment(NamedTuple):
    """A call begins, or has ended."""

    is_end: bool
    call: Call


def read(path: Path) -> list[Moment]:
    """All moments of a recording, in order; calls that never ended or failed are left out, save syncs."""
    moments: list[Moment | None] = []
    begun: dict[str, tuple[int, str]] = {}  # by thread: where it began, and its text so far
    with path.open() as lines:
        for thread, text in _lines(lines):
            place = len(moments)
            moments += [None, None]
            if text.endswith(" <unfinished ...>"):
                begun[thread] = place, text.removesuffix(" <unfinished ...>")
                continue
            if resumed := _RESUMED.match(text):
                place, beginning = begun.pop(thread)
                text = beginning + text[resumed.end() :]
            call = _call(text)
            if call is not None:
                moments[place], moments[-1] = Moment(False, call), Moment(True, call)
    return [moment for moment in moments if moment is not None]


def _lines(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is not None:
            yield line.split(" ", 1)[0], found["text"]


def _call(text: str) -> Call | None:
    asked, _, answered = text.rpartition(" = ")
    name, _, arguments = asked.partition("(")
    result = re.match(r"-?\d+" if name in SYNCS else r"\d+", answered)
    if result is None or not name.isidentifier():
        return None
    strings = [bytes.fromhex(part.replace("\\x", "")) for part in arguments.split('"')[1::2]]
    number = _LAST_NUMBER.search(asked[-40:].rstrip())
    target = ""
    texts: tuple[str, ...] = ()
    if name in ("openat", "mkdir", "unlink", "rename"):
        texts = tuple(string.decode() for string in strings)
        target = texts[0]
    elif file := _FILE.match(arguments):
        target = bytes.fromhex(file["path"].replace("\\x", "")).decode()
    elif socket := _SOCKET.match(arguments):
        target = socket["name"]
    data = b"" if texts else b"".join(strings)[: int(result[0])]
    if name == "openat":
        data = arguments.encode()  # for its flags
    return Call(name, target, data, int(number[1]) if number else 0, texts, int(result[0]))
