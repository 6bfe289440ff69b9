"""Views of the demo: a live screen, plain lines, or lines of JSON."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidings.cli.demo.crew import QUEUE
from tidings.cli.demo.people import JOBS, LEDGER
from tidings.cli.demo.story import Figures, Line, Summary, Told, size_text
from tidings.cli.printing import add_row, new_table, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from tidings.cli.demo.home import Home

Tell = Callable[[Told], None]

LINES_SHOWN = 12
"""Most alarms and most other occurrences on the screen; a terminal may have room for fewer."""
ALARMS_SHOWN = 10
"""Alarms that are printed one by one without a screen; after that the figures count them."""
OFTEN = ("takes", "is done")
"""Verbs of workers that occur all the time."""
COLOURS = {"wakes up": "yellow", "is killed": "red", "fails": "red", "comes": "magenta", "is done": "green"}


@contextmanager
def view(home: Home, json: bool, is_watched: bool) -> Iterator[Tell]:
    """Yield the function to be called with all output of the demo: it updates a screen, or prints lines."""
    if json:
        yield print_json
    elif is_watched:
        with screen(home) as tell:
            yield tell
    else:
        for line in (*headings(home), *hints(home)):
            typer.echo(line)
        yield PlainLines().tell


@contextmanager
def screen(home: Home) -> Iterator[Tell]:
    """Yield a function that updates a live screen."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    shown = Screen(home)
    with Live(shown.render(console.height), console=console, auto_refresh=False) as live:

        def tell(told: Told) -> None:
            shown.tell(told)
            live.update(shown.render(console.height), refresh=True)

        yield tell


def show_summary(summary: Summary, json: bool) -> None:
    """Print the summary of a demo, and on standard error what is missing."""
    print_json(summary) if json else typer.echo(str(summary))
    if summary.missing:
        typer.echo(f"tidings: the demo failed: {'; '.join(summary.missing)}", err=True)


class PlainLines:
    """Plain output: the figures of each second and every occurrence that is not frequent."""

    def __init__(self) -> None:
        self._alarms = 0

    def tell(self, told: Told) -> None:
        """Print it, unless it is frequent."""
        if isinstance(told, Line):
            self._alarms += told.does == "comes"
            if told.does in OFTEN or (told.does == "comes" and self._alarms > ALARMS_SHOWN):
                return
        typer.echo(str(told))


class Screen:
    """Content of the live screen: figures, last alarms, last other occurrences, and commands to type."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._figures = Figures(at_s=0.0)
        self._alarms: deque[Line] = deque(maxlen=LINES_SHOWN)
        self._lines: deque[Line] = deque(maxlen=LINES_SHOWN)

    def tell(self, told: Told) -> None:
        """Keep it, as far as the screen shows it."""
        if isinstance(told, Figures):
            self._figures = told
        elif isinstance(told, Line) and told.does not in OFTEN:
            (self._alarms if told.does == "comes" else self._lines).append(told)

    def render(self, height: int) -> RenderableType:
        """Return the whole screen, in at most `height` lines."""
        from rich.console import Group
        from rich.text import Text

        head = [Text(line, "bold", no_wrap=True, overflow="ellipsis") for line in headings(self._home)]
        head += [Text(line, "cyan", no_wrap=True, overflow="ellipsis") for line in hints(self._home)]
        room = max(1, (height - len(head) - FIXED) // 2)
        tables = (figures_table(self._figures), Text(), queue_table(self._figures))
        alarms = [Text("alarms from Spark", "dim"), *map(_coloured, list(self._alarms)[-room:])]
        if not self._figures.spark:
            alarms.clear()
        lines = (Text("what happened", "dim"), *map(_coloured, list(self._lines)[-room:]))
        return Group(*head, Text(), *tables, Text(), *alarms, *lines, Text("Ctrl-C ends", "dim"))


FIXED = 16
"""Lines of the screen that are always there: tables, titles and empty lines."""


def _coloured(line: Line) -> Text:
    from rich.text import Text

    return Text(str(line).partition("\n")[0], COLOURS.get(line.does, ""), no_wrap=True, overflow="ellipsis")


def figures_table(figures: Figures) -> RenderableType:
    """Return the table of rates and totals."""
    from rich.table import Table

    grid = Table("", box=None, pad_edge=False, header_style="dim")
    for column in ("each second", "in all"):
        grid.add_column(column, justify="right")
    grid.add_column("")
    one = figures
    grid.add_row("published", f"{one.published_per_s:,.0f}", f"{one.published:,}", "")
    where = f"up to position {one.logged:,}, {size_text(one.log_bytes)}"
    grid.add_row("logged", f"{one.logged_per_s:,.0f}", f"{one.logged:,}", where)
    if one.spark:
        batches = f"{one.batches:,} batches{one.behind}"
        grid.add_row("read by Spark", f"{one.rows_per_s:,.0f}", f"{one.rows:,}", batches)
        grid.add_row("alarms", "", f"{one.alarms:,}", "")
    grid.add_row("sensors", "", f"{one.sensors:,}", f"{one.sensors_on:,} on")
    grid.add_row(LEDGER, "", f"{one.ledger_got:,}", f"{one.ledger_waiting:,} wait for it")
    return grid


def queue_table(figures: Figures) -> RenderableType:
    """Return the table of the queue: messages by state, redeliveries, and killed workers."""
    cells = {
        "waiting": figures.jobs_waiting,
        "in hand": figures.jobs_in_hand,
        "done": figures.jobs_done,
        "redelivered": figures.redelivered,
        "killed": figures.killed,
    }
    table = new_table("queue", "filter", *cells, numbers=cells, wide=("filter",))
    add_row(table, QUEUE, JOBS, *map(str, cells.values()))
    return table


def headings(home: Home) -> list[str]:
    """Return the lines that name the addresses of the node."""
    lines = [f"a node at {home.address}, its gateway at {home.gateway}, metrics at {home.metrics}"]
    if home.busy:
        ports = ", ".join(map(str, home.busy))
        lines.append(f"ports in use, replaced by free ones: {ports}")
    return lines


def hints(home: Home) -> list[str]:
    """Return the commands that a user could type in another terminal."""
    me, node = program(), f"--node {home.address}"
    return [
        "meanwhile, in another terminal:",
        f"""  {me} subscribe {node} "type = 'air.pm10' AND value > 40\"""",
        f"  {me} log tail {node}",
        f"  {me} sensor list {node}",
        f"  {me} top {node}",
    ]


def program() -> str:
    """Return how a shell in this folder calls this program."""
    if shutil.which("tidings"):
        return "tidings"
    own = Path(sys.executable).with_name("tidings")
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)
