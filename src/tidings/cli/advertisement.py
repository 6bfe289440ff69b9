"""`tidings advertisement`: what sources say that they may publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.filter import parse
from tidings.cli.options import Address, Json
from tidings.cli.printing import add_row, new_table, print_json, print_table, shown

if TYPE_CHECKING:
    from tidings.client.advertisements import Offered

app = typer.Typer(no_args_is_help=True)

Wanted = Annotated[str, typer.Argument(metavar="FILTER", help="Only those that overlap this filter.")]
Count = Annotated[int | None, typer.Option(min=1, help="End after so many lists.")]


@app.callback()
def advertisement() -> None:
    """Show advertisements: the events that sources may publish."""


@app.command("list")
@connects
async def show_list(text: Wanted = "", node: Address = None, json: Json = False) -> None:
    """Show the current advertisements."""
    wanted = parse(text, json)
    async with bus_of(node) as bus:
        _print(await bus.advertisements(wanted), json)


@app.command()
@connects
async def watch(text: Wanted = "", count: Count = None, node: Address = None, json: Json = False) -> None:
    """Show the advertisements, and again after each change, until Ctrl-C or --count."""
    wanted, left = parse(text, json), count
    async with bus_of(node) as bus:
        async for offers in bus.watch_advertisements(wanted):
            _print(offers, json)
            left = None if left is None else left - 1
            if left == 0:
                return


def _print(offers: list[Offered], json: bool) -> None:
    if json:
        listed = [{"filter": one.text, "source": one.source} for one in offers]
        print_json({"advertisements": listed})
    elif offers:
        table = new_table("source", "may publish", wide=("may publish",))
        for one in offers:
            add_row(table, shown(one.source) or "-", shown(one.text))
        print_table(table)
    else:
        typer.echo("nothing is advertised", err=True)
