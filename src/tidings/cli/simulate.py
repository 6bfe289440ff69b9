"""`tidings simulate`: storms over a node and its clients in virtual time, repeatable by their seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import typer

if TYPE_CHECKING:
    from tidings.simulator import QueueVerdict, Verdict

app = typer.Typer(no_args_is_help=True)

Seed = Annotated[int, typer.Option(help="The seed of the first storm; the others follow.")]
Runs = Annotated[int, typer.Option(min=1, help="How many storms.")]
Duration = Annotated[float, typer.Option("--duration-s", min=0.1, help="How long each one lasts, simulated.")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON for each storm.")]
T = TypeVar("T")


@app.command("storm")
def run_storms(seed: Seed = 0, runs: Runs = 10, duration_s: Duration = 15.0, json: Json = False) -> None:
    """Let storms rage over the node's own code: cuts, partitions, slow links, crashes, a full disk.

    Nothing promised may be lost, nothing may come twice unmarked, and order must hold; then everything is
    healed and must arrive. A storm that fails is told with its seed, and the exit code is 1.
    """
    from tidings.simulator import storm

    def tell(verdict: Verdict) -> str:
        return (
            f"{verdict.faults} faults, {verdict.published} events published, "
            f"{verdict.promised} accepted, {verdict.delivered} deliveries, {verdict.marked} marked again"
        )

    _run(range(seed, seed + runs), lambda number: storm(number, duration_s), tell, json)


@app.command("queues")
def run_queue_storms(
    seed: Seed = 0, runs: Runs = 10, duration_s: Duration = 15.0, json: Json = False
) -> None:
    """Let the same storms rage over queues: puts, gets, settlements and transactions on queues of all kinds.

    No message may be lost, in two hands at once or handed out again unmarked, and a transaction is done whole
    or not at all; then everything is healed and the queues must run empty.
    """
    from tidings.simulator import queue_storm

    def tell(verdict: QueueVerdict) -> str:
        return (
            f"{verdict.faults} faults, {verdict.put} messages put, {verdict.accepted} accepted, "
            f"{verdict.handed} handed out, {verdict.marked} marked again, {verdict.committed} transactions"
        )

    _run(range(seed, seed + runs), lambda number: queue_storm(number, duration_s), tell, json)


def _run(seeds: range, run: Callable[[int], T], tell: Callable[[T], str], json: bool) -> None:
    """Run storms one after the other, and tell what came of each."""
    failed = 0
    for seed in seeds:
        try:
            verdict = run(seed)
        except AssertionError as error:
            failed += 1
            typer.echo(f"seed {seed}: FAILED: {error}", err=True)
            continue
        typer.echo(msgspec.json.encode(verdict) if json else f"seed {seed}: {tell(verdict)}")
    if failed:
        raise typer.Exit(1)
