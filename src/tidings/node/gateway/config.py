"""The settings of a gateway; `tidings gateway` and the node that starts one give them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from msgspec import Meta, Struct

from tidings.errors import ConfigError
from tidings.node.logs import Form, Level

PORT = 4242
"""Where a gateway listens for sensor networks unless it is told otherwise."""


FAILED = "failed: "
"""Before what the child of a node says that can't start."""
FIGURES = "figures: "
"""Before what it has counted, as JSON, now and then."""


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of a gateway.

    `node` is the address of its node; the next six say who the gateway is there. `http_port` is for networks
    that speak HTTP or WebSocket, also from pages of `origins`, with commas between. `security` is the
    directory of users and certificates: then connections are with TLS, unless `plain` is set, and each
    network says whose it is, but for `strangers`. `max_rate` and `max_age_s` are asked of each sensor.
    `journal` is the file in which it finds, when it is started
    again, what it had handed on; `grid` is the one that says which gateway serves what.
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
    log_form: Form = "text"


def check(config: GatewayConfig) -> None:
    """Refuse a port that others can reach, unless the gateway knows who they are."""
    try:
        is_loopback = config.host == "localhost" or ip_address(config.host).is_loopback
    except ValueError:
        raise ConfigError("the settings", "host", f"{config.host!r} is no IP address") from None
    if not is_loopback and config.security is None:
        raise ConfigError(
            "the settings",
            "host",
            f"{config.host} can be reached from other machines, so the gateway must know whose networks these"
            " are: --security DIR says where that stands; or use a loopback address such as 127.0.0.1",
        )
