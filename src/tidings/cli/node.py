"""`tidings node`: run a node. What it does is in `tidings.node`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.cli.options import settings_options, with_options
from tidings.node.settings import as_toml, load

Config = Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file with these settings.")]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print the effective settings as such a file, and end.")
]


@with_options(*settings_options())
def node(config: Config = None, show_config: ShowConfig = False, **flags: Any) -> None:
    """Run a node until it is stopped with Ctrl-C or SIGTERM.

    Settings come from flags, then from variables such as TIDINGS_PORT, then from the file given by --config.
    The first line printed says where the node listens. One that is not told where also has the socket under
    which programs find the node of this machine.
    """
    settings = load(config, os.environ, flags)
    if show_config:
        typer.echo(as_toml(settings), nl=False)
        return
    from tidings.node.local import as_machine_node
    from tidings.node.main import run

    run(as_machine_node(settings))
