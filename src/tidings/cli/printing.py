"""Output of commands: lines of JSON, events, values and tables; and their progress.

Texts of events and nodes can't break a line or move the cursor.
rich is imported by what draws with it: most commands print lines, and a node starts without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import ProgressColumn
    from rich.table import Table

    from tidings.client import Subscription
    from tidings.event import Event

WIDTH_PIPED = 10_000
"""Columns of a table that goes into a file or another program, which cut nothing off."""

T = TypeVar("T")


# JSON, or something for people


def to_json(value: object) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value).decode()


def print_json(value: object) -> None:
    """Print a line of JSON, and flush it for the program that reads it."""
    typer.echo(to_json(value))


def print_result(value: object, text: str, json: bool) -> None:
    """Print the result of a command: as a line of JSON, or in words."""
    typer.echo(to_json(value) if json else text)


def print_found(
    found: Sequence[T],
    json: bool,
    to_json: Callable[[T], str],
    table: Callable[[Sequence[T]], Table],
    none: str,
) -> None:
    """Print each as a line of JSON, or all as a table, or on standard error that there is none."""
    if json:
        for one in found:
            typer.echo(to_json(one))
    elif found:
        print_table(table(found))
    else:
        typer.echo(none, err=True)


def event_json(event: Event) -> str:
    """An event as one line of JSON."""
    from tidings.event.json import to_json

    return to_json(event).decode()


def print_event(event: Event, json: bool, more: str = "") -> None:
    """Print an event as one line: as JSON, or in a form for people."""
    typer.echo(event_json(event) if json else line_of(event) + more)


async def print_events(events: Subscription, count: int | None, json: bool) -> None:
    """Print events as they come, `count` of them or without end."""
    dropped = 0
    async for event in some(events, count):
        if events.dropped > dropped:
            typer.echo(f"{events.dropped - dropped} events did not come: too slow", err=True)
            dropped = events.dropped
        print_event(event, json)


async def some(items: AsyncIterable[T], count: int | None) -> AsyncIterator[T]:
    """Yield as many items as that, without waiting for another one; None: all."""
    left = count
    async for item in items:
        yield item
        left = None if left is None else left - 1
        if left == 0:
            return


def line_of(event: Event) -> str:
    """An event on one line, for people."""
    moment = event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = None if event.body is None else f"({len(event.body)} bytes)"
    return " ".join(filter(None, (moment, event.type, values_text(event.attributes), body)))


def values_text(values: Mapping[str, object]) -> str:
    """Attributes on one line."""
    return " ".join(f"{name}={word(value)}" for name, value in values.items())


def word(value: object) -> str:
    """A value as one word, quoted if it would not be one, or would be taken for something else."""
    if isinstance(value, datetime):
        return value.isoformat()
    text = str(value)
    is_plain = isinstance(value, str) and text.isprintable() and text and " " not in text
    return text if is_plain or isinstance(value, bool | int | float) else repr(value)


def shown(text: object) -> str:
    """A text as it stands, unless it would break the line or move the cursor."""
    return str(text) if str(text).isprintable() else repr(text)


def age_text(age_s: float | None) -> str:
    """An age in the largest unit that leaves a whole number; a dash where it is not known."""
    if age_s is None:
        return "–"
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if age_s >= size_s:
            return f"{age_s / size_s:.0f} {unit}"
    return f"{age_s:.0f} s"


def count_text(count: int, what: str) -> str:
    """So many of something, in words."""
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


# Tables


def new_table(*columns: str, numbers: Collection[str] = (), wide: Collection[str] = ()) -> Table:
    """A table of plain columns, each row on one line.

    Columns of numbers are aligned to the right; the wide ones are cut off where the terminal is too narrow.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=name not in wide)
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Add a row of texts as they stand."""
    from rich.text import Text

    table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells), style=style)


def print_table(table: RenderableType) -> None:
    """Print tables: as wide as the terminal, or as their longest lines where there is none."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_PIPED
    console.print(table)


# Progress


@contextmanager
def progress_bar(doing: str, *columns: ProgressColumn) -> Iterator[Callable[[int, int | None], Any]]:
    """A bar on a terminal, before further columns; what is done, and how much there is, moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    all_columns = (TextColumn(doing), BarColumn(), *columns)
    with Progress(*all_columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress_line(is_shown: bool) -> Iterator[Callable[[str], None]]:
    """Shows one line that changes where there is a terminal, and else line after line, on standard error."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    if not is_shown:
        yield lambda _: None
    elif not console.is_terminal:
        yield lambda line: typer.echo(line, err=True)
    else:
        with Live("", console=console, auto_refresh=False, transient=True) as live:
            yield lambda line: live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
