"""Policy of a gateway, its counters, and the division of the world among several gateways.

They divide it by a grid of square cells, each of which belongs to one gateway. A cell's gateway is named in a
list, or found by rendezvous hashing: every member computes the same by itself, and when one leaves, only its
cells move. A network is assigned by the middle of its area, so to exactly one gateway; one without an area is
assigned by its sensing-id.
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
    from the origin to `cell_size` in both directions, without its far edges.
    """

    def __init__(
        self,
        cell_size: float,
        members: Mapping[str, str],
        cells: Mapping[str, Iterable[Cell]] | None = None,
    ) -> None:
        if not 0 < cell_size < float("inf"):
            raise ConfigError("grid", "cell_size", f"{cell_size} is no size of a cell")
        if not members:
            raise ConfigError("grid", "members", "a grid has one gateway at least")
        self.cell_size = cell_size
        self.members = dict(members)
        self._named: dict[Cell, str] = {}
        for name, its_cells in (cells or {}).items():
            if name not in self.members:
                raise ConfigError("grid", "cells", f"{name!r} is no member")
            for cell in its_cells:
                if (first := self._named.setdefault(cell, name)) != name:
                    raise ConfigError("grid", "cells", f"{cell} is both {first!r}'s and {name!r}'s")

    def cell(self, x: float, y: float) -> Cell:
        """Return the cell of a place."""
        return floor(x / self.cell_size), floor(y / self.cell_size)

    def member_of(self, cell: Cell) -> str:
        """Return the gateway of a cell."""
        return self._named.get(cell) or self._hashed(f"cell {cell[0]} {cell[1]}")

    def member_for(self, sensing_id: str, box: AreaBox | None) -> str:
        """Return the gateway of a network."""
        if box is None:
            return self._hashed(f"network {sensing_id}")
        return self.member_of(self.cell(*box.centre))

    def _hashed(self, text: str) -> str:
        """Return the member whose hash with the text is the highest."""
        return max(self.members, key=lambda name: blake2b(f"{name}\0{text}".encode(), digest_size=8).digest())


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
            raise ConfigError("grid", "member", f"{self.member!r} is none of the gateways")


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
