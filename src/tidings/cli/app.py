"""The tree of commands. Each imports what it works with when it runs: `tidings --help` stays quick."""

from __future__ import annotations

from typing import Annotated

import typer

import tidings
from tidings.cli import (
    advertisement,
    backup,
    bench,
    demo,
    filter,
    gateway,
    log,
    node,
    peer,
    pipeline,
    publish,
    queue,
    security,
    sensor,
    simulate,
    subscribe,
    top,
    user,
)
from tidings.errors import UserError

app = typer.Typer(
    help="News of events, for things that come and go.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(node.node)
app.command()(gateway.gateway)
app.command()(publish.publish)
app.command()(subscribe.subscribe)
app.command()(top.top)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(demo.demo)
app.add_typer(queue.app, name="queue", help="Make queues, put messages into them and get them out.")
app.add_typer(advertisement.app, name="advertisement", help="Show what sources may publish.")
app.add_typer(log.app, name="log", help="Read what a node has kept, and look after it.")
app.add_typer(peer.app, name="peer", help="Show the other nodes that a node knows.")
app.add_typer(security.app, name="security", help="Make and check what lets others come to a node safely.")
app.add_typer(user.app, name="user", help="Say who may come to a node, and by what.")
app.add_typer(sensor.app, name="sensor", help="Look at sensor networks, and bring readings to a gateway.")
app.add_typer(pipeline.app, name="pipeline", help="Run pipelines on Spark, and pack what they need.")
app.add_typer(filter.app, name="filter", help="Check filters, and try them on events.")
app.add_typer(simulate.app, name="simulate", help="Let storms rage in virtual time, or a city measure.")
app.add_typer(bench.app, name="bench", help="Measure, beside reference code in the same run.")


def show_version(wanted: bool) -> None:
    """Print the version and end, if asked. Called by typer before any command."""
    if wanted:
        typer.echo(f"tidings {tidings.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""


@app.command(hidden=True)
def tour() -> None:
    """Name the command that has replaced this one; the name goes with the next release."""
    raise UserError("there is no tour any more; use 'tidings demo'")
