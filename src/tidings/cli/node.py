"""`tidings node`, `gateway` and `ping`: run a node or a sensor gateway, look at a node, and end it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidings.cli.connection import (
    UNREACHED,
    bus_at,
    credentials_at,
    default_node,
    find_node,
    identifies,
    reaching,
)
from tidings.cli.options import (
    Address,
    Json,
    Place,
    credential_options,
    option,
    seconds,
    settings_options,
    with_options,
)
from tidings.cli.printing import (
    add_row,
    age_text,
    new_table,
    print_found,
    print_json,
    print_result,
    shown,
    to_json,
    word,
)
from tidings.errors import Disconnected, InternalError, MissingExtra, NotAllowed, Refused, UserError
from tidings.node.settings import SETTINGS, as_toml, convert, flag_of, load
from tidings.transport.dial import dial

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client import Bus
    from tidings.node.local import RunningNode

ANSWER_S_MAX = 10.0
"""How long a node may take to answer a command."""
LINE_LENGTH_MAX = 4_096
"""Characters of an invitation on standard input."""
LOOK_S = 0.05
"""How often a command looks whether a node has ended."""

Config = Annotated[Path | None, option("FILE", "A TOML file with these settings.")]
Join = Annotated[
    str | None,
    option(
        "LINE",
        "Join another node by the line that 'tidings security invite' printed there; - reads it from"
        " standard input. TIDINGS_JOIN may have it, too. Once it has joined, the node needs it no more.",
    ),
]
ShowConfig = Annotated[bool, option("--show-config", "Print the effective settings as such a file, and end.")]
Directory = Annotated[Path | None, option("DIR", "The directory that the node will have.")]
StopTimeout = Annotated[float, seconds("--timeout", "How long the node may take to end.")]
DrainTimeout = Annotated[float, seconds("--timeout", "How long it may take.")]
Stops = Annotated[bool, option("--stop", "Stop the node afterwards, also if clients have stayed.")]
PingTimeout = Annotated[float, seconds("--timeout", "How long the node may take.")]
Journal = Annotated[
    str | None, option("FILE", "A file of forwarded messages, so that none counts twice after a restart.")
]
GATEWAY_SETTINGS = settings_options(
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

app = typer.Typer()


@app.callback(invoke_without_command=True)
@with_options(*settings_options())
def node(
    context: typer.Context,
    config: Config = None,
    join: Join = None,
    show_config: ShowConfig = False,
    json: Json = False,
    **flags: Any,
) -> None:
    """Run a node until it is stopped with Ctrl-C or SIGTERM.

    Settings come from flags, then from variables such as TIDINGS_PORT, then from the file given by --config.
    The first line printed says where the node listens, with --json as an object. Without --port and
    --unix it also has the socket under which programs find the node of this machine.
    """
    if context.invoked_subcommand is not None:
        flags |= {"config": config, "join": join, "show_config": show_config or None, "json": json or None}
        _refuse_settings(context.invoked_subcommand, flags)
        return
    line = _invitation(join)
    settings = load(config, os.environ, flags, is_joining=line is not None)
    if show_config:
        import tomllib  # here: a node starts without it

        file = as_toml(settings)
        typer.echo(to_json(tomllib.loads(file)) if json else file, nl=json)
        return
    if line is not None:
        from tidings.node.joining import join as join_node

        text = join_node(settings, line)
        if text is not None:
            typer.echo(text, err=True)
        settings = load(config, os.environ, flags)
    from tidings.node.local import as_machine_node
    from tidings.node.main import run

    run(as_machine_node(settings), json)


def _invitation(given: str | None) -> str | None:
    """Return the line of an invitation; it is taken out of the environment, which children would have."""
    found = os.environ.pop("TIDINGS_JOIN", None)
    if given == "-":
        return sys.stdin.readline(LINE_LENGTH_MAX + 1)
    return given or found or None


def _refuse_settings(command: str, flags: dict[str, Any]) -> None:
    """Refuse options of a node that is started where none is."""
    given = [flag_of(name) for name, value in flags.items() if value is not None]
    if given:
        raise UserError(f"{given[0]} is for starting a node; put options of '{command}' after its name")


@app.command("compile")
def compile_code(dir: Directory = None, json: Json = False) -> None:
    """Compile the code of nodes for this machine and user, so that the first node need not.

    For images of containers, and after an installation. Takes half a minute, and no time if it was done. Give
    --dir for a node whose user has no cache directory. Exit code 1: it can't be compiled, or not be stored.
    """
    from tidings.node import compiled

    if not compiled.is_installed():
        raise MissingExtra("compiled code", "node")
    try:
        cache = compiled.compile_now(None if dir is None else str(dir))
    except (OSError, InternalError) as error:
        typer.echo(f"tidings: could not compile: {error}", err=True)
        raise typer.Exit(1) from None
    print_result({"cache": str(cache)}, f"compiled code is in {cache}", json)


@with_options(*GATEWAY_SETTINGS, *credential_options("Who it is at a node with TLS"))
def gateway(node: Address = None, journal: Journal = None, json: Json = False, **given: Any) -> None:
    """Run a gateway between sensor networks and a node, until it is stopped with Ctrl-C or SIGTERM.

    The first lines printed are its addresses for sensor networks. If the node is away, the gateway waits.
    """
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
    address = find_node() if node is None else node
    try:
        config = msgspec.convert({"node": address, **settings}, GatewayConfig)
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    run(config, json)


# Nodes that run


@app.command("list")
def show_list(json: Json = False) -> None:
    """List the nodes that you run on this machine, with their processes and addresses.

    Nodes of other users and inside of programs are not listed. The exit code is 0, even if there are none.
    """
    from tidings.node.local import list_running

    print_found(list_running(), json, to_json, node_table, "you run no nodes on this machine")


def node_table(nodes: Sequence[RunningNode]) -> Table:
    """One row a node."""
    table = new_table(
        "name", "node", "pid", "up", "address", "directory", numbers=("pid",), wide=("directory",)
    )
    now = time.time()
    for one in nodes:
        places = " ".join(map(shown, one.addresses))
        about = "–" if one.dir is None else shown(one.dir)
        add_row(table, word(one.name), one.node, str(one.pid), age_text(now - one.started), places, about)
    return table


@app.command()
@identifies
async def status(address: Place = None, json: Json = False) -> None:
    """Show what a node is, where it listens, and how much it has to do.

    Exit code 0: the node answered. 1: it did not, or refused to. 2: the address or an option is wrong.
    """
    place = address or default_node()
    with reaching(place, json):
        async with bus_at(place, reconnect=False) as bus:
            found = await bus.status(timeout_s=ANSWER_S_MAX)
    lines = (f"{name:<10}{text}" for name, text in status_lines(found, time.time()))
    print_result({"address": place, **found}, "\n".join(lines), json)


def status_lines(status: dict[str, Any], now: float) -> list[tuple[str, str]]:
    """The status of a node in words; a node of an earlier version says nothing of its process."""
    queues = status.get("queues", [])
    waiting = sum(queue.get("messages", 0) for queue in queues)
    lines = [
        ("node", f"{word(status.get('name', ''))} ({status['node']})"),
        ("sessions", f"{status['sessions']:,}, with {status['subscriptions']:,} subscriptions"),
        ("stored", f"up to position {status['position']:,}"),
        ("queues", f"{len(queues):,}, with {waiting:,} messages"),
    ]
    if "pid" in status:
        age = age_text(now - status["started"])
        lines[1:1] = [
            ("process", f"{status['pid']}, tidings {shown(status['version'])}, up for {age}"),
            *(("listening", f"on {shown(one)}") for one in status["addresses"]),
            ("directory", "none: it stores nothing" if status["dir"] is None else shown(status["dir"])),
            ("compiled", status["compiled"]),
        ]
    return lines


@identifies
async def ping(address: Place = None, timeout: PingTimeout = 5.0, json: Json = False) -> None:
    """Connect to a node, and print how long its answer takes.

    Exit code 0: the node answered. 1: it did not, or refused to. 2: the address or an option is wrong.
    """
    from tidings.transport.ping import ping

    place = address or default_node()
    given = credentials_at(place)
    with reaching(place, json):
        found = await ping(dial(place, given), given.says, timeout)
    text = f"{word(found.name)} ({found.node}) at {place}: {found.round_trip_s * 1e3:.2f} ms"
    print_result({"address": place, **found._asdict()}, text, json)


@app.command()
@identifies
async def stop(address: Place = None, timeout: StopTimeout = 30.0, json: Json = False) -> None:
    """Stop a node in good order, and wait until it has ended.

    At a node with security it takes the right to manage everything. A node without security that you run on
    this machine gets SIGTERM. Exit code 0: the node has ended. 1: it did not answer, refused, or did not end
    in time. 2: the address or an option is wrong.
    """
    await stop_node(address or default_node(), timeout, json)


async def stop_node(place: str, timeout: float, json: bool) -> None:
    """Stop the node at an address, and wait until it has ended."""
    from tidings.node.local import list_running
    from tidings.transport.ping import ping

    given = credentials_at(place)

    async def answers() -> bool:
        try:
            return (await ping(dial(place, given), given.says, ANSWER_S_MAX)).node == found.node
        except (Disconnected, Refused):
            return False

    with reaching(place, json):
        found = await ping(dial(place, given), given.says, ANSWER_S_MAX)
        own = next((one for one in list_running() if one.node == found.node), None)
        await _ask_to_stop(place, own)
        has_ended = await _wait_end(own, answers, timeout)
    if json:
        print_json({"address": place, "node": found.node, "name": found.name, "ended": has_ended})
    elif has_ended:
        typer.echo(f"{word(found.name)} ({found.node}) has ended")
    else:
        typer.echo(
            f"tidings: {word(found.name)} is stopping, and has not ended within {timeout:g} s", err=True
        )
    if not has_ended:
        raise typer.Exit(UNREACHED)


@app.command()
@identifies
async def drain(
    address: Place = None, timeout: DrainTimeout = 60.0, stops: Stops = False, json: Json = False
) -> None:
    """Take a node out of its network before it is stopped, so that nobody waits for it.

    Its neighbours let events go another way, then its clients go to them, save those with durable
    subscriptions, and all that it keeps for others is confirmed. Exit code 0: that is done. 1: it did not
    answer, refused, or is not done in time; it serves as before then, and goes on with it. 2: the address or
    an option is wrong.
    """
    place = address or default_node()
    with reaching(place, json):
        async with bus_at(place, reconnect=False) as bus:
            progress = await _drained(bus, timeout, None if json else typer.echo)
    is_done = bool(progress["done"])
    if json:
        print_json({"address": place, **progress})
    elif is_done:
        typer.echo(f"the node at {place} is drained; {progress['clients']} clients have stayed")
    else:
        typer.echo(f"tidings: not drained within {timeout:g} s: {_drain_line(progress)}", err=True)
    if not is_done:
        raise typer.Exit(UNREACHED)
    if stops:
        await stop_node(place, timeout, json)


async def _drained(bus: Bus, timeout_s: float, tell: Callable[[str], Any] | None) -> dict[str, Any]:
    """Drain a node until it is done, or the time is over; how far it came."""
    ends_at, line = time.monotonic() + timeout_s, ""
    while True:
        progress = await bus.drain_node(timeout_s=ANSWER_S_MAX)
        if tell is not None and _drain_line(progress) != line:
            line = _drain_line(progress)
            tell(line)
        if progress["done"] or time.monotonic() >= ends_at:
            return progress
        await asyncio.sleep(LOOK_S)


def _drain_line(progress: dict[str, Any]) -> str:
    between = ", ".join(map(word, progress["between"]))
    passing = f"events pass between {between}" if between else "nothing passes through it"
    clients = f"{progress['clients']} clients, {progress.get('leaving', 0)} of them leaving"
    return f"{passing}; {progress['kept']} positions are kept; {clients}"


async def _ask_to_stop(place: str, own: RunningNode | None) -> None:
    """Ask a node to stop; one of this user that refuses, as over TCP without security, gets a signal."""
    try:
        async with bus_at(place, reconnect=False) as bus:
            await bus.stop_node(timeout_s=ANSWER_S_MAX)
    except (NotAllowed, Refused):
        if own is None or not own.terminate():
            raise
    except Disconnected:
        return  # it has begun to stop before the answer left


async def _wait_end(own: RunningNode | None, answers: Callable[[], Any], timeout_s: float) -> bool:
    """Whether a node has ended in time: its process if it is this user's, otherwise its answers."""
    try:
        async with asyncio.timeout(timeout_s):
            while own.is_running if own is not None else await answers():
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        return False
    return True
