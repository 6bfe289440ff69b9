"""Arguments of requests about the log, as a client may send them; invalid ones are refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidings.ids import NUMBER_MAX
from tidings.protocol.arguments import NAME_LENGTH_MAX, Name

READ_SIZE_MAX = 8 << 20
"""Bytes of events in one reply, about: a reply is one frame."""
IDS_MAX = 1_000
"""Event ids in one request."""
COLUMNS_MAX = 1_000
"""Columns requested by name; a reader of more requests all."""
COLLAPSE_KEYS_MAX, COLLAPSE_RULES_MAX, COLLAPSE_COLUMNS_MAX = 16, 64, 100
"""Columns of the key, rules, and columns that both read, of a collapse."""
WINDOW_US_MIN, WINDOW_US_MAX = 1_000, 366 * 86_400_000_000
"""Windows of time of a collapse."""
LEASE_S_MIN, LEASE_S_MAX = 0.1, 30 * 86_400.0
"""Longest lease of a reader; a durable one has no lease."""

Position = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Moment = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Column = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Word = Annotated[str, Meta(max_length=2 * NAME_LENGTH_MAX)]


class Nothing(Struct, frozen=True):
    """Request without arguments."""


class ReaderRequest(Struct, frozen=True):
    """Request to keep matching events in the log for a named reader."""

    name: Name
    where: str = ""
    lease_s: Annotated[float, Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)] | None = None
    start: Position | None = None  # start of the reader; by default the end of the log
    passive: bool = False
    resume: bool = False  # the reader exists or has left: one that vanished otherwise has missed something


class Keep(Struct, frozen=True):
    """Request to keep matching events in the log, under a name."""

    name: Name
    where: str = ""


class Passed(Struct, frozen=True):
    """Report that a reader needs nothing below this position any more."""

    name: Name
    position: Position


class Leave(Struct, frozen=True):
    """Request to remove a reader or a filter to keep."""

    name: Name
    owner: str | None = None  # of another client; needs the right to manage
    resumable: bool = False  # a reader that may come back, and has not vanished


class CollapseTerms(Struct, frozen=True):
    """Terms of a collapse: the columns it reads with their types, its key, window and rules by name."""

    columns: Annotated[dict[Column, Word], Meta(max_length=COLLAPSE_COLUMNS_MAX)]
    by: Annotated[list[Column], Meta(max_length=COLLAPSE_KEYS_MAX)]
    rules: Annotated[dict[Column, Word], Meta(max_length=COLLAPSE_RULES_MAX)]  # such as highest(value)
    window_us: Annotated[int, Meta(ge=WINDOW_US_MIN, le=WINDOW_US_MAX)] | None = None


class ReadRequest(Struct, frozen=True):
    """Request for the events of the log from `start` on and before `end`."""

    start: Position
    end: Position | None = None
    where: str = ""
    size_max: Annotated[int, Meta(ge=1, le=READ_SIZE_MAX)] = 1 << 20
    skip: bool = False  # skip damaged events, instead of refusing
    skip_pruned: bool = False  # skip pruned events
    # Columns wanted of sealed events, by their names in the files.
    columns: Annotated[list[Column], Meta(max_length=COLUMNS_MAX)] | None = None
    collapse: CollapseTerms | None = None  # partial rows instead of events, where the node can
    channel: Annotated[str, Meta(max_length=NAME_LENGTH_MAX)] = ""  # its events, as a member: id or reference
    sealing: bool = False  # everything, for the files of the node's own sealer


class At(Struct, frozen=True):
    """Request for the position of the first event of the log that was stored at or after a time."""

    time_us: Moment


class FindEventsRequest(Struct, frozen=True):
    """Request for events by their ids."""

    ids: Annotated[list[str], Meta(max_length=IDS_MAX)]
    start: Position = 0


class SealedRequest(Struct, frozen=True):
    """Report of the sealer that files have all of the log up to this position."""

    position: Position
    first: Position = 0  # where the sealer began; files had everything before it
    problem: str = ""  # why the log can't be sealed just now


class Verify(Struct, frozen=True):
    """Request to verify stored data from a position on: a file, or part of the store."""

    start: Position


class Prune(Struct, frozen=True):
    """Request to prune sealed events before a position: all, or those that are too old or too much."""

    before: Position | None = None
    before_us: Moment | None = None
    size_max: Annotated[int, Meta(ge=0)] | None = None
    force: bool = False  # including events that readers have not passed
