"""What one client can do to others within every documented limit: `tidings bench fair`.

Each row is a node of its own, with a canary, a publisher that sends at a third of the node's rate, and a
hostile client that does one thing. Its figure is the longest round trip of the canary while the hostile
client is at work and for LINGER_S after. Every row is done without security and with it. What a node refuses
by a limit is not done, and the row goes on with what was accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

from benchmarks.arena import Arena, Outcome, Pace, Stage, arena
from benchmarks.fair_rows import ROWS, Row
from benchmarks.figures import Report, machine
from tidings.errors import PeerError
from tidings.node import compiled

PACE = Pace(part=1 / 3, answer_s=15.0)
"""The publisher sends a third of the node's rate; an answer that takes longer is none."""
ATTACK_S, QUICK_ATTACK_S = 15.0, 3.0
"""How long a hostile client goes on at the most."""
IDLE_S, QUICK_IDLE_S = 5.0, 1.0
LINGER_S, QUICK_LINGER_S = 3.0, 0.5
LONGEST_MS = 250.0
"""The goal for the canary's longest round trip."""
RECOVER_S_MAX = 20.0
"""How long a node may take to serve again before another one takes its place."""
SHARE = 0.95
"""The goal for the publisher: how much of its rate it keeps."""
STARVED_S = 0.25
"""From so much waiting for a processor on, a line says that the machine was busy with other things."""
MEMORY_MB = 512.0
"""The goal for what a hostile client adds to the memory of the node."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """The outcome of a row."""

    row: Row
    secured: bool
    rate: float
    outcome: Outcome

    @property
    def missed(self) -> list[str]:
        """The goals that were not reached."""
        seen = self.outcome
        reached = {
            "round trip": not seen.unanswered and 1e3 * seen.longest_s <= LONGEST_MS,
            "share": seen.share is not None and seen.share >= SHARE,
            "stored": not seen.unstored,
            "memory": seen.memory_peak_mb - seen.memory_before_mb <= MEMORY_MB,
        }
        return [name for name, is_reached in reached.items() if not is_reached]

    @property
    def line(self) -> str:
        """The outcome as a line of a table."""
        seen = self.outcome
        share = "sent away" if seen.share is None else f"{seen.share:.2f}"
        memory = "/".join(
            f"{mb:.0f}" for mb in (seen.memory_before_mb, seen.memory_peak_mb, seen.memory_after_mb)
        )
        busy = f" (the node had to wait for a processor for {seen.starved_s:.1f} s)"
        busy *= seen.starved_s > STARVED_S
        return (
            f"{self.row.name:22s} {'users' if self.secured else 'none':6s}"
            f"{_time(seen.longest_s, seen.unanswered):>18s}{_time(seen.longest_store_s, seen.unstored):>18s}"
            f"{share:>10s}{memory:>16s}  {', '.join(self.missed) or 'reached'}{busy}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The outcome for JSON."""
        told = {one.name: _rounded(getattr(self.outcome, one.name)) for one in fields(self.outcome)}
        return {
            "row": self.row.name,
            "what": self.row.what,
            "secured": self.secured,
            "rate": round(self.rate),
            **told,
            "missed": self.missed,
        }


HEADING = f"{'row':22s} {'rules':6s}{'longest, ms':>18s}{'stored, ms':>18s}{'share':>10s}{'memory, MB':>16s}"


def _time(seconds: float, unanswered: int) -> str:
    return f"none in {seconds:.0f} s" if unanswered else f"{1e3 * seconds:,.0f}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    return dict(value) if isinstance(value, dict) else value


def run(quick: bool, report: Report, only: Sequence[str] = (), progress: Report | None = None) -> Figures:
    """Run these rows, or all of them, telling a line for each; quick: small sizes."""
    names = list(only) or list(ROWS)
    has_compiled = compiled.is_installed() and not quick
    report(
        f"longest round trip below {LONGEST_MS:.0f} ms, share from {SHARE}, memory up to {MEMORY_MB:.0f} MB"
    )
    report(HEADING)
    found = []
    for one in measure(names, quick, has_compiled, progress or (lambda _line: None)):
        report(one.line)
        found.append(one)
    missed = [f"{one.row.name}{' (users)' * one.secured}" for one in found if one.missed]
    report(f"missed: {', '.join(missed)}" if missed else "every goal reached")
    facts = {"quick": quick, "compiled": has_compiled, "machine": machine()}
    goals = {"longest_ms": LONGEST_MS, "share": SHARE, "memory_mb": MEMORY_MB}
    return {**facts, "goals": goals, "rows": [one.as_dict() for one in found]}


def measure(names: Sequence[str], quick: bool, has_compiled: bool, progress: Report) -> Iterator[Found]:
    """Each row without security, then with it; a quick run has one node for all rows while it is well."""
    for secured in (False, True):
        with ArenaKeeper(secured, has_compiled, PACE) as keeper:
            for place, name in enumerate(names):
                progress(f"{place + 1} of {len(names)}: {name}{', with users' * secured}")
                try:
                    yield run_row(keeper.get(ROWS[name], is_new=not quick), ROWS[name], secured, quick)
                except PeerError as error:  # the node did not even start, or a good client has died
                    progress(f"{name}: {error}\n")
                    keeper.replace()


class ArenaKeeper:
    """One arena, and another in its place when its node does not serve any more, or one of another kind."""

    def __init__(self, secured: bool, has_compiled: bool, pace: Pace) -> None:
        self._new = partial(arena, secured=secured, compiled=has_compiled, pace=pace)
        self._stack = ExitStack()
        self._arena: Arena | None = None
        self._has_gateway = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def get(self, row: Row, *, is_new: bool = False) -> Arena:
        """An arena for a row, whose node serves; a new one, if that is wanted."""
        is_other = self._has_gateway is not row.needs_gateway
        if self._arena is None or is_new or is_other or not self._arena.wait_well(RECOVER_S_MAX):
            self.replace()
            self._has_gateway = row.needs_gateway
            self._arena = self._stack.enter_context(self._new(has_gateway=row.needs_gateway))
        return self._arena

    def replace(self) -> None:
        """Have a new one next time."""
        self._stack.close()
        self._arena = None


def run_row(made: Arena, row: Row, secured: bool, quick: bool) -> Found:
    """One row at a node that is there."""
    seconds = QUICK_ATTACK_S if quick else ATTACK_S
    if row.name == "idle":
        seconds = QUICK_IDLE_S if quick else IDLE_S
    stage = Stage(row.prepare, row.attack, row.sizes_of(quick), seconds)
    return Found(row, secured, made.rate, made.run(stage, QUICK_LINGER_S if quick else LINGER_S))
