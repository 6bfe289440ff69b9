"""`tidings bench`: measurements as commands. The measuring itself is in `tidings.bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidings.errors import UserError

app = typer.Typer(no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: a look, not a figure to quote.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")]


@app.callback()
def group() -> None:
    """Keep `matching` a subcommand: typer makes a lone command the whole application."""


@app.command()
def matching(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure how many events a second the index matches against many filters."""
    from tidings.bench.matching import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def node(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure how much a node carries, beside the brokers that are installed on this machine."""
    from tidings.bench.node import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def queue(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure how fast queues store, search and hand out messages, beside the brokers that are installed."""
    from tidings.bench.queue import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def secure(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure what encryption and rules cost, and how fast nodes forward to each other and are searched."""
    from tidings.bench.secure import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def gateway(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure how many readings a gateway carries, of how many sensor networks, beside Mosquitto."""
    from tidings.bench.gateway import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def pipeline(quick: Quick = False, json: JsonFile = None) -> None:
    """Measure how fast the log takes readings and Spark reads them, and how small and how soon they are."""
    from tidings.bench.pipeline import run

    figures = run(quick, typer.echo)
    if json is not None:
        write_figures(json, figures)


@app.command()
def fair(
    quick: Quick = False,
    json: JsonFile = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ROW", help="Only this row; may be repeated.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="List the rows, and do nothing.")] = False,
) -> None:
    """Measure what one client can do to others: how long they wait, what they keep of their rate, memory."""
    from tidings.bench.fair import run
    from tidings.bench.fair_rows import ROWS

    unknown = [name for name in only or () if name not in ROWS]
    if rows:
        typer.echo("\n".join(f"{row.name:22s} {row.what}" for row in ROWS.values()))
    elif unknown:
        raise UserError(f"there is no row {unknown[0]!r}; 'tidings bench fair --rows' lists them")
    else:
        figures = run(quick, _above_progress, only or (), show_progress)
        if json is not None:
            write_figures(json, figures)


def show_progress(line: str) -> None:
    """Show what is being done, in a line that the next one overwrites; only where somebody looks on."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line} …")
        sys.stderr.flush()


def _above_progress(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    typer.echo(line)


def write_figures(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures as indented JSON, so that two runs can be compared line by line."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
