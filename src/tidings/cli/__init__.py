"""The command line: `tidings COMMAND`.

Only `main` is here, so that the command can say what is missing where the `node` extra is not installed.
"""

from __future__ import annotations

import os
import sys

from tidings.cli.output import checked_output
from tidings.errors import MissingExtra, TidingsError

PARTS = ("typer", "rich")


def main() -> None:
    """Run the command that the process was started with, and exit."""
    try:
        from tidings.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        sys.exit(f"tidings: {MissingExtra('the command line', 'node')}")
    with checked_output():
        _warn_of_variables()
        try:
            app()
        except TidingsError as error:
            sys.stderr.write(f"tidings: {error}\n")
            sys.exit(2)


def _warn_of_variables() -> None:
    """Print which variables are probably misspelt: they would be passed over."""
    from tidings.node.variables import new_hints

    for hint in new_hints(os.environ):
        sys.stderr.write(f"tidings: {hint}\n")
