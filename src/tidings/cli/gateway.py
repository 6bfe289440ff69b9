"""`tidings gateway`: run a sensor gateway by itself. What it does is in `tidings.node.gateway`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidings.cli.connection import find_node
from tidings.cli.options import Address, Json, credential_options, settings_options, with_options
from tidings.errors import UserError
from tidings.node.settings import SETTINGS, convert, flag_of

Journal = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="A file of forwarded messages, so that none counts twice after a restart."
    ),
]
OPTIONS = settings_options(
    "host",
    "sensor_port",
    "sensor_http_port",
    "sensor_origins",
    "security",
    "sensor_plain",
    "sensor_strangers",
    "sensor_max_rate",
    "sensor_max_age_s",
    "sensor_grid",
    "connections_max",
    "log_level",
    "log_form",
    sensor_port=4242,
)


@with_options(*OPTIONS, *credential_options("Who it is at a node with TLS"))
def gateway(node: Address = None, journal: Journal = None, json: Json = False, **given: Any) -> None:
    """Run a gateway between sensor networks and a node, until it is stopped with Ctrl-C or SIGTERM.

    The first lines printed are its addresses for sensor networks. If the node is away, the gateway waits.
    """
    import msgspec

    from tidings.node.gateway.config import GatewayConfig
    from tidings.node.gateway.main import run

    for name, value in given.items():
        if name in SETTINGS and value is not None:
            convert(name, flag_of(name), value)
    settings = {
        name.removeprefix("sensor_"): value
        for name, value in {**given, "journal": journal}.items()
        if value is not None
    }
    address = find_node(None) if node is None else node
    try:
        config = msgspec.convert({"node": address, **settings}, GatewayConfig)
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    run(config, json)
