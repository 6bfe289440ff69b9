"""Messages between the voters of a channel in total order, and what a node stores: see `sequencer.py`."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from tidings.channels.causal import Marks


class SequenceEntry(Struct, frozen=True, array_like=True):
    """An entry of the log: events of one first node up to a number; or, without a mark, new voters."""

    term: int
    mark: int = -1
    last: int = 0
    voters: tuple[str, ...] = ()


class AppendEntries(Struct, frozen=True, array_like=True, tag=1):
    """Entries behind `before`, whose term is `before_term`; all have those up to `trimmed`."""

    term: int
    before: int
    before_term: int
    entries: tuple[SequenceEntry, ...]
    agreed: int
    trimmed: int


class Appended(Struct, frozen=True, array_like=True, tag=2):
    """The voter has all entries up to `last`; or, if it is not `ok`, none behind it that fit."""

    term: int
    ok: bool
    last: int


class Vote(Struct, frozen=True, array_like=True, tag=3):
    """A request to be the sequencer, with the last entry that the caller has."""

    term: int
    last: int
    last_term: int


class Voted(Struct, frozen=True, array_like=True, tag=4):
    """The answer to it."""

    term: int
    granted: bool


class BeginSequence(Struct, frozen=True, array_like=True, tag=5):
    """The place where a voter begins that has no entries, or lacks some that are kept no more."""

    term: int
    base: int
    base_term: int
    voters: tuple[str, ...]
    listed: Marks


class Join(Struct, frozen=True, array_like=True, tag=6):
    """A node has members; `hops` are the nodes that have passed it on."""

    node: str
    hops: int = 0


class LeaveVoters(Struct, frozen=True, array_like=True, tag=7):
    """A node has no members any more."""

    node: str
    hops: int = 0


class Succeed(Struct, frozen=True, array_like=True, tag=8):
    """The sequencer of a term has left: the voter is asked to stand, as none is patient in vain then."""

    term: int


SequencerMessage: TypeAlias = (
    AppendEntries | Appended | Vote | Voted | BeginSequence | Join | LeaveVoters | Succeed
)


class SequencerState(Struct, frozen=True, omit_defaults=True):
    """What outlives the process; `base` is the last entry that is not kept any more."""

    term: int = 0
    voted: str = ""
    base: int = 0
    base_term: int = 0
    voters: tuple[str, ...] = ()  # at the base
    listed: Marks = {}  # at the base
    entries: tuple[SequenceEntry, ...] = ()
    passed: int = 0  # the last entry whose events members have got
    leaving: bool = False  # it has asked to be no voter, and does not know that it is none
