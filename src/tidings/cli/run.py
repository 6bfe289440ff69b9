"""`tidings run`: run the app of a Python module."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidings.cli.connection import bus_of, identifies
from tidings.cli.options import Address, Json, Name, argument, option, seconds
from tidings.cli.printing import new_table, print_found, to_json
from tidings.client import App
from tidings.client.app import AppPart
from tidings.client.crew import Stop, on_signals, until_signalled
from tidings.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

GRACE_S = 30.0
LOOK_S = 0.5
"""Seconds between two looks for changed files."""
FILES_MAX = 10_000
"""Files that `--reload` watches."""

Target = Annotated[str, argument("MODULE:APP", "The app, such as painting:app.")]
Check = Annotated[bool, option("--check", "List the handlers and end, without a node.")]
Reload = Annotated[bool, option("--reload", "Restart when a file of Python below here changes.")]
Grace = Annotated[float, seconds("--grace", "Time for running handlers at the end.")]


@identifies
def run(
    target: Target,
    check: Check = False,
    reload: Reload = False,
    grace: Grace = GRACE_S,
    name: Name = "",
    node: Address = None,
    json: Json = False,
) -> Coroutine[Any, Any, None] | None:
    """Run an app: its handlers of events, messages and requests.

    The module is looked for in this directory first. SIGTERM or Ctrl-C stops the app gracefully, a second
    one cancels its handlers and releases their messages. The exit code is 0 after a graceful stop, 1 if
    handlers were cancelled or the module raised an error, and 2 if there is no such module, app, queue or
    node.
    """
    if reload and not check:
        raise typer.Exit(Reloader().run())
    app = load(target)
    if check:
        print_found(app.parts, json, to_json, _table, "the app has no handler yet")
        return None
    return _run(app, target, grace, name, node)


async def _run(app: App, target: str, grace_s: float, name: str, node: str | None) -> None:
    async with bus_of(name, reconnect=True, node=node) as bus:
        typer.echo(f"running {target}, {len(app.parts)} handlers; Ctrl-C ends", err=True)

        async def work(stop: Stop | None) -> None:
            await app.run(bus, stop=stop, signals=False, grace_s=grace_s)

        if not await until_signalled(work, None):
            raise typer.Exit(1)


def _table(parts: Sequence[AppPart]) -> Table:
    table = new_table("what", "handler", "of", "concurrency", numbers=("concurrency",), wide=("of",))
    for part in parts:
        table.add_row(part.kind, part.handler, part.target, str(part.concurrency))
    return table


# Loading


def load(target: str) -> App:
    """Return the app MODULE:APP; raises UserError, with what to do, if there is none."""
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or os.sep in module_name:
        meant = ".".join(Path(module_name).with_suffix("").parts)
        raise UserError(f"{module_name!r} is a file; name its module: {meant}:{attribute or 'app'}")
    module = _module(module_name)
    found = getattr(module, attribute or "app", None)
    if isinstance(found, App):
        return found
    apps = [f"{module_name}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    problem = f"has no {attribute or 'app'!r}"
    if found is not None:
        problem = f"has {attribute or 'app'!r}, which is no tidings.App but {type(found).__name__}"
    hint = f"use {' or '.join(apps)}" if apps else "make one with app = tidings.App()"
    raise UserError(f"module {module_name!r} {problem}; {hint}")


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports
    except (TypeError, ValueError):
        pass  # such as '' and '.a'
    raise UserError(f"there is no module {name!r} in {here} or on the path; name one as MODULE:APP")


# Reloading


class Reloader:
    """Runs this command, without `--reload`, in another process, and again when a file has changed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> int:
        """Run until a signal comes; return the exit code of the last process."""
        with on_signals(self.end, self.end):
            while True:
                seen = changes()
                self._child = begin()
                while changes() == seen and not self._is_over:
                    time.sleep(LOOK_S)
                if not self._is_over:
                    typer.echo("a file has changed; restarting", err=True)
                    self._child.terminate()
                code = self._child.wait()
                if self._is_over:
                    return code if code >= 0 else 128 - code

    def end(self) -> None:
        """Pass a signal on, and end with the process."""
        self._is_over = True
        if self._child is not None:
            self._child.terminate()


def begin() -> subprocess.Popen[bytes]:
    """Begin the process; Ctrl-C reaches it through this one, or it would be stopped twice."""
    words = [word for word in sys.argv[1:] if word != "--reload"]
    return subprocess.Popen(
        [sys.executable, "-c", "from tidings.cli import main; main()", *words], process_group=0
    )


def changes() -> dict[Path, float]:
    """Return when each file of Python below this directory was changed last."""
    found: dict[Path, float] = {}
    for root, folders, files in os.walk(Path.cwd()):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in files:
            if name.endswith(".py") and len(found) < FILES_MAX:
                path = Path(root, name)
                with suppress(OSError):  # it was deleted meanwhile
                    found[path] = path.stat().st_mtime
    return found
