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
from tidings.gateway.policy import Cell, Grid, Policy
from tidings.node.gateway.config import GatewayConfig


class Sharing(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says."""

    cell_size: float
    members: dict[str, str]
    member: str
    elsewhere: Literal["redirect", "serve"] = "redirect"
    cells: dict[str, list[Cell]] = {}


def policy_of(config: GatewayConfig, strangers: bool) -> Policy:
    """What a gateway lets happen, by its settings and its file if it has one; ConfigError if it can't be."""
    file, asked = config.grid, (config.max_rate, config.max_age_s)
    if file is None:
        return Policy(strangers, max_rate=asked[0], max_age_s=asked[1])
    try:
        said = msgspec.toml.decode(Path(file).read_bytes(), type=Sharing)
        grid = Grid(said.cell_size, said.members, said.cells)
        return Policy(strangers, frozenset(), grid, said.member, said.elsewhere, *asked)
    except OSError as error:
        raise ConfigError(file, "", f"can't be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(file, "", f"does not say how gateways share the world: {error}") from None
    except ConfigError as error:
        raise ConfigError(file, error.key, error.problem) from None
