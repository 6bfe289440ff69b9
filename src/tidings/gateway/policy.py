"""Policy of a gateway, its counters, and the division of the world among several gateways.

They divide it by a grid of square cells, each of which belongs to one gateway, or to several that replicate
it. A cell's gateways are named in a list, or found by rendezvous hashing: every member computes the same by
itself, and when one leaves, only its cells move. A network is assigned by the middle of its area, so to the
gateways of one cell; one without an area is assigned by its sensing-id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import floor
from typing import Literal

from msgspec import Struct

from tidings.errors import ConfigError
from tidings.gateway.areas import AreaBox

Cell = tuple[int, int]


class GatewayGrid:
    """Assignment of networks to members; `members` are the addresses of the gateways by name.

    `cells` names the cells of some members; all other cells are divided by hashing. The cell (0, 0) goes
    from the origin to `cell_size` in both directions, without its far edges. `replicas` is the number of
    gateways of each cell.
    """

    def __init__(
        self,
        cell_size: float,
        members: Mapping[str, str],
        cells: Mapping[str, Iterable[Cell]] | None = None,
        replicas: int = 1,
    ) -> None:
        if not 0 < cell_size < float("inf"):
            raise ConfigError("grid", "cell_size", f"{cell_size} is no size of a cell")
        if not members:
            raise ConfigError("grid", "members", "a grid has one gateway at least")
        if not 1 <= replicas <= len(members):
            raise ConfigError("grid", "replicas", f"{replicas} of {len(members)} gateways can't serve a cell")
        self.cell_size = cell_size
        self.members = dict(members)
        self.replicas = replicas
        self._named: dict[Cell, list[str]] = {}
        for name, its_cells in (cells or {}).items():
            if name not in self.members:
                raise ConfigError("grid", "cells", f"{name!r} is no member")
            for cell in dict.fromkeys(its_cells):
                owners = self._named.setdefault(cell, [])
                owners.append(name)
                if len(owners) > replicas:
                    raise ConfigError("grid", "cells", f"{cell} is both {owners[0]!r}'s and {name!r}'s")

    def cell(self, x: float, y: float) -> Cell:
        """Return the cell of a place."""
        return floor(x / self.cell_size), floor(y / self.cell_size)

    def members_of(self, cell: Cell) -> list[str]:
        """Return the gateways of a cell, the first choice first."""
        named = self._named.get(cell, [])
        others = [] if len(named) == self.replicas else self._hashed(f"cell {cell[0]} {cell[1]}")
        return list(dict.fromkeys([*named, *others]))[: self.replicas]

    def members_for(self, sensing_id: str, box: AreaBox | None) -> list[str]:
        """Return the gateways of a network, the first choice first."""
        if box is None:
            return self._hashed(f"network {sensing_id}")[: self.replicas]
        return self.members_of(self.cell(*box.centre))

    def _hashed(self, text: str) -> list[str]:
        """Return the members by their hashes with the text, the highest first."""

        def rank(name: str) -> bytes:
            return blake2b(f"{name}\0{text}".encode(), digest_size=8).digest()

        return sorted(self.members, key=rank, reverse=True)


class Policy(Struct, frozen=True):
    """Settings of what a gateway allows.

    `strangers`: whether readings of networks that never registered are accepted. `hosts`: hosts that anyone
    may name as the address of a network. `grid` and `member`: the gateways that share the world, and which of
    them this one is; a network of another's cells gets an error, or is served here with `elsewhere="serve"`.
    `max_rate` and `max_age_s`: most readings per second that are requested of each sensor, and the largest
    age of one that it sends late; networks that don't know these members ignore them.
    """

    strangers: bool = True
    hosts: frozenset[str] = frozenset()
    grid: GatewayGrid | None = None
    member: str = ""
    elsewhere: Literal["redirect", "serve"] = "redirect"
    max_rate: float | None = None
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        if self.grid is not None and self.member not in self.grid.members:
            raise ConfigError("grid", "member", f"{self.member!r} is not one of the gateways")


class GatewayFigures(Struct):
    """Counters since the start."""

    readings: int = 0
    strange: int = 0
    """Readings of networks that never registered, accepted or not."""
    refused: int = 0
    """Readings that were not accepted."""
    repeated: int = 0
    """Messages that were repeated."""
    errors: int = 0
