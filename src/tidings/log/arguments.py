"""The arguments of requests about the log, as a client may send them: what does not fit is refused."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidings.ids import NUMBER_MAX
from tidings.protocol.arguments import NAME_LENGTH_MAX, Name

READ_SIZE_MAX = 8 << 20
"""Bytes of events in one answer, about: an answer is one frame."""
IDS_MAX = 1_000
"""Events that are asked for by their ids at once."""
COLUMNS_MAX = 1_000
"""Columns that are asked for by name; who wants more asks for all."""
LEASE_S_MIN, LEASE_S_MAX = 0.1, 30 * 86_400.0
"""How long a reader may be there without being heard of; one that is durable has no lease."""

Position = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Moment = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Column = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]


class Nothing(Struct, frozen=True):
    """A request that says all by its name."""


class ReaderRequest(Struct, frozen=True):
    """Have what matches kept in the log for one who reads it there, under a name."""

    name: Name
    where: str = ""
    lease_s: Annotated[float, Meta(ge=LEASE_S_MIN, le=LEASE_S_MAX)] | None = None
    start: Position | None = None  # where its reader begins; without it, behind what there is
    passive: bool = False
    resume: bool = False  # it is there, or has left: one that is gone otherwise has missed something


class Keep(Struct, frozen=True):
    """Have what matches kept in the log, under a name."""

    name: Name
    where: str = ""


class Passed(Struct, frozen=True):
    """A reader needs nothing below this position any more."""

    name: Name
    position: Position


class Leave(Struct, frozen=True):
    """Request to remove a reader or a filter to keep."""

    name: Name
    owner: str | None = None  # of another client, for who may manage
    resumable: bool = False  # a reader that may come back, and has not vanished


class ReadRequest(Struct, frozen=True):
    """The events of the log from `start` on and before `end`, as far as there are any."""

    start: Position
    end: Position | None = None
    where: str = ""
    size_max: Annotated[int, Meta(ge=1, le=READ_SIZE_MAX)] = 1 << 20
    skip: bool = False  # pass over what is damaged, instead of refusing
    skip_pruned: bool = False  # pass over what was pruned
    # What is wanted of sealed events, by the names of columns in the files.
    columns: Annotated[list[Column], Meta(max_length=COLUMNS_MAX)] | None = None


class At(Struct, frozen=True):
    """The position of the first event of the log that was stored at or after a time."""

    time_us: Moment


class FindEventsRequest(Struct, frozen=True):
    """Events by their ids."""

    ids: Annotated[list[str], Meta(max_length=IDS_MAX)]
    start: Position = 0


class SealedRequest(Struct, frozen=True):
    """Files have all of the log up to this position; said by who seals."""

    position: Position
    first: Position = 0  # where who seals began, and before which files had all
    problem: str = ""  # why the log can't be sealed just now, if it can't


class Verify(Struct, frozen=True):
    """Look whether what is stored from a position on is as it was written; a file, or some of the store."""

    start: Position


class Prune(Struct, frozen=True):
    """Give up what is sealed and stands before a position, or of that what is too old or too much."""

    before: Position | None = None
    before_us: Moment | None = None
    size_max: Annotated[int, Meta(ge=0)] | None = None
    force: bool = False  # also what readers have not passed
