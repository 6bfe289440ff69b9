"""Settings of a gateway; `tidings gateway` and the node that starts one give them.

The file `grid` says how several gateways share the world, as TOML; it is the same for all except `member`:

member = "north"                      # which of them this is
cell_size = 1000.0
elsewhere = "redirect"                # or "serve": networks of others' cells are served here too
replicas = 1                          # the number of gateways of each cell

[members]
north = "10.0.0.1:4242"
south = "10.0.0.2:4242"

[cells]                               # cells that are named; all others are divided by hashing
north = [[0, 0], [0, 1]]
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from tidings.errors import ConfigError
from tidings.gateway.policy import Cell, GatewayGrid, Policy
from tidings.node.config_checks import check_host
from tidings.node.logs import Level, LogForm

PORT = 4242
"""Default port of a gateway for sensor networks."""


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of a gateway.

    `node` is the address of its node; the next six are the gateway's credentials there. `http_port` is for
    networks that speak HTTP or WebSocket, also from pages of `origins`, with commas between. `security` is
    the directory of users and certificates: then connections are with TLS, unless `plain` is set, and each
    network needs a user, except with `strangers`. `max_rate` and `max_age_s` are requested of each sensor.
    `journal` is the file in which it finds, when it is started again, the messages in flight; `grid` is the
    file that assigns networks to gateways.
    """

    node: str
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = PORT
    http_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    origins: str | None = None
    security: str | None = None
    plain: bool = False
    strangers: bool = False
    max_rate: Annotated[float, Meta(gt=0)] | None = None
    max_age_s: Annotated[float, Meta(gt=0)] | None = None
    grid: str | None = None
    journal: str | None = None
    connections_max: int = 15_000
    is_child: bool = False
    log_level: Level = "info"
    log_form: LogForm = "text"


def check(config: GatewayConfig) -> None:
    """Refuse a port that others can reach, unless the gateway has users."""
    needs = "the gateway needs users and rules; give --security DIR, or"
    check_host(config.host, config.security, needs=needs)


class Sharing(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of the file."""

    cell_size: float
    members: dict[str, str]
    member: str
    elsewhere: Literal["redirect", "serve"] = "redirect"
    cells: dict[str, list[Cell]] = {}
    replicas: int = 1


def policy_of(config: GatewayConfig, strangers: bool) -> Policy:
    """Return the policy by the settings and the file, if there is one; ConfigError if it is invalid."""
    file, asked = config.grid, (config.max_rate, config.max_age_s)
    if file is None:
        return Policy(strangers, max_rate=asked[0], max_age_s=asked[1])
    try:
        said = msgspec.toml.decode(Path(file).read_bytes(), type=Sharing)
        grid = GatewayGrid(said.cell_size, said.members, said.cells, said.replicas)
        return Policy(strangers, frozenset(), grid, said.member, said.elsewhere, *asked)
    except OSError as error:
        raise ConfigError(file, "", f"can't be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(file, "", f"does not say how gateways share the world: {error}") from None
    except ConfigError as error:
        raise ConfigError(file, error.key, error.problem) from None
