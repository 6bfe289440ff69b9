"""Keys with several filters: each of these filters stands in the index under a *part* of its key.

A part is a key like any other to all forms of the index. A result may have several parts of one key, so they
are replaced by their key, which comes once. The engine does so for whole batches in compiled code
(`kernel.once`); here is the rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tidings.event.texts import Ints

Key = TypeVar("Key", bound=Hashable)


class FilterPart:
    """Stands for one of the filters of a key; two parts are never equal."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def owner_of(key: Any) -> Any:
    """Return the key that a part belongs to, and any other key as it is."""
    return key.owner if type(key) is FilterPart else key


def once(found: Iterable[Any]) -> list[Any]:
    """Return each key once, parts as their key."""
    return list(dict.fromkeys([one.owner if type(one) is FilterPart else one for one in found]))


def once_each(items: Iterable[tuple[Key, Sequence[int] | Ints]]) -> dict[Key, Sequence[int]]:
    """Return the rows of each key, ascending, where several parts of a key may have the same rows."""
    lots: dict[Key, list[Any]] = {}
    for key, rows in items:
        lots.setdefault(owner_of(key), []).append(rows)
    return {key: rows[0] if len(rows) == 1 else sorted(set().union(*rows)) for key, rows in lots.items()}
