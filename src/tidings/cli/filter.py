"""`tidings filter`: say what is wrong with a filter, and try it on events from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from tidings.cli.options import Json, argument, option
from tidings.cli.printing import print_json
from tidings.errors import CodecError, EventError, FilterError
from tidings.event.json import from_json
from tidings.filters import Filter, Taxonomy
from tidings.patterns import Pattern

app = typer.Typer(no_args_is_help=True)

Text = Annotated[str, argument("FILTER", "A condition, such as: value > 40")]
Concepts = Annotated[
    Path | None, option("--concepts", "FILE", "Terms and units that FILTER uses: a .toml, .json or RDF file.")
]
Strict = Annotated[bool, option("--strict", "Exit with 1 if there are notes.")]


@app.command()
def check(text: Text, strict: Strict = False, concepts: Concepts = None, json: Json = False) -> None:
    """Print FILTER in its normal text, or show its error and exit with 2.

    Probable mistakes, such as a condition that is true for no event, are printed as notes on standard error;
    with --json they are in the object.
    """
    wanted = read(text, json, load_concepts(concepts))
    if json:
        print_json({"filter": str(wanted), "notes": [to_builtins(note) for note in wanted.notes]})
    else:
        typer.echo(str(wanted))
        print_notes(wanted)
    if strict and wanted.notes:
        raise typer.Exit(1)


@app.command("test")
def try_on_lines(text: Text, concepts: Concepts = None, json: Json = False) -> None:
    """Print the lines of standard input whose event matches FILTER.

    Each line is one event as JSON. With --json, print for each line its number and whether it matches. A line
    that is no event is reported and skipped, and the exit code is then 2.
    """
    wanted = parse(text, json, load_concepts(concepts))
    bad_lines = 0
    for number, line, outcome in results(wanted):
        if isinstance(outcome, Exception):
            bad_lines += 1
            typer.echo(f"line {number}: {outcome}", err=True)
        elif json:
            print_json({"line": number, "matches": outcome})
        elif outcome:
            typer.echo(line)
    if bad_lines:
        raise typer.Exit(2)


def results(wanted: Filter) -> Iterator[tuple[int, bytes, bool | Exception]]:
    """Number, text and outcome of each line of standard input that is not blank."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        try:
            yield number, line.rstrip(b"\r\n"), wanted.matches(from_json(line))
        except (CodecError, EventError) as error:
            yield number, line, error


def load_concepts(path: Path | None) -> Taxonomy:
    """Return the taxonomy of a file; without one, the units that are known everywhere."""
    return Taxonomy() if path is None else Taxonomy.load(path)


def parse(text: str, json: bool, taxonomy: Taxonomy | None = None) -> Filter:
    """The filter, with its notes on standard error; or the end of the command with its mistake on display."""
    wanted = read(text, json, taxonomy)
    print_notes(wanted)
    return wanted


def print_notes(wanted: Filter) -> None:
    """Print the notes on a filter on standard error, a line each."""
    for note in wanted.notes:
        typer.echo(f"note: {note}", err=True)


def read(text: str, json: bool, taxonomy: Taxonomy | None = None) -> Filter:
    """The filter, or the end of the command with its mistake on display."""
    with shown_mistake(text, json):
        return Filter(text, taxonomy=taxonomy)


def read_pattern(text: str, json: bool, taxonomy: Taxonomy | None = None) -> Pattern:
    """The pattern, or the end of the command with its mistake on display."""
    with shown_mistake(text, json):
        return Pattern(text, taxonomy=taxonomy)


@contextmanager
def shown_mistake(text: str, json: bool) -> Iterator[None]:
    """End the command with the mistake of a filter or pattern on display."""
    try:
        yield
    except FilterError as error:
        if json:
            place = {"line": error.line, "column": error.column}
            print_json({"error": {"problem": error.problem, **place, "hint": error.hint}})
        else:
            typer.echo(f"{pointer(text, error)}{error}", err=True)
        raise typer.Exit(2) from None


def pointer(text: str, error: FilterError) -> str:
    """The line with the mistake and a caret under its column; nothing where the place is not known."""
    lines = text.splitlines() or [""]
    if error.line is None or error.column is None or error.line > len(lines):
        return ""
    line = lines[error.line - 1]
    # Tabs stay tabs, so that the caret stands under the column whatever their width.
    indent = "".join("\t" if character == "\t" else " " for character in line[: error.column - 1])
    return f"{line}\n{indent.ljust(error.column - 1)}^\n"
