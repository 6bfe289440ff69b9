"""`tidings durable`: the durable subscriptions of a node; shown and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Address, Json, Name
from tidings.cli.printing import add_row, new_table, print_found, to_json, word
from tidings.errors import NotAllowed, Refused

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client import Bus

app = typer.Typer(no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="NAME", help="The name of the durable subscription.")]
Owner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="CLIENT",
        help="The client it belongs to, if not to --name; takes the right to manage everything.",
    ),
]


@app.callback()
def durable() -> None:
    """Show and delete durable subscriptions, for which a node keeps events while their client is away."""


@app.command("list")
@connects
async def show_list(node: Address = None, json: Json = False) -> None:
    """Show the durable subscriptions of the node, and how many events wait for each."""
    async with bus_of(node) as bus:
        found = await _durables(bus)
    print_found(found, json, to_json, _table, "no durable subscriptions")


async def _durables(bus: Bus) -> list[dict[str, Any]]:
    """Return those of clients; `tidings log list` shows the readers of the log."""
    return [one for one in (await bus.status())["durables"] if not one.get("archive")]


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = new_table("durable subscription", "owner", "waiting", numbers=("waiting",))
    for one in found:
        add_row(table, word(one["name"]), word(one["owner"] or "–"), f"{one['depth']:,}")
    return table


@app.command()
@connects
async def delete(
    which: Which, owner: Owner = None, name: Name = "", node: Address = None, json: Json = False
) -> None:
    """Delete a durable subscription with the events that wait for it.

    A client that has it open is notified that it has ended.
    """
    async with bus_of(node, name) as bus:
        try:
            await bus.unsubscribe(which, owner=owner)
        except Refused as error:
            if error.code != "not-found":
                raise
            raise Refused(error.code, error.problem + await _owners(bus, which)) from None
    typer.echo(to_json({"deleted": which}) if json else f"deleted {word(which)}")


async def _owners(bus: Bus, which: str) -> str:
    """Name the clients that have one of that name, in words to be added; none if that may not be seen."""
    try:
        owners = [word(one["owner"]) for one in await _durables(bus) if one["name"] == which]
    except NotAllowed:
        return ""
    return f"; other clients have one: --owner {' or --owner '.join(owners)}" if owners else ""
