"""`tidings node`: run a node. What it does is in `tidings.node`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tidings.cli.options import Json, settings_options, with_options
from tidings.cli.printing import print_json
from tidings.errors import InternalError, MissingExtra, UserError
from tidings.node.settings import as_toml, flag_of, load

Config = Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file with these settings.")]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print the effective settings as such a file, and end.")
]
Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="The directory that the node will have.")
]

app = typer.Typer()


@app.callback(invoke_without_command=True)
@with_options(*settings_options())
def node(
    context: typer.Context, config: Config = None, show_config: ShowConfig = False, **flags: Any
) -> None:
    """Run a node until it is stopped with Ctrl-C or SIGTERM.

    Settings come from flags, then from variables such as TIDINGS_PORT, then from the file given by --config.
    The first line printed says where the node listens. One that is not told where also has the socket under
    which programs find the node of this machine.
    """
    if context.invoked_subcommand is not None:
        _refuse_settings(context.invoked_subcommand, config, show_config, flags)
        return
    settings = load(config, os.environ, flags)
    if show_config:
        typer.echo(as_toml(settings), nl=False)
        return
    from tidings.node.local import as_machine_node
    from tidings.node.main import run

    run(as_machine_node(settings))


def _refuse_settings(command: str, config: Path | None, show_config: bool, flags: dict[str, Any]) -> None:
    """Refuse options of a node that is started where none is."""
    given = [flag_of(name) for name, value in flags.items() if value is not None]
    given += ["--config"] * (config is not None) + ["--show-config"] * show_config
    if given:
        raise UserError(f"{given[0]} is for starting a node; put options of '{command}' after its name")


@app.command("compile")
def compile_code(dir: Directory = None, json: Json = False) -> None:
    """Compile the code of nodes for this machine and user, so that the first node need not.

    For images of containers, and after an installation. Takes half a minute, and no time if it was done. Give
    --dir for a node whose user has no cache directory. Exit code 1: it can't be compiled, or not be stored.
    """
    from tidings.node import compiled

    if not compiled.is_installed():
        raise MissingExtra("compiled code", "node")
    try:
        cache = compiled.compile_now(None if dir is None else str(dir))
    except (OSError, InternalError) as error:
        typer.echo(f"tidings: could not compile: {error}", err=True)
        raise typer.Exit(1) from None
    if json:
        print_json({"cache": str(cache)})
    else:
        typer.echo(f"compiled code is in {cache}")
