"""`tidings ping`: whether a node answers, for people, scripts and the health checks of containers."""

from __future__ import annotations

from typing import Annotated

import typer

from tidings.cli.connection import connects, credentials_at, default_node, reaching
from tidings.cli.options import Json, Place
from tidings.cli.printing import print_json, word

Timeout = Annotated[
    float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long the node may take.")
]


@connects
async def ping(address: Place = None, timeout: Timeout = 5.0, json: Json = False) -> None:
    """Connect to a node, and print how long its answer takes.

    Exit code 0: the node answered. 1: it did not, or refused to. 2: the address or an option is wrong.
    """
    from tidings.transport.dial import dial
    from tidings.transport.ping import ping

    place = address or default_node()
    given = credentials_at(place)
    with reaching(place, json):
        found = await ping(dial(place, given), given.says, timeout)
    if json:
        print_json({"address": place, **found._asdict()})
    else:
        typer.echo(f"{word(found.name)} ({found.node}) at {place}: {found.round_trip_s * 1e3:.2f} ms")
