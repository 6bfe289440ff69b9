"""The file that says how several gateways share the world, as TOML; each has the same but for `member`.

member = "north"                      # which of them this is
cell_size = 1000.0
elsewhere = "redirect"                # or "serve": networks of others' cells are served here too

[members]
north = "10.0.0.1:4242"
south = "10.0.0.2:4242"

[cells]                               # cells that are named; all others are shared out by hashing
north = [[0, 0], [0, 1]]
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError
from tidings.gateway.grid import Cell, Grid
from tidings.gateway.policy import Policy


class Sharing(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says."""

    cell_size: float
    members: dict[str, str]
    member: str
    elsewhere: Literal["redirect", "serve"] = "redirect"
    cells: dict[str, list[Cell]] = {}


def policy_of(file: str | None, strangers: bool) -> Policy:
    """What a gateway lets happen, by this file if there is one; ConfigError if it can't be."""
    if file is None:
        return Policy(strangers)
    try:
        said = msgspec.toml.decode(Path(file).read_bytes(), type=Sharing)
        grid = Grid(said.cell_size, said.members, said.cells)
        return Policy(strangers, grid=grid, member=said.member, elsewhere=said.elsewhere)
    except OSError as error:
        raise ConfigError(file, "", f"can't be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(file, "", f"does not say how gateways share the world: {error}") from None
    except ConfigError as error:
        raise ConfigError(file, error.key, error.problem) from None
