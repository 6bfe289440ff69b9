"""`tidings peer`: the other nodes that a node knows."""

from __future__ import annotations

from typing import Any

import typer

from tidings.cli.connection import Address, Json, connects, run
from tidings.cli.filter import to_json
from tidings.cli.queue_bus import add_row, bus_of, new_table, print_table
from tidings.cli.subscribe import shown, word
from tidings.cli.top import age_text

app = typer.Typer(no_args_is_help=True)


@app.callback()
def peer() -> None:
    """Show the other nodes that a node knows."""


@app.command("list")
@connects
def show_list(node: Address = None, json: Json = False) -> None:
    """Show how each peer of the node stands, and how many messages wait there for it."""

    async def show() -> None:
        async with bus_of(node) as bus:
            peers: list[dict[str, Any]] = (await bus.status()).get("peers", [])
        if json:
            for one in peers:
                typer.echo(to_json(one))
        elif peers:
            _print_peers(peers)
        else:
            typer.echo("no peers: a node is told of them with --peers", err=True)

    run(show())


def _print_peers(peers: list[dict[str, Any]]) -> None:
    table = new_table(
        "peer", "state", "for", "waiting", "address", "about", numbers=("waiting",), wide=("about",)
    )
    for one in peers:
        about = shown(one["error"]) if one["error"] else ""
        waiting, age = f"{one['waiting']:,}", age_text(one["for_s"])
        add_row(table, word(one["name"]), one["state"], age, waiting, shown(one["address"]), about)
    print_table(table)
