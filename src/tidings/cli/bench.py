"""`tidings bench`: measurements as commands. The measuring itself is in `tidings.bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

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


def write_figures(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures as indented JSON, so that two runs can be compared line by line."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
