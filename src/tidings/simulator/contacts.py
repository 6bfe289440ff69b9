"""Contacts of hosts, by steps of time: read from traces of others, or made by hosts that move.

| format | a line | a step |
| --- | --- | --- |
| `one` | `time CONN a b up` or `down`: a link of the ONE; other events are passed over | 20 s |
| `sociopatterns` | `t i j …`: two badges were face to face at that time | 20 s |
| `haggle` | `id1 id2 start end …`: a device has seen another | 120 s |

A contact counts from the step of its start to that of its end. In `haggle` only the devices of the first
column are hosts: those that were seen and have not looked themselves are left out. Columns are parted by
blanks, tabs or commas; lines may be in any order; empty ones, those that begin with `#`, and contacts of a
host with itself are passed over; a file may be compressed with gzip.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tidings.errors import UserError

TraceFormat = Literal["one", "sociopatterns", "haggle"]
FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)
STEP_S: dict[TraceFormat, float] = {"one": 20.0, "sociopatterns": 20.0, "haggle": 120.0}
"""Seconds of a step."""
ROWS_MAX = 100_000_000
"""Contacts of a trace, each step of a long one counted."""
HOSTS_MAX = 10_000
"""Hosts of a trace."""
_GZIP = b"\x1f\x8b"


class Contact(NamedTuple):
    """Two hosts are together from `start` to `end`, in seconds."""

    one: str
    other: str
    start: float
    end: float


class ContactTrace:
    """Who is together with whom in each step: rows (step, one, other) in order, one < other, each once."""

    def __init__(
        self, names: Sequence[str], steps: NDArray[np.int64], pairs: NDArray[np.int32], step_s: float
    ) -> None:
        self.names = list(names)
        self.steps = steps
        self.pairs = pairs
        self.step_s = step_s

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def first_s(self) -> float:
        """The time of the first step."""
        return float(self.steps[0]) * self.step_s if len(self.steps) else 0.0

    @property
    def last_s(self) -> float:
        """The time of the last step."""
        return float(self.steps[-1]) * self.step_s if len(self.steps) else 0.0

    def since(self, start_s: float) -> ContactTrace:
        """The rows from that time on."""
        at = int(np.searchsorted(self.steps * self.step_s, start_s))
        return ContactTrace(self.names, self.steps[at:], self.pairs[at:], self.step_s)


def trace_of(contacts: Iterable[Contact], step_s: float, names: Iterable[str] | None = None) -> ContactTrace:
    """Make a trace of contacts; `names` are the hosts, by default all that have contacts."""
    contacts = list(contacts)
    known = {name for one in contacts for name in one[:2]} if names is None else set(names)
    ordered = sorted(known, key=_by_number)
    if len(ordered) > HOSTS_MAX:
        raise UserError(f"a trace of {len(ordered)} hosts: at most {HOSTS_MAX} can be simulated")
    places = {name: at for at, name in enumerate(ordered)}
    spans = np.array([(int(one.start // step_s), int(one.end // step_s)) for one in contacts], np.int64)
    spans = spans.reshape(-1, 2)
    lengths = spans[:, 1] - spans[:, 0] + 1
    if int(lengths.sum()) > ROWS_MAX:
        raise UserError(f"{int(lengths.sum())} steps of contacts: at most {ROWS_MAX} can be simulated")
    ends = np.array([sorted((places[one.one], places[one.other])) for one in contacts], np.int32).reshape(
        -1, 2
    )
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    steps, pairs = np.repeat(spans[:, 0], lengths) + within, np.repeat(ends, lengths, axis=0)
    return _in_order(ordered, steps, pairs, step_s)


def _in_order(
    names: Sequence[str], steps: NDArray[np.int64], pairs: NDArray[np.int32], step_s: float
) -> ContactTrace:
    """A trace of rows in any order, in which some may stand twice."""
    order = np.lexsort((pairs[:, 1], pairs[:, 0], steps))
    steps, pairs = steps[order], pairs[order]
    is_new = np.ones(len(steps), bool)
    is_new[1:] = (np.diff(steps) != 0) | (np.diff(pairs, axis=0) != 0).any(axis=1)
    return ContactTrace(names, steps[is_new], np.ascontiguousarray(pairs[is_new]), step_s)


def _by_number(name: str) -> tuple[bool, int, str]:
    """Numbers in their order, before other names."""
    return (False, int(name), name) if name.isdecimal() else (True, 0, name)


def read_trace(path: Path, format: str | None = None, step_s: float | None = None) -> ContactTrace:
    """Read a trace; UserError names the line that is wrong. Without a format it is guessed from the file."""
    if format is not None and format not in FORMATS:
        raise UserError(f"format {format!r} is not one of {', '.join(FORMATS)}")
    lines = list(_lines(path))
    kind: TraceFormat = format if format is not None else _guess(path, lines)
    reader = {"one": _read_one, "sociopatterns": _read_badges, "haggle": _read_haggle}[kind]
    contacts = list(reader(path, lines))
    hosts = None
    if kind == "haggle":
        hosts = {columns[0] for _, columns in lines}
        contacts = [one for one in contacts if one.other in hosts]
    return trace_of(contacts, STEP_S[kind] if step_s is None else step_s, hosts)


_Line = tuple[int, list[str]]


def _lines(path: Path) -> Iterator[_Line]:
    """The columns of each line, with its number."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"the trace {path} can't be read: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        columns = line.replace(",", " ").split()
        if columns and not columns[0].startswith("#"):
            yield number, columns


def _guess(path: Path, lines: Sequence[_Line]) -> TraceFormat:
    for _, columns in lines:
        if len(columns) >= 2 and columns[1] == "CONN":
            return "one"
        if len(columns) >= 4 and _is_number(columns[2]) and _is_number(columns[3]):
            return "haggle"
        if len(columns) >= 3 and _is_number(columns[0]):
            return "sociopatterns"
    raise UserError(f"the trace {path} has no contacts in a known format: {', '.join(FORMATS)}")


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _time(path: Path, number: int, text: str) -> float:
    if not _is_number(text):
        raise UserError(f"{path}, line {number}: {text[:40]!r} is no time")
    return float(text)


def _need(path: Path, number: int, columns: Sequence[str], count: int) -> None:
    if len(columns) < count:
        raise UserError(f"{path}, line {number}: has {len(columns)} columns; {count} are needed")


def _read_badges(path: Path, lines: Iterable[_Line]) -> Iterator[Contact]:
    for number, columns in lines:
        _need(path, number, columns, 3)
        moment = _time(path, number, columns[0])
        if columns[1] != columns[2]:
            yield Contact(columns[1], columns[2], moment, moment)


def _read_haggle(path: Path, lines: Iterable[_Line]) -> Iterator[Contact]:
    for number, columns in lines:
        _need(path, number, columns, 4)
        start, end = _time(path, number, columns[2]), _time(path, number, columns[3])
        if end < start:
            raise UserError(f"{path}, line {number}: the contact ends before it begins")
        if columns[0] != columns[1]:
            yield Contact(columns[0], columns[1], start, end)


def _read_one(path: Path, lines: Iterable[_Line]) -> Iterator[Contact]:
    """Links that are up at the end are until the last moment of the trace. Lines may be in any order."""
    up: dict[tuple[str, str], float] = {}
    moment = 0.0
    timed = [(_time(path, number, columns[0]), number, columns) for number, columns in lines]
    for moment, number, columns in sorted(timed, key=lambda one: one[0]):
        if len(columns) < 2 or columns[1] != "CONN":
            continue
        _need(path, number, columns, 5)
        pair = (min(columns[2:4]), max(columns[2:4]))
        if columns[4] not in ("up", "down"):
            raise UserError(f"{path}, line {number}: {columns[4][:40]!r} is neither 'up' nor 'down'")
        if columns[4] == "up" and pair[0] != pair[1]:
            up.setdefault(pair, moment)
        elif pair in up:
            yield Contact(*pair, up.pop(pair), moment)
    for pair, start in up.items():
        yield Contact(*pair, start, moment)


def write_one(contacts: Iterable[Contact]) -> str:
    """The text of a trace in the format of the ONE."""
    events = [(one.start, "up", one) for one in contacts] + [(one.end, "down", one) for one in contacts]
    events.sort(key=lambda event: (event[0], event[1] == "up", event[2][:2]))
    return "".join(f"{at:g} CONN {one.one} {one.other} {what}\n" for at, what, one in events)
