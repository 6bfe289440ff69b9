"""What an event must have for a filter to match that no range of values tells: texts, and levels of topics.

A *gate* is a condition on the string of one attribute which all gates of its kind answer in one look: that it
is equal to a text, ends with it, has it in it, or is a topic with certain levels. A filter has *gates* if it
can't match unless one of them is open; then only events that open one need be shown to it. Of what is joined
by AND one part is chosen, the one that says most; of what is joined by OR each must have gates.

Every filter is sorted by what the index knows of it (`way_of`): its constraints say all; a gate tells when to
ask it; it demands a value; or it must be asked about every event, which is counted as *unindexed*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidings.filters.patterns import needed_by_like, needed_by_matches
from tidings.filters.topics import DOTS, SLASHES, levels_of_under, read_topic
from tidings.filters.tree import And, Call, Compare, Condition, In, Literal, Name, Or
from tidings.matching.fields import UNSCANNED

if TYPE_CHECKING:
    from tidings.filters import Filter

GATES_MAX: Final = 1_000
"""Gates of one filter; one that would need more is asked about every event."""
EQUAL_STRENGTH: Final = 3
TOPIC_STRENGTH: Final = 4
TEXT_STRENGTH_MAX: Final = 64
"""How much a gate says: a text counts its characters, a value as much as three, a topic as four."""


Key = TypeVar("Key", bound=Hashable)
Keys = dict[Key, None]
"""All who stand behind one gate, in their order."""


class Table(Enum):
    """Where a gate stands."""

    EQUAL = "equal"
    END = "end"
    PART = "part"
    DOTS = DOTS.separator
    SLASHES = SLASHES.separator


class Path(NamedTuple):
    """A topic pattern: its levels, None for any, the fewest levels it takes, and whether more may follow.

    It takes topics that have between `fewest` and all of its levels, these being alike, and longer ones if it
    is open.
    """

    levels: tuple[str | None, ...]
    fewest: int
    is_open: bool


class Gate(NamedTuple):
    """What the string of an attribute must be."""

    name: str
    table: Table
    wanted: str | Path


class Gates(NamedTuple):
    """Gates of which one must be open, how much the weakest says, and whether an open one says all."""

    gates: tuple[Gate, ...]
    strength: int
    is_exact: bool = False


class Way(Enum):
    """How the index comes to ask a filter."""

    EXACT = "exact"
    GATED = "gated"
    DEMANDING = "demanding"
    UNINDEXED = "unindexed"


def way_of(wanted: Filter) -> tuple[Way, Gates | None]:
    """How an index deals with a filter, and the gates it then has; many filters cost no more than a look."""
    if all(not one.residues and UNSCANNED.isdisjoint(one.constraints) for one in wanted.normal):
        return Way.EXACT, None
    gates = gates_of(wanted.condition)
    if gates is None or not (gates.strength or gates.is_exact):
        return Way.UNINDEXED, None
    if all(gate.table is Table.EQUAL and gate.name not in UNSCANNED for gate in gates.gates):
        return Way.DEMANDING, None  # its constraints tell that, and what else it wants
    return Way.GATED, gates


def demands_value(wanted: Filter) -> bool:
    """Whether the constraints of a filter tell that it wants certain texts."""
    gates = gates_of(wanted.condition, equal_only=True)
    return gates is not None and UNSCANNED.isdisjoint(gate.name for gate in gates.gates)


def gates_of(node: Condition, equal_only: bool = False) -> Gates | None:
    """The gates of a condition, or None where it has none."""
    match node:
        case Compare("=", Name(name), Literal(str() as text)):
            return _equal(name, text)
        case In(name, values) if all(isinstance(value, str) for value in values):
            return _equal(name, *map(str, values))
        case Call(function, (name,), constants) if function in _READERS and not equal_only:
            return _READERS[function](name, *constants)
        case And(operands):
            found = [made for part in operands if (made := gates_of(part, equal_only)) is not None]
            best = max(found, key=lambda gates: gates.strength, default=None)
            return None if best is None else best._replace(is_exact=False)
        case Or(operands):
            return _any_of([gates_of(part, equal_only) for part in operands])
    return None


def _any_of(parts: list[Gates | None]) -> Gates | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    gates = tuple(dict.fromkeys(chain.from_iterable(part.gates for part in known)))
    strength = min(part.strength for part in known)
    return _limited(Gates(gates, strength, all(part.is_exact for part in known)))


def _limited(gates: Gates) -> Gates | None:
    return gates if len(gates.gates) <= GATES_MAX else None


# Reading conditions


def _equal(name: str, *texts: str) -> Gates | None:
    gates = tuple(Gate(name, Table.EQUAL, text) for text in texts)
    return _limited(Gates(gates, EQUAL_STRENGTH, is_exact=True))


def _text(name: str, text: str, at_end: bool, is_exact: bool) -> Gates | None:
    if not text:
        return None
    gate = Gate(name, Table.END if at_end else Table.PART, text)
    return Gates((gate,), min(len(text), TEXT_STRENGTH_MAX), is_exact)


def _like(name: str, pattern: str, escape: str | None = None) -> Gates | None:
    text, at_end, is_all = needed_by_like(pattern, escape)
    return _text(name, text, at_end, is_all)


def _path(name: str, table: Table, path: Path, is_exact: bool) -> Gates:
    strength = TOPIC_STRENGTH if any(level is not None for level in path.levels) else 0
    return Gates((Gate(name, table, path),), strength, is_exact)


def _topic(name: str, pattern: str) -> Gates:
    spelling, levels, is_open = read_topic(pattern)
    table = Table.SLASHES if spelling is SLASHES else Table.DOTS
    more = is_open and spelling is DOTS  # its > stands for one level at least
    return _path(name, table, Path(levels, len(levels) + more, is_open), is_exact=True)


def _under(name: str, pattern: str, escape: str | None = None) -> Gates | None:
    """None where the first name is a pattern: every topic of one level may then be a parent."""
    levels = levels_of_under(pattern, escape)
    if levels[0] is None:
        return None
    return _path(name, Table.DOTS, Path(levels, 1, is_open=True), is_exact=None not in levels)


def _is_a(name: str, *terms: str) -> Gates | None:
    paths = [Path(tuple(term.split(DOTS.separator)), term.count(DOTS.separator) + 1, True) for term in terms]
    gates = tuple(Gate(name, Table.DOTS, path) for path in dict.fromkeys(paths))
    return _limited(Gates(gates, TOPIC_STRENGTH, is_exact=True))


_READERS: dict[str, Callable[..., Gates | None]] = {
    "TOPIC": _topic,
    "UNDER": _under,
    "IS_A": _is_a,
    "LIKE": _like,
    "STARTS_WITH": lambda name, text: _text(name, text, at_end=False, is_exact=False),
    "ENDS_WITH": lambda name, text: _text(name, text, at_end=True, is_exact=True),
    "CONTAINS": lambda name, text: _text(name, text, at_end=False, is_exact=True),
    "MATCHES": lambda name, pattern: _text(name, needed_by_matches(pattern).text, False, False),
}
