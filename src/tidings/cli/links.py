"""`tidings session` and `tidings peer`: the clients and the other nodes that a node is connected to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Json, argument, option
from tidings.cli.printing import (
    add_row,
    age_text,
    count_text,
    new_table,
    print_found,
    print_result,
    shown,
    to_json,
    word,
)
from tidings.client.sessions import SessionInfo
from tidings.errors import Refused, UserError

if TYPE_CHECKING:
    from rich.table import Table

sessions = typer.Typer(no_args_is_help=True)
peers = typer.Typer(no_args_is_help=True)

Client = Annotated[str | None, option("NAME", "Only the sessions of this client.")]
Which = Annotated[list[str] | None, argument("SESSION", "A session, as the list names it; may be repeated.")]
OfClient = Annotated[str | None, option("NAME", "All sessions of the client of this name.")]


@sessions.command("list")
@connects
async def show_sessions(client: Client = None, json: Json = False) -> None:
    """Show the sessions of the node's clients, the oldest first.

    The session of this command itself is among them.
    """
    async with bus_of() as bus:
        found = [one for one in await bus.sessions() if client in (None, one.client)]
    print_found(found, json, to_json, _session_table, "no sessions")


def _session_table(found: Sequence[SessionInfo]) -> Table:
    numbers = ("for", "subscriptions", "waiting bytes")
    table = new_table("session", "client", "user", "address", *numbers, numbers=numbers, wide=("client",))
    for one in found:
        about = (word(one.client or "–"), word(one.user or "–"), shown(one.address or "–"))
        counts = (f"{one.subscriptions:,}", f"{one.waiting_bytes:,}")
        add_row(table, one.session, *about, age_text(one.for_s), *counts)
    return table


@sessions.command()
@connects
async def end(which: Which = None, client: OfClient = None, json: Json = False) -> None:
    """End sessions: each client is disconnected, and may connect again.

    The exit code is 1 if one of them is gone already, or if the client has none.
    """
    if bool(which) is bool(client):
        raise UserError("give either the names of sessions or --client NAME")
    ended = []
    async with bus_of() as bus:
        wanted = which or [one.session for one in await bus.sessions() if one.client == client]
        for one in wanted:
            try:
                await bus.end_session(one)
            except Refused as error:
                if error.code != "not-found":
                    raise
                typer.echo(f"tidings: {error}", err=True)
            else:
                ended.append(one)
    print_result({"ended": ended}, f"ended {count_text(len(ended), 'session')}", json)
    if not ended or len(ended) < len(wanted):
        raise typer.Exit(1)


@peers.command("list")
@connects
async def show_peers(json: Json = False) -> None:
    """Show the state of each peer of the node, and how many messages wait there for it."""
    async with bus_of() as bus:
        peers: list[dict[str, Any]] = (await bus.status()).get("peers", [])
    print_found(peers, json, to_json, _peer_table, "no peers; start the node with --peers to add some")


def _peer_table(peers: Sequence[dict[str, Any]]) -> Table:
    columns = ("peer", "state", "for", "waiting", "address", "about")
    table = new_table(*columns, numbers=("waiting",), wide=("about",))
    for one in peers:
        about = shown(one["error"]) if one["error"] else ""
        waiting, age = f"{one['waiting']:,}", age_text(one["for_s"])
        add_row(table, word(one["name"]), one["state"], age, waiting, shown(one["address"]), about)
    return table
