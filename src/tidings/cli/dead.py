"""`tidings queue dead`: the messages that could not be dealt with, and what is to become of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import Address, Json, connects, run
from tidings.cli.filter import parse, to_json
from tidings.cli.messages import age_of, values_text
from tidings.cli.queue_bus import Where, Yes, add_row, bus_of, new_table, print_table
from tidings.cli.subscribe import shown, word
from tidings.errors import QueueNotFound, UserError

if TYPE_CHECKING:
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
def look(
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

    async def show() -> None:
        from tidings.event.json import to_json as event_json

        async with bus_of(node) as bus:
            letters = await _letters(bus, wanted)
        if json:
            for letter in letters:
                typer.echo(event_json(letter).decode())
        elif letters:
            _print_letters(letters)
        else:
            typer.echo("no dead letters" + (" that match" if where else ""), err=True)

    run(show())


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


def _print_letters(letters: list[Event]) -> None:
    from tidings.queues.letters import MARKS

    columns = ("queue", "reason", "deliveries", "age", "type", "attributes")
    table = new_table(*columns, numbers=("deliveries", "age"), wide=("reason", "attributes"))
    for letter in letters:
        values = letter.attributes
        queue, reason, deliveries = (values.get(name, "–") for name in MARKS)
        own = {name: value for name, value in values.items() if name not in MARKS}
        row = (word(queue), shown(reason), str(deliveries), age_of(letter), letter.type, values_text(own))
        add_row(table, *row)
    print_table(table)


@app.command()
@connects
def replay(where: Where = "", queue: Into = None, node: Address = None, json: Json = False) -> None:
    """Put dead letters back into the queues they came from, as far as these are there, or into another."""
    wanted = parse(where, json)

    async def work() -> None:
        async with bus_of(node) as bus:
            if queue is not None:
                await bus.queue(queue)  # is refused even if there is nothing to put into it
            count = await bus.replay_dead(wanted, queue)
            left = len(await _letters(bus, wanted))
        typer.echo(to_json({"replayed": count, "left": left}) if json else f"replayed {letters_text(count)}")
        if left and not json:
            typer.echo(f"left: {letters_text(left)} of queues that are gone; --queue names another", err=True)

    run(work())


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
            typer.echo(to_json({"purged": gone}) if json else f"threw away {letters_text(gone)}")

    run(look())
    if count and not yes:
        typer.confirm(f"Throw away {letters_text(count)}?", abort=True, err=True)
    run(throw())


def letters_text(count: int) -> str:
    """So many dead letters, in words."""
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
