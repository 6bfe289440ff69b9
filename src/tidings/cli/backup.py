"""`tidings backup` and `tidings restore`: the store of a node into one file, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

from tidings.cli.options import Json, argument, option
from tidings.cli.printing import print_json, progress_bar
from tidings.store.backup import BackupSummary, back_up
from tidings.store.backup import restore as restore_from

Source = Annotated[Path, argument("DIR", "The directory of the node, which may run.")]
Target = Annotated[Path, argument("FILE", "The backup to write.")]
Replace = Annotated[bool, option("--replace", "Replace an existing file.")]
Backup = Annotated[Path, argument("FILE", "The backup.")]
Home = Annotated[Path, argument("DIR", "A directory without a store; created if missing.")]
NewName = Annotated[bool, option("--new-name", "For a copy beside the node that the backup was made of.")]


def backup(directory: Source, file: Target, replace: Replace = False, json: Json = False) -> None:
    """Write a snapshot of a node's store to one file, while the node runs.

    The backup is read through and checked before it has its name. The exit code is 1 if records in it are
    damaged.
    """
    with _progress("copying") as progress:
        summary = back_up(directory, file, replace, progress)
    _print_summary(summary, f"wrote {file}", json)


def restore(file: Backup, directory: Home, new_name: NewName = False, json: Json = False) -> None:
    """Restore the directory of a node from a backup; `tidings node --dir DIR` then continues from there.

    Changes after the backup are lost. Deliveries since then may be repeated, marked as redelivered. The
    exit code is 1 if records of the backup are damaged: they are left out.
    """
    with _progress("restoring") as progress:
        summary = restore_from(file, directory, time.time(), new_name, progress)
    _print_summary(summary, f"restored {directory}", json)


def _progress(doing: str) -> AbstractContextManager[Callable[[int, int | None], None]]:
    """A bar with the bytes done, and the rate."""
    return progress_bar(doing, DownloadColumn(), TransferSpeedColumn())


def _print_summary(summary: BackupSummary, done: str, json: bool) -> None:
    if json:
        print_json(summary)
    else:
        counts = ("events", "messages", "queues", "durables")
        held = ", ".join(f"{getattr(summary, name):,} {name}" for name in counts)
        typer.echo(f"{done}: node {summary.node}, {held}, {summary.size:,} bytes")
        for problem in summary.damage:
            typer.echo(f"damaged: {problem}", err=True)
    if summary.damage:
        raise typer.Exit(1)
