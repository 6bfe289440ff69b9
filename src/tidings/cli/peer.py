"""`tidings peer`: the other nodes that a node knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Address, Json
from tidings.cli.printing import add_row, age_text, new_table, print_found, shown, to_json, word

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)


@app.callback()
def peer() -> None:
    """Show the other nodes that a node knows."""


@app.command("list")
@connects
async def show_list(node: Address = None, json: Json = False) -> None:
    """Show the state of each peer of the node, and how many messages wait there for it."""
    async with bus_of(node) as bus:
        peers: list[dict[str, Any]] = (await bus.status()).get("peers", [])
    print_found(peers, json, to_json, peer_table, "no peers; start the node with --peers to add some")


def peer_table(peers: Sequence[dict[str, Any]]) -> Table:
    """One row a peer."""
    columns = ("peer", "state", "for", "waiting", "address", "about")
    table = new_table(*columns, numbers=("waiting",), wide=("about",))
    for one in peers:
        about = shown(one["error"]) if one["error"] else ""
        waiting, age = f"{one['waiting']:,}", age_text(one["for_s"])
        add_row(table, word(one["name"]), one["state"], age, waiting, shown(one["address"]), about)
    return table
