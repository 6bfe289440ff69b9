"""The expression of a pattern as a tree, and the way it is written as text again.

The text of a tree parses to the same tree, so patterns travel and are stored as text.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tidings.filters.text import write
from tidings.filters.tree import Condition, Literal


class StepNode(Struct, frozen=True):
    """An event that the condition takes, or from `low` to `high` of them; `high` None: without a number."""

    name: str
    condition: Condition
    low: int = 1
    high: int | None = 1


class Absent(Struct, frozen=True):
    """No event that the condition takes, before the next part of a sequence or until the end."""

    step: StepNode


class Then(Struct, frozen=True):
    """Parts one after the other; at least two, none of them a Then."""

    parts: tuple[Node, ...]


class All(Struct, frozen=True):
    """All parts, in any order, their events mixed; at least two, none of them an All."""

    parts: tuple[Node, ...]


class Either(Struct, frozen=True):
    """One of the parts; at least two, none of them an Either."""

    parts: tuple[Node, ...]


Node = StepNode | Absent | Then | All | Either


def steps_in(node: Node) -> Iterator[StepNode]:
    """Yield all steps, those that must be absent too, in the order of the text."""
    match node:
        case StepNode():
            yield node
        case Absent(inner):
            yield inner
        case Then(parts) | All(parts) | Either(parts):
            for part in parts:
                yield from steps_in(part)


def joined(kind: type[Then | All | Either], parts: list[Node]) -> Node:
    """Return the parts joined, those of the same kind written out; one part alone stays as it is."""
    flat: list[Node] = []
    for part in parts:
        if isinstance(part, kind):
            flat += part.parts
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def write_node(node: Node) -> str:
    """Return the text of an expression, with as few brackets as possible."""
    match node:
        case StepNode(name, condition, low, high):
            text = "" if condition == Literal(True) else write(condition)
            return f"{name}[{text}]{_written_count(low, high)}"
        case Absent(inner):
            return f"NO {write_node(inner)}"
        case Then(parts):
            return " THEN ".join(map(write_node, parts))
        case Either(parts):
            return " OR ".join(_bracketed(part, Then) for part in parts)
        case All(parts):
            return " AND ".join(_bracketed(part, Then, Either) for part in parts)


def _bracketed(node: Node, *looser: type) -> str:
    text = write_node(node)
    return f"({text})" if isinstance(node, looser) else text


def _written_count(low: int, high: int | None) -> str:
    if low == high:
        return "" if low == 1 else f"{{{low}}}"
    return f"{{{low},{'' if high is None else high}}}"
