"""`tidings demo`: the whole system at work, in one command.

A node with a directory and a gateway, or several that are linked, a simulated city, workers, and Spark: see
`town`. On a terminal a screen shows them until Ctrl-C. Elsewhere the demo prints a line each second and ends
after two minutes, with a summary and an exit code: 0 if everything happened that should.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from functools import partial
from typing import Annotated

import typer

from tidings.cli.connection import run, until_terminated
from tidings.cli.options import Json, option
from tidings.errors import UserError

SECONDS = 120.0
"""Duration of the demo without a terminal, in seconds."""
LATE_S_MAX = 120.0
"""Longest further wait for the first alarm or reading: a slow machine is no failure."""

Seconds = Annotated[
    float | None,
    option(
        "N", "End after so many seconds.", min=1.0, show_default="on a terminal with Ctrl-C, else after 120"
    ),
]
NODES_MAX = 9
"""Nodes of a demo."""
Nodes = Annotated[
    int,
    option(
        "N", "Link N nodes in a line: subscribers at one end, sensors at the other.", min=1, max=NODES_MAX
    ),
]
Spark = Annotated[bool, option("--spark/--no-spark", "Run Spark too, which needs Java.")]


def demo(seconds: Seconds = None, nodes: Nodes = 1, spark: Spark = True, json: Json = False) -> None:
    """Run a node, a gateway, a city of sensors, a queue with workers and Spark, and show their work.

    If it ends by itself, the exit code is 1 unless readings were logged, an alarm came back from Spark,
    sensors went off when the query stopped, and events crossed the links of several nodes.
    """
    if spark:
        check_spark()
    run(until_terminated(_demo(seconds, nodes, spark, json), (signal.SIGTERM, signal.SIGHUP)))


def check_spark() -> None:
    """Raise an error that names what Spark lacks on this machine, and the option to leave it out."""
    from tidings.pipeline.session import check_java, check_packages

    try:
        check_packages()
        check_java()
    except UserError as error:
        raise UserError(f"{error}; without Spark: tidings demo --no-spark") from None


async def _demo(seconds: float | None, nodes: int, spark: bool, json: bool) -> None:
    from tidings.cli.demo.town import Town, home
    from tidings.cli.demo.views import show_summary, view

    is_watched = sys.stdout.isatty() and not json
    is_endless = is_watched and seconds is None
    logging.getLogger("tidings.node").setLevel(logging.ERROR)  # nodes that stop lose their links
    async with home(nodes=nodes) as place:
        with view(place, json, is_watched) as show:
            town = Town(place, spark, show)
            late_s_max = LATE_S_MAX if seconds is None else 0.0
            wait = asyncio.Event().wait if is_endless else partial(town.wait, seconds or SECONDS, late_s_max)
            summary = await town.live(wait, needs_query=not is_endless)
        show_summary(summary, json)
    if summary.missing:
        raise typer.Exit(1)
