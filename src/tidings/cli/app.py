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
    durable,
    filter,
    gateway,
    log,
    node,
    peer,
    ping,
    pipeline,
    publish,
    queue,
    request,
    run,
    security,
    sensor,
    session,
    simulate,
    subscribe,
    top,
    tree,
    user,
)
from tidings.errors import UserError

app = typer.Typer(
    help="News of events, for things that come and go.",
    no_args_is_help=True,
    cls=tree.Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(node.app, name="node")
app.command()(gateway.gateway)
app.command()(publish.publish)
app.command()(subscribe.subscribe)
app.command()(ping.ping)
app.command()(request.request)
app.command()(request.reply)
app.command()(run.run)
app.command()(top.top)
app.command()(backup.backup)
app.command()(backup.restore)
app.command()(demo.demo)
app.add_typer(queue.app, name="queue", help="Create queues, put messages into them and get them out.")
app.add_typer(advertisement.app, name="advertisement", help="Show the events that sources may publish.")
app.add_typer(durable.app, name="durable", help="Show and delete durable subscriptions.")
app.add_typer(session.app, name="session", help="Show and end the sessions of a node's clients.")
app.add_typer(log.app, name="log", help="Read and manage the log of a node.")
app.add_typer(peer.app, name="peer", help="Show the other nodes that a node knows.")
app.add_typer(security.app, name="security", help="Make and check the security directory of a node.")
app.add_typer(user.app, name="user", help="Manage the users of a node and their credentials.")
app.add_typer(sensor.app, name="sensor", help="Show sensor networks, and send readings to a gateway.")
app.add_typer(pipeline.app, name="pipeline", help="Run pipelines on Spark, and pack their environment.")
app.add_typer(filter.app, name="filter", help="Check filters, and try them on events.")
app.add_typer(simulate.app, name="simulate", help="Simulate faults in virtual time, or a city of sensors.")
app.add_typer(bench.app, name="bench", help="Run benchmarks, beside reference code in the same run.")


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
    """Take the options before the command."""


@app.command(hidden=True)
def tour() -> None:
    """Name the command that has replaced this one; the name goes with the next release."""
    raise UserError("there is no tour any more; use 'tidings demo'")


tree.use(app)
