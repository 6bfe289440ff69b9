"""`tidings simulate adhoc`: messages between hosts that meet by chance, over a trace or as they move."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from tidings.cli.experiments import OUT, Grid, OnSpark, Out, Seeds, experiment
from tidings.cli.options import Json, option
from tidings.cli.printing import print_result
from tidings.errors import UserError

AT = "1h,6h,24h,end"
_moving = partial(option, rich_help_panel="Hosts that move")

Trace = Annotated[
    Path | None,
    option("FILE", "Contacts: a trace of the ONE, of SocioPatterns or of Haggle; may be gzipped."),
]
Format = Annotated[str | None, option("FORMAT", "one, sociopatterns or haggle; without it, guessed.")]
Strategy = Annotated[str, option("NAME", "direct, epidemic, acknowledged, spray, prophet or budget.")]
BufferSize = Annotated[
    str | None, option("SIZE", "Of each host: unlimited, as over a trace, 5MB, or a number of messages.")
]
At = Annotated[str, option("TIMES", "When to look, such as 1h,6h,24h,end.")]
Start = Annotated[str, option("WHEN", "When all send: a share of the trace, 25%, or 2h after its start.")]
StepS = Annotated[float | None, option("SECONDS", "A step; without it, as the format has it.", min=0.1)]
Scenario = Annotated[str | None, _moving("NAME", "Instead of a trace: one, vahdat or emma.")]
Seed = Annotated[int, _moving("The seed of a scenario.")]
Range = Annotated[float, _moving("METRES", "Of the hosts' radio.", min=0.0)]
Hosts = Annotated[int, _moving("N", "How many; 0: as it has.", min=0)]
Duration = Annotated[float, _moving("HOURS", "How long; 0: as it has.", min=0.0)]
Reliability = Annotated[float, _moving("SHARE", "Of deliveries, for budget.", min=0.0, max=1.0)]
Svg = Annotated[Path | None, _moving("FILE", "Write a map that moves here.")]
Write = Annotated[Path | None, _moving("FILE", "Write the contacts here, as the ONE does.")]


def run_adhoc(
    trace: Trace = None,
    format: Format = None,
    strategy: Strategy = "epidemic",
    buffer: BufferSize = None,
    at: At = AT,
    start: Start = "0%",
    step_s: StepS = None,
    scenario: Scenario = None,
    seed: Seed = 0,
    range: Range = 0.0,
    hosts: Hosts = 0,
    duration: Duration = 0.0,
    reliability: Reliability = 0.0,
    svg: Svg = None,
    write: Write = None,
    grid: Grid = None,
    seeds: Seeds = 5,
    spark: OnSpark = False,
    out: Out = OUT,
    json: Json = False,
) -> None:
    """Simulate messages between hosts that meet by chance, without a server and without a path.

    Over a trace every host sends to all others at the start, and the share of ordered pairs that are reached
    is given for each of the times. Within a step a message crosses all that is connected. In a scenario
    hosts move, and messages take time; delivery, delay and overhead are given. A grid runs a scenario with
    many values of scenario, strategy, range, buffer, hosts, duration, reliability, copies and interval.
    """
    if grid:
        from tidings.simulator.adhoc_scenarios import adhoc_run

        experiment(adhoc_run, grid, seeds, seed, spark, out, json)
        return
    if (trace is None) == (scenario is None):
        raise UserError("contacts come from --trace FILE or from --scenario NAME: give one of the two")
    if scenario is not None:
        options = (range, buffer or "", hosts, duration, reliability)
        _run_scenario((seed, scenario, strategy, *options), svg, write, json)
        return
    from tidings.simulator.adhoc_reach import reach  # not before: numba takes a second to load
    from tidings.simulator.contacts import read_trace

    assert trace is not None
    times = [one.strip() for one in at.split(",") if one.strip()]
    report = reach(read_trace(trace, format, step_s), strategy, buffer or "unlimited", times, start)
    print_result(report, str(report), json)


def _run_scenario(
    chosen: tuple[int, str, str, float, str, int, float, float],
    svg: Path | None,
    write: Path | None,
    json: bool,
) -> None:
    """Run a scenario, print its figures, and write what is wanted."""
    from tidings.simulator.adhoc_map import draw_map
    from tidings.simulator.adhoc_scenarios import figures, make_run
    from tidings.simulator.contacts import write_one
    from tidings.simulator.mobility import contacts_of, meetings

    run, scenario, track = make_run(*chosen)
    if svg is not None:
        svg.write_text(draw_map(run, scenario.terrain, track, scenario.range_m))
    if write is not None:
        write.write_text(write_one(contacts_of(meetings(track, scenario.range_m))))
    found = figures(run, scenario)
    told = ", ".join(f"{name} {value:.4g}" for name, value in found.items() if value is not None)
    print_result(found, f"{chosen[1]}, {chosen[2]}, seed {chosen[0]}: {told}", json)
