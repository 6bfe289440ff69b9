"""What a gateway lets happen, and what it counts."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tidings.errors import ConfigError
from tidings.gateway.grid import Grid


class Policy(Struct, frozen=True):
    """What a gateway lets happen.

    `strangers`: whether readings of networks that never registered are taken. `hosts`: hosts that anyone may
    name as the address of a network. `grid` and `member`: the gateways that share the world, and which of
    them this one is; a network of another's cells is told so, or with `elsewhere="serve"` served here.
    `max_rate` and `max_age_s`: how many readings a second each sensor is asked for at most, and how old one
    may be that it sends late; networks that don't know these words pass them over.
    """

    strangers: bool = True
    hosts: frozenset[str] = frozenset()
    grid: Grid | None = None
    member: str = ""
    elsewhere: Literal["redirect", "serve"] = "redirect"
    max_rate: float | None = None
    max_age_s: float | None = None

    def __post_init__(self) -> None:
        if self.grid is not None and self.member not in self.grid.members:
            raise ConfigError("grid", "member", f"{self.member!r} is none of the gateways")


class Figures(Struct):
    """What was counted since the start."""

    readings: int = 0
    strange: int = 0
    """Readings of networks that never registered, taken or not."""
    refused: int = 0
    """Readings that were not taken."""
    repeated: int = 0
    """Messages that came again."""
    errors: int = 0
