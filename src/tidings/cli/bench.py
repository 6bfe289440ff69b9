"""`tidings bench`: measurements as commands. The measuring itself is in `benchmarks/` of a checkout."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import typer

import tidings
from tidings.cli.options import option
from tidings.errors import UserError

CHECKOUT_FILES = ("benchmarks/__init__.py", "src/tidings/__init__.py")
"""Files that a checkout has, and an installed package lacks."""
BENCHMARKS = {
    "matching": "Measure the rate at which the index matches events against many filters.",
    "node": "Measure the throughput of a node, beside the brokers installed on this machine.",
    "queue": "Measure how fast queues store, search and deliver messages, beside the brokers installed.",
    "secure": "Measure the cost of encryption and rules, "
    "and the speed of forwarding and searching between nodes.",
    "gateway": "Measure how many readings and sensor networks a gateway carries, beside Mosquitto.",
    "pipeline": "Measure speed, size and latency of readings written to the log and read by Spark.",
    "flows": "Measure back-tests of very many filters, states of many keys, collapses at nodes and patterns.",
    "adhoc": "Measure delivery, overhead and speed of messages between hosts that meet by chance.",
    "channel": "Measure what the order of a channel costs: fifo, causal and total, beside a subscription.",
    "agents": "Measure what agents cost: memory at rest, moves, the end of many processes, an idle lease.",
    "overlay": "Measure the cost of routing between nodes: filters that come over links, and their covers.",
}
"""Benchmarks that print one line after the other, with the help of their commands."""

app = typer.Typer(no_args_is_help=True)

Quick = Annotated[bool, option("--quick", "Small sizes: a quick look, not figures to quote.")]
JsonFile = Annotated[Path | None, option("FILE", "Also write the figures here.")]


def _add(name: str, help: str) -> None:
    """Add the command of a benchmark."""

    @app.command(name, help=help)
    def measure(quick: Quick = False, json: JsonFile = None) -> None:
        write_figures(json, benchmark(name).run(quick, typer.echo))


for _name, _help in BENCHMARKS.items():
    _add(_name, _help)


@app.command()
def fair(
    quick: Quick = False,
    json: JsonFile = None,
    only: Annotated[list[str] | None, option("--only", "ROW", "Only this row; may be repeated.")] = None,
    rows: Annotated[bool, option("--rows", "Only list the rows.")] = False,
) -> None:
    """Measure how one client affects others: their waiting time, their rate, and memory."""
    known = benchmark("fair_rows").ROWS
    unknown = [name for name in only or () if name not in known]
    if rows:
        typer.echo("\n".join(f"{row.name:22s} {row.what}" for row in known.values()))
    elif unknown:
        raise UserError(f"--only: {unknown[0]!r} is not one of {', '.join(known)}")
    else:
        write_figures(json, benchmark("fair").run(quick, _above_progress, only or (), show_progress))


def benchmark(name: str) -> ModuleType:
    """Import a module of `benchmarks/`; UserError where there is no checkout."""
    checkout = find_checkout()
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return import_module(f"benchmarks.{name}")


def find_checkout() -> Path:
    """Return the checkout that tidings runs from, or the current directory if that is one."""
    for place in (Path(tidings.__file__).parents[2], Path.cwd()):
        if all((place / part).is_file() for part in CHECKOUT_FILES):
            return place
    raise UserError(
        "an installed tidings has no benchmarks: they are part of a checkout; "
        "clone the repository of tidings and run 'tidings bench' in it"
    )


def show_progress(line: str) -> None:
    """Show what is being done, in a line that the next one overwrites; only where somebody looks on."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line} …")
        sys.stderr.flush()


def _above_progress(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    typer.echo(line)


def write_figures(path: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures as indented JSON, if wanted, so that two runs can be compared line by line."""
    if path is not None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
