"""`tidings queue dead`: the messages that could not be dealt with, and what is to become of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import bus_of, connects, run
from tidings.cli.filter import parse
from tidings.cli.messages import age_of
from tidings.cli.options import Address, Json, Where, Yes
from tidings.cli.printing import (
    add_row,
    count_text,
    event_json,
    new_table,
    print_found,
    shown,
    to_json,
    values_text,
    word,
)
from tidings.errors import QueueNotFound, UserError

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client import Bus
    from tidings.event import Event
    from tidings.filters import Filter

app = typer.Typer()

Into = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Put them in here, not where they came from."),
]


@app.callback(invoke_without_command=True)
@connects
async def look(
    context: typer.Context,
    where: Where = "",
    node: Address = None,
    json: Json = False,
) -> None:
    """Show the dead letters: messages that were rejected, handed out too often or had no room.

    Where a letter came from and why it is dead are attributes of it, so --where can ask for them:
    tidings queue dead --where "dead.queue = 'jobs'"
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return
    wanted = parse(where, json)
    async with bus_of(node) as bus:
        letters = await _letters(bus, wanted)
    none = "no dead letters" + (" that match" if where else "")
    print_found(letters, json, event_json, _letter_table, none)


def _refuse_options(context: typer.Context, command: str) -> None:
    """Refuse options that stand before the command and would be passed over, such as --where."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"--{name} stands behind {command}: tidings queue dead {command} --{name} …")


async def _letters(bus: Bus, wanted: Filter) -> list[Event]:
    """The dead letters that match, without their bodies; none if there never were any."""
    from tidings.queues.letters import DEAD

    try:
        return await (await bus.queue(DEAD)).headers(wanted)
    except QueueNotFound:
        return []


def _letter_table(letters: Sequence[Event]) -> Table:
    from tidings.queues.letters import MARKS

    columns = ("queue", "reason", "deliveries", "age", "type", "attributes")
    table = new_table(*columns, numbers=("deliveries", "age"), wide=("reason", "attributes"))
    for letter in letters:
        values = letter.attributes
        queue, reason, deliveries = (values.get(name, "–") for name in MARKS)
        own = {name: value for name, value in values.items() if name not in MARKS}
        row = (word(queue), shown(reason), str(deliveries), age_of(letter), letter.type, values_text(own))
        add_row(table, *row)
    return table


@app.command()
@connects
async def replay(where: Where = "", queue: Into = None, node: Address = None, json: Json = False) -> None:
    """Put dead letters back into the queues they came from, as far as these are there, or into another."""
    wanted = parse(where, json)
    async with bus_of(node) as bus:
        if queue is not None:
            await bus.queue(queue)  # is refused even if there is nothing to put into it
        count = await bus.replay_dead(wanted, queue)
        left = len(await _letters(bus, wanted))
    typer.echo(
        to_json({"replayed": count, "left": left}) if json else f"replayed {count_text(count, 'dead letter')}"
    )
    if left and not json:
        typer.echo(
            f"left: {count_text(left, 'dead letter')} of queues that are gone; --queue names another",
            err=True,
        )


@app.command()
@connects
def purge(where: Where = "", yes: Yes = False, node: Address = None, json: Json = False) -> None:
    """Throw away dead letters, or those that match."""
    wanted = parse(where, json)
    count = 0

    async def look() -> None:
        nonlocal count
        async with bus_of(node) as bus:
            count = len(await _letters(bus, wanted))

    async def throw() -> None:
        from tidings.queues.letters import DEAD

        async with bus_of(node) as bus:
            gone = await (await bus.queue(DEAD)).purge(wanted) if count else 0
            typer.echo(to_json({"purged": gone}) if json else f"threw away {count_text(gone, 'dead letter')}")

    run(look())
    if count and not yes:
        typer.confirm(f"Throw away {count_text(count, 'dead letter')}?", abort=True, err=True)
    run(throw())
