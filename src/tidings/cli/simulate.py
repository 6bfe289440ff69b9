"""`tidings simulate storm`: storms over a node and its clients in virtual time, repeatable by their seeds."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

app = typer.Typer(no_args_is_help=True)

Seed = Annotated[int, typer.Option(help="The seed of the first storm; the others follow.")]
Runs = Annotated[int, typer.Option(min=1, help="How many storms.")]
Duration = Annotated[float, typer.Option("--duration-s", min=0.1, help="How long each one lasts, simulated.")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON for each storm.")]


@app.callback()
def group() -> None:
    """Keep `storm` a subcommand: typer makes a lone command the whole application."""


@app.command("storm")
def run_storms(seed: Seed = 0, runs: Runs = 10, duration_s: Duration = 15.0, json: Json = False) -> None:
    """Let storms rage over the node's own code: cuts, partitions, slow links, crashes, a full disk.

    Nothing promised may be lost, nothing may come twice unmarked, and order must hold; then everything is
    healed and must arrive. A storm that fails is told with its seed, and the exit code is 1.
    """
    from tidings.simulator import storm

    failed = 0
    for number in range(seed, seed + runs):
        try:
            verdict = storm(number, duration_s)
        except AssertionError as error:
            failed += 1
            typer.echo(f"seed {number}: FAILED: {error}", err=True)
            continue
        if json:
            typer.echo(msgspec.json.encode(verdict))
        else:
            typer.echo(
                f"seed {number}: {verdict.faults} faults, {verdict.published} events published, "
                f"{verdict.promised} accepted, {verdict.delivered} deliveries, {verdict.marked} marked again"
            )
    if failed:
        raise typer.Exit(1)
