"""`tidings gateway`: run a sensor gateway by itself. What it does is in `tidings.node.gateway`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidings.cli.connection import Address, find_node
from tidings.errors import UserError

Host = Annotated[str, typer.Option(help="The address to listen on; without --security, a loopback address.")]
SensorPort = Annotated[int, typer.Option(help="The port for TCP and UDP, 0 for a free one.")]
SensorHttpPort = Annotated[
    int | None, typer.Option(help="Let sensor networks speak HTTP and WebSocket here, 0 for a free port.")
]
SensorOrigins = Annotated[str | None, typer.Option(metavar="ORIGIN,…", help="Whose pages may speak there.")]
Security = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Users, rules and certificates; then TCP is with TLS."),
]
Plain = Annotated[
    bool, typer.Option("--sensor-plain", help="With --security: sensor networks without TLS, with tokens.")
]
Strangers = Annotated[
    bool, typer.Option("--sensor-strangers", help="With --security: readings of anyone, too.")
]
MaxRate = Annotated[
    float | None, typer.Option(help="Readings a second that each sensor is asked for at most.")
]
MaxAge = Annotated[
    float | None, typer.Option("--sensor-max-age-s", help="How old a reading may be that is sent late.")
]
SensorGrid = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Which of several gateways serves what, as TOML.")
]
Journal = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What it has handed on, so that a new start counts nothing twice."),
]
Connections = Annotated[int, typer.Option(help="How many connections are taken.")]
_PANEL = "Who it is at a node with TLS"
User = Annotated[str | None, typer.Option(metavar="NAME", help="The user.", rich_help_panel=_PANEL)]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The user's password.", rich_help_panel=_PANEL)
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A token of the user.", rich_help_panel=_PANEL)
]
Ca = Annotated[Path | None, typer.Option(metavar="FILE", help="Whom to trust.", rich_help_panel=_PANEL)]
Cert = Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate.", rich_help_panel=_PANEL)]
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The key of the certificate.", rich_help_panel=_PANEL)
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]
LogForm = Annotated[str, typer.Option(help="How log lines are written: text or json.")]


def gateway(
    node: Address = None,
    host: Host = "127.0.0.1",
    sensor_port: SensorPort = 4242,
    sensor_http_port: SensorHttpPort = None,
    sensor_origins: SensorOrigins = None,
    security: Security = None,
    sensor_plain: Plain = False,
    sensor_strangers: Strangers = False,
    sensor_max_rate: MaxRate = None,
    sensor_max_age_s: MaxAge = None,
    sensor_grid: SensorGrid = None,
    journal: Journal = None,
    connections_max: Connections = 15_000,
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    log_level: LogLevel = "info",
    log_form: LogForm = "text",
) -> None:
    """Run a gateway between sensor networks and a node, until it is stopped with Ctrl-C or SIGTERM.

    The first lines printed say where sensor networks may speak. If the node goes away, it is waited for.
    """
    import msgspec

    from tidings.node.gateway.config import GatewayConfig
    from tidings.node.gateway.main import run

    files = {"security": security, "journal": journal, "ca": ca, "cert": cert, "key": key}
    files |= {"grid": sensor_grid, "password_file": password_file, "token_file": token_file}
    settings = {
        "node": find_node(None) if node is None else node,
        "user": user,
        "host": host,
        "port": sensor_port,
        "http_port": sensor_http_port,
        "origins": sensor_origins,
        "plain": sensor_plain,
        "strangers": sensor_strangers,
        "max_rate": sensor_max_rate,
        "max_age_s": sensor_max_age_s,
        "connections_max": connections_max,
        "log_level": log_level,
        "log_form": log_form,
        **{name: None if file is None else str(file) for name, file in files.items()},
    }
    try:
        config = msgspec.convert(settings, GatewayConfig)
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    run(config)
