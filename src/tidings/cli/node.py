"""`tidings node`: run a node. What it does is in `tidings.node`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Dir = Annotated[
    str | None, typer.Option("--dir", metavar="DIR", help="Store events here; without it nothing is kept.")
]
Name = Annotated[
    str | None,
    typer.Option(help="What people call the node.  [the name of this machine]", show_default=False),
]
Host = Annotated[
    str | None,
    typer.Option(help="The address to listen on; without --security, a loopback address.  [127.0.0.1]"),
]
Port = Annotated[
    int | None,
    typer.Option(help="The TCP port, 0 for a free one.  [7300, or none if there is a Unix socket]"),
]
Unix = Annotated[str | None, typer.Option(metavar="PATH", help="A Unix socket to listen on.")]
HttpPort = Annotated[int | None, typer.Option(help="Serve metrics for Prometheus here, 0 for a free port.")]
SensorPort = Annotated[
    int | None, typer.Option(help="Let sensor networks speak here, by TCP and UDP, 0 for a free port.")
]
SensorHttpPort = Annotated[
    int | None, typer.Option(help="Let sensor networks speak HTTP and WebSocket here, 0 for a free port.")
]
SensorOrigins = Annotated[str | None, typer.Option(metavar="ORIGIN,…", help="Whose pages may speak there.")]
SensorPlain = Annotated[
    bool | None,
    typer.Option("--sensor-plain/--sensor-tls", help="With --security: sensor networks without TLS."),
]
SensorStrangers = Annotated[
    bool | None,
    typer.Option("--sensor-strangers/--sensor-users", help="With --security: readings of anyone, too."),
]
SensorMaxRate = Annotated[
    float | None, typer.Option(help="Readings a second that each sensor is asked for at most.")
]
SensorMaxAge = Annotated[
    float | None, typer.Option("--sensor-max-age-s", help="How old a reading may be that is sent late.")
]
SensorGrid = Annotated[
    str | None, typer.Option(metavar="FILE", help="Which of several gateways serves what, as TOML.")
]
Security = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Users, rules and certificates, as 'tidings security init' makes them."),
]
Peers = Annotated[
    str | None, typer.Option(metavar="NAME=ADDRESS,…", help="Other nodes whose queues are found here too.")
]
Mdns = Annotated[
    bool | None, typer.Option("--mdns/--no-mdns", help="Find other nodes on the network, and be found.")
]
Postgres = Annotated[
    str | None,
    typer.Option(metavar="CONNINFO", help="A PostgreSQL database with queues that several nodes share."),
]
QueueTypes = Annotated[
    str | None, typer.Option(metavar="MODULE:CLASS,…", help="More types of queues than every node has.")
]
Connections = Annotated[int | None, typer.Option(help="How many connections are taken.  [15000]")]
MemoryMax = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Memory for all clients.  [a quarter of the machine's]")
]
MemoryUserMax = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Memory for one user.  [half of --memory-max]")
]
MemorySessionMax = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Memory for one session.  [an eighth of --memory-max]")
]
Compiled = Annotated[
    bool | None, typer.Option("--compiled/--plain", help="Use compiled code when there is much to do.")
]
LogWhere = Annotated[
    str | None, typer.Option(metavar="FILTER", help="What is kept in the log beside persistent events.")
]
LogFolder = Annotated[
    str | None, typer.Option(metavar="PATH|URI", help="Where the log is sealed into files.  [DIR/log]")
]
LogSeal = Annotated[
    float | None,
    typer.Option("--log-seal-s", help="Seal after so many seconds at the latest, 0 for never.  [300]"),
]
LogDays = Annotated[float | None, typer.Option(help="Remove sealed files after so many days.  [never]")]
LogSize = Annotated[int | None, typer.Option(help="Remove the oldest beyond so many bytes.  [never]")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.  [info]")]
LogForm = Annotated[str | None, typer.Option(help="How log lines are written: text or json.  [text]")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file with these settings.")]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print all settings that would hold, as such a file, and end.")
]


def node(
    directory: Dir = None,
    name: Name = None,
    host: Host = None,
    port: Port = None,
    unix: Unix = None,
    http_port: HttpPort = None,
    sensor_port: SensorPort = None,
    sensor_http_port: SensorHttpPort = None,
    sensor_origins: SensorOrigins = None,
    sensor_plain: SensorPlain = None,
    sensor_strangers: SensorStrangers = None,
    sensor_max_rate: SensorMaxRate = None,
    sensor_max_age_s: SensorMaxAge = None,
    sensor_grid: SensorGrid = None,
    security: Security = None,
    peers: Peers = None,
    mdns: Mdns = None,
    postgres: Postgres = None,
    queue_types: QueueTypes = None,
    connections_max: Connections = None,
    memory_max: MemoryMax = None,
    memory_user_max: MemoryUserMax = None,
    memory_session_max: MemorySessionMax = None,
    compiled: Compiled = None,
    log_where: LogWhere = None,
    log_folder: LogFolder = None,
    log_seal_s: LogSeal = None,
    log_days: LogDays = None,
    log_size: LogSize = None,
    log_level: LogLevel = None,
    log_form: LogForm = None,
    config: Config = None,
    show_config: ShowConfig = False,
) -> None:
    """Run a node until it is stopped with Ctrl-C or SIGTERM.

    Settings come from flags, then from variables such as TIDINGS_PORT, then from the file given by --config.
    The first line printed says where the node listens. One that is not told where also has the socket under
    which programs find the node of this machine.
    """
    from tidings.node.config import as_toml, load

    flags = {
        "dir": directory,
        "name": name,
        "host": host,
        "port": port,
        "unix": unix,
        "http_port": http_port,
        "sensor_port": sensor_port,
        "sensor_http_port": sensor_http_port,
        "sensor_origins": sensor_origins,
        "sensor_plain": sensor_plain,
        "sensor_strangers": sensor_strangers,
        "sensor_max_rate": sensor_max_rate,
        "sensor_max_age_s": sensor_max_age_s,
        "sensor_grid": sensor_grid,
        "security": security,
        "peers": peers,
        "mdns": mdns,
        "postgres": postgres,
        "queue_types": queue_types,
        "connections_max": connections_max,
        "memory_max": memory_max,
        "memory_user_max": memory_user_max,
        "memory_session_max": memory_session_max,
        "compiled": compiled,
        "log_where": log_where,
        "log_folder": log_folder,
        "log_seal_s": log_seal_s,
        "log_days": log_days,
        "log_size": log_size,
        "log_level": log_level,
        "log_form": log_form,
    }
    settings = load(config, os.environ, flags)
    if show_config:
        typer.echo(as_toml(settings), nl=False)
        return
    from tidings.node.local import as_machine_node
    from tidings.node.main import run

    run(as_machine_node(settings))
