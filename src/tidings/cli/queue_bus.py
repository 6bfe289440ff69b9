"""What the commands about queues have in common: their bus, and options that say what is meant.

A queue that is not there is answered with those whose names are close to what was typed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import bus_at, find_node
from tidings.errors import QueueNotFound
from tidings.queues.description import TRANSMISSION

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client import Bus, Queue

WIDTH_PIPED = 10_000
"""Columns of a table that goes into a file or another program, which cut nothing off."""

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Its name, another name of it, or its id.", show_default=False)
]
Where = Annotated[
    str, typer.Option(metavar="FILTER", help="Only messages that match, such as: color = 'blue'")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long to wait for a message.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for as long as it takes.")]


@asynccontextmanager
async def bus_of(node: str | None, name: str = "", reconnect: bool = False) -> AsyncIterator[Bus]:
    """A bus to the node that was named; QueueNotFound from the block names queues that may be meant."""
    async with bus_at(find_node(node), name, reconnect) as bus:
        try:
            yield bus
        except QueueNotFound as error:
            raise QueueNotFound(error.queue, error.problem + await _hint(bus, error.queue)) from None


@asynccontextmanager
async def queue_of(
    queue: str, node: str | None, name: str = "", reconnect: bool = False
) -> AsyncIterator[Queue]:
    """The queue of this name, at the node that was named."""
    async with bus_of(node, name, reconnect) as bus:
        yield await bus.queue(queue)


async def _hint(bus: Bus, queue: str) -> str:
    names = [one.name for one in await bus.lookup() if not one.name.startswith(TRANSMISSION)]
    close = get_close_matches(queue, names)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return "" if names else "; this node has none, 'tidings queue create' makes one"


def patience(timeout_s: float, wait: bool) -> float | None:
    """How long to wait, None for ever."""
    return None if wait else timeout_s


def print_table(table: Table) -> None:
    """Print a table: as wide as the terminal, or as its longest lines where there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_PIPED
    console.print(table)


def new_table(*columns: str, numbers: Collection[str] = (), wide: Collection[str] = ()) -> Table:
    """A table of plain columns, each row on one line.

    Columns of numbers are aligned to the right; the wide ones are cut off where the terminal is too narrow.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=name not in wide)
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of texts as they stand."""
    from rich.text import Text

    table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
