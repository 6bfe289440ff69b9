"""Output of the demo: occurrences, the figures of each second and a summary, and their views.

A view is a live screen, plain lines, or lines of JSON.
"""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec import Struct, field
from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tidings.cli.demo.people import JOBS, LEDGER, QUEUE
from tidings.cli.printing import add_row, new_table, print_json

if TYPE_CHECKING:
    from tidings.cli.demo.town import Home

LINES_SHOWN = 12
"""Most alarms and most other occurrences on the screen; a terminal may have room for fewer."""
ALARMS_SHOWN = 10
"""Alarms that are printed one by one without a screen; after that the figures count them."""
FIXED = 16
"""Lines of the screen that are always there: tables, titles and empty lines."""
OFTEN = ("takes", "is done")
"""Verbs of workers that occur all the time."""
COLOURS = {
    "wakes up": "yellow",
    "is killed": "red",
    "fails": "red",
    "comes": "magenta",
    "fires": "magenta",
    "is done": "green",
}
Note = Callable[[str, str, str], None]
"""Called with subject, verb and details of each occurrence."""


class Line(Struct, frozen=True, tag_field="kind", tag="line"):
    """Occurrence in the demo."""

    at_s: float
    who: str
    does: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.who:<8}  {self.does:<10}  {self.what}"


class Figures(Struct, frozen=True, tag_field="kind", tag="figures", kw_only=True):
    """Counts and rates of the whole demo at one moment."""

    at_s: float
    published: int = 0
    published_per_s: float = 0.0
    logged: int = 0
    logged_per_s: float = 0.0
    log_bytes: int = 0
    sensors: int = 0
    sensors_on: int = 0
    jobs_waiting: int = 0
    jobs_in_hand: int = 0
    jobs_done: int = 0
    redelivered: int = 0
    killed: int = 0
    ledger_got: int = 0
    ledger_waiting: int = 0
    spark: bool = True
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    alarms: int = 0
    nodes: int = 1
    links_up: int = 0
    relayed: int = 0

    def __str__(self) -> str:
        parts = [
            f"{self.at_s:6.1f} s",
            f"published {self.published_per_s:,.0f}/s",
            f"logged {self.logged_per_s:,.0f}/s ({self.logged:,}, {size_text(self.log_bytes)})",
            f"sensors {self.sensors_on:,} of {self.sensors:,} on",
            f"jobs {self.jobs_waiting:,} waiting, {self.jobs_done:,} done",
        ]
        if self.spark:
            parts += [f"Spark {self.rows_per_s:,.0f} rows/s{self.behind}", f"alarms {self.alarms:,}"]
        if self.nodes > 1:
            parts.append(f"links {self.links_up} up, {self.relayed:,} relayed")
        return "  ".join(parts)

    @property
    def behind(self) -> str:
        """Number of events that Spark has not read yet, as words for the end of a sentence."""
        return "" if self.lag is None else f", {self.lag:,} behind"


class Summary(Struct, frozen=True, tag_field="kind", tag="summary", kw_only=True):
    """Results of a demo, and what is missing from those it should have."""

    seconds: float
    spark: bool
    readings_logged: int
    log_bytes: int
    alarms: int
    sensors_on: int
    """Sensors that were on before the query stopped."""
    sensors_left_on: int
    """Sensors that were on after that."""
    jobs_done: int
    redelivered: int
    killed: int
    matches: int = 0
    """How often the pattern has fired."""
    nodes: int = 1
    relayed: int = 0
    """Events that were sent over links."""
    missing: list[str] = field(default_factory=list)

    @property
    def asker(self) -> str:
        """Name of the part that requested the readings."""
        return "query" if self.spark else "mayor"

    def __str__(self) -> str:
        alarms = f"{self.alarms:,} alarms from Spark" if self.spark else "without Spark, so no alarms"
        size = size_text(self.log_bytes)
        return (
            f"in {self.seconds:.0f} s: {self.readings_logged:,} readings logged ({size}), "
            f"{alarms}, {self.jobs_done:,} jobs done\n"
            f"sensors on: {self.sensors_on:,} → {self.sensors_left_on:,} when the {self.asker} stopped; "
            f"workers killed: {self.killed}, jobs handed out again: {self.redelivered}"
            + (f"; events relayed between {self.nodes} nodes: {self.relayed:,}" if self.nodes > 1 else "")
        )


def judged(summary: Summary) -> Summary:
    """Return the summary with `missing` filled in."""
    asker, left_on = summary.asker, summary.sensors_left_on
    wishes = {
        "no reading was logged": summary.readings_logged > 0,
        "no alarm came back from Spark": summary.alarms > 0 or not summary.spark,
        f"no sensor was on before the {asker} stopped": summary.sensors_on > 0,
        f"{left_on:,} sensors were still on after the {asker} had stopped": left_on == 0,
        "no event crossed a link": summary.relayed > 0 or summary.nodes == 1,
    }
    return replace(summary, missing=[what for what, is_so in wishes.items() if not is_so])


Update = Line | Figures | Summary
ShowUpdate = Callable[[Update], None]


def size_text(size: float) -> str:
    """Return a number of bytes in the unit that people would choose."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1_000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1_000
    return f"{size:,.1f} GB"


# Views


@contextmanager
def view(home: Home, json: bool, is_watched: bool) -> Iterator[ShowUpdate]:
    """Yield the function to be called with all output of the demo: it updates a screen, or prints lines."""
    if json:
        yield print_json
    elif is_watched:
        with screen(home) as show:
            yield show
    else:
        for line in (*headings(home), *hints(home)):
            typer.echo(line)
        yield PlainLines().show


@contextmanager
def screen(home: Home) -> Iterator[ShowUpdate]:
    """Yield a function that updates a live screen."""
    console = Console(highlight=False)
    shown = Screen(home)
    with Live(shown.render(console.height), console=console, auto_refresh=False) as live:

        def show(update: Update) -> None:
            shown.show(update)
            live.update(shown.render(console.height), refresh=True)

        yield show


def show_summary(summary: Summary, json: bool) -> None:
    """Print the summary of a demo, and on standard error what is missing."""
    print_json(summary) if json else typer.echo(str(summary))
    if summary.missing:
        typer.echo(f"tidings: the demo failed: {'; '.join(summary.missing)}", err=True)


class PlainLines:
    """Plain output: the figures of each second and every occurrence that is not frequent."""

    def __init__(self) -> None:
        self._alarms = 0

    def show(self, update: Update) -> None:
        """Print it, unless it is frequent."""
        if isinstance(update, Line):
            self._alarms += update.does == "comes"
            if update.does in OFTEN or (update.does == "comes" and self._alarms > ALARMS_SHOWN):
                return
        typer.echo(str(update))


class Screen:
    """Content of the live screen: figures, last alarms, last other occurrences, and commands to type."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._figures = Figures(at_s=0.0)
        self._alarms: deque[Line] = deque(maxlen=LINES_SHOWN)
        self._lines: deque[Line] = deque(maxlen=LINES_SHOWN)

    def show(self, update: Update) -> None:
        """Keep it, as far as the screen shows it."""
        if isinstance(update, Figures):
            self._figures = update
        elif isinstance(update, Line) and update.does not in OFTEN:
            (self._alarms if update.does == "comes" else self._lines).append(update)

    def render(self, height: int) -> RenderableType:
        """Return the whole screen, in at most `height` lines."""
        titles, tips = headings(self._home), hints(self._home)
        fixed = FIXED + (self._figures.nodes > 1)
        if len(titles) + len(tips) + fixed > height:
            tips = []
        if len(titles) + fixed > height:
            titles = titles[:1]
        head = [Text(line, "bold", no_wrap=True, overflow="ellipsis") for line in titles]
        head += [Text(line, "cyan", no_wrap=True, overflow="ellipsis") for line in tips]
        room = max(1, (height - len(head) - fixed) // 2)
        tables = (figures_table(self._figures), Text(), queue_table(self._figures))
        alarms = [Text("alarms from Spark", "dim"), *map(_coloured, list(self._alarms)[-room:])]
        if not self._figures.spark:
            alarms.clear()
        lines = (Text("what happened", "dim"), *map(_coloured, list(self._lines)[-room:]))
        return Group(*head, Text(), *tables, Text(), *alarms, *lines, Text("Ctrl-C ends", "dim"))


def _coloured(line: Line) -> Text:
    return Text(str(line).partition("\n")[0], COLOURS.get(line.does, ""), no_wrap=True, overflow="ellipsis")


def figures_table(figures: Figures) -> RenderableType:
    """Return the table of rates and totals."""
    one, numbers = figures, ("each second", "in all")
    grid = new_table("", *numbers, "", numbers=numbers, wide=("",))
    grid.add_row("published", f"{one.published_per_s:,.0f}", f"{one.published:,}", "")
    where = f"up to position {one.logged:,}, {size_text(one.log_bytes)}"
    grid.add_row("logged", f"{one.logged_per_s:,.0f}", f"{one.logged:,}", where)
    if one.spark:
        batches = f"{one.batches:,} batches{one.behind}"
        grid.add_row("read by Spark", f"{one.rows_per_s:,.0f}", f"{one.rows:,}", batches)
        grid.add_row("alarms", "", f"{one.alarms:,}", "")
    if one.nodes > 1:
        grid.add_row("relayed", "", f"{one.relayed:,}", f"{one.links_up} links up between {one.nodes} nodes")
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
    if home.others:
        ends = f"people at {home.address}, sensors at {home.sensing}, their gateway at {home.gateway}"
        lines = [f"{1 + len(home.others)} nodes: {ends}, metrics at {home.metrics}"]
        lines += home.picture.splitlines()
    else:
        lines = [f"a node at {home.address}, its gateway at {home.gateway}, metrics at {home.metrics}"]
    if home.busy:
        ports = ", ".join(map(str, home.busy))
        lines.append(f"ports in use, replaced by free ones: {ports}")
    return lines


def hints(home: Home) -> list[str]:
    """Return the commands that a user could type in another terminal."""
    me, node = program(), f"--node {home.address}"
    topology = [f"  {me} topology {node}"] if home.others else []
    return [
        "meanwhile, in another terminal:",
        f"""  {me} subscribe {node} "type = 'air.pm10' AND value > 40\"""",
        f"  {me} log tail --node {home.sensing}",
        f"  {me} sensor list {node}",
        f"  {me} top {node}",
        *topology,
    ]


def program() -> str:
    """Return how a shell in this folder calls this program."""
    if shutil.which("tidings"):
        return "tidings"
    own = Path(sys.executable).with_name("tidings")
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)
