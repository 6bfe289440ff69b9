"""Reach over traces in all formats, against an oracle that shares no code: it reads the lines by itself, and
looks for time-respecting paths by itself.

A step has begun when its number times its length has come. Within a step a message crosses all that is
connected.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
from effort import often
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.simulator.adhoc_reach import reach
from tidings.simulator.contacts import read_trace

STEP_S = {"one": 20, "sociopatterns": 20, "haggle": 120}
Edges = set[tuple[int, str, str]]


def edges_of(kind: str, lines: list[str]) -> tuple[Edges, set[str]]:
    """Who is together in which step, and all hosts."""
    step_s, edges, hosts = STEP_S[kind], set(), set()
    rows = [line.split() for line in lines]
    if kind == "sociopatterns":
        spans = [(one, other, float(at), float(at)) for at, one, other, *_ in rows if one != other]
    elif kind == "haggle":
        first = {row[0] for row in rows}
        hosts |= first
        spans = [
            (one, other, float(start), float(end))
            for one, other, start, end, *_ in rows
            if other in first - {one}
        ]
    else:
        up, spans = {}, []
        for at, _, one, other, what in rows:
            if what == "up":
                up[one, other] = float(at)
            else:
                spans.append((one, other, up.pop((one, other)), float(at)))
    for one, other, start, end in spans:
        hosts |= {one, other}
        edges |= {(step, one, other) for step in range(int(start) // step_s, int(end) // step_s + 1)}
    return edges, hosts


def earliest(edges: Edges, source: str, from_s: float, step_s: int) -> dict[str, int]:
    """The first step in which each host is reached; the edges of a step count until nothing changes."""
    reached = {source: -1}
    for step, some in groupby(sorted(edges), key=lambda edge: edge[0]):
        if step * step_s < from_s:
            continue
        pairs = [edge[1:] for edge in some]
        while new := [
            (one, other)
            for pair in pairs
            for one, other in (pair, pair[::-1])
            if one in reached and other not in reached
        ]:
            reached.update((other, step) for _, other in new)
    return reached


def shares(kind: str, lines: list[str], start: float, at_s: list[float]) -> list[float]:
    edges, hosts = edges_of(kind, lines)
    step_s = STEP_S[kind]
    times = [step * step_s for step, _, _ in edges]
    from_s = min(times) + start * (max(times) - min(times))
    delays = [
        step * step_s - from_s
        for source in hosts
        for host, step in earliest(edges, source, from_s, step_s).items()
        if host != source
    ]
    pairs = len(hosts) * (len(hosts) - 1)
    return [sum(delay <= moment for delay in delays) / pairs for moment in at_s]


def trace_by_chance(kind: str, random: Random) -> list[str]:
    """Lines of a format, with what is easily taken wrongly: boundaries of steps, and contacts of a second."""
    names = [str(number) for number in range(1, random.randint(4, 9))]
    step_s = STEP_S[kind]
    events, lines = [], []
    for _ in range(random.randint(3, 40)):
        one, other = random.sample(names, 2)
        start = random.randint(0, 60) * step_s + random.choice(
            (0, 0, 1, step_s - 1, random.randrange(step_s))
        )
        end = start + random.choice((0, 1, 1, step_s - 1, step_s, 5 * step_s))
        if kind == "sociopatterns":
            lines.append(f"{start // step_s * step_s} {one} {other} A B")
        elif kind == "haggle":
            far = random.choice((other, other, other, one, f"9{other}"))  # which never looks itself
            lines.append(f"{one} {far} {start} {end} 1 0")
        else:
            events.append((one, other, start, end))
    free_at: dict[tuple[str, ...], int] = {}
    for one, other, start, end in sorted(events, key=lambda event: event[2]):
        pair = tuple(sorted((one, other)))
        if free_at.get(pair, -1) < start:
            free_at[pair] = end
            lines += [f"{start} CONN {pair[0]} {pair[1]} up", f"{end} CONN {pair[0]} {pair[1]} down"]
    if kind == "one":
        lines.sort(
            key=lambda line: (int(line.split()[0]), line.endswith("down") and _starts_before(line, lines))
        )
    return lines


def _starts_before(line: str, lines: list[str]) -> bool:
    """Whether a link that goes down in this second was up before it: if not, it goes down after it is up."""
    at, _, one, other, _ = line.split()
    return f"{at} CONN {one} {other} up" in lines


@pytest.mark.parametrize("seed", range(often(15)))
@pytest.mark.parametrize("kind", STEP_S)
def test_the_share_of_pairs_is_that_of_the_oracle(kind: str, seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    lines = trace_by_chance(kind, random)
    path = tmp_path / "trace"
    shuffled = lines if kind == "one" else random.sample(lines, len(lines))
    path.write_text("\n\n".join(shuffled) + "\n")
    for start in (0, 25, random.randint(1, 99)):
        report = reach(read_trace(path, kind), at=("0s", "10min", "1h", "end"), start=f"{start}%")
        wanted = shares(kind, lines, start / 100, [0, 600, 3_600, float("inf")])
        assert list(report.reached.values()) == pytest.approx(wanted), (kind, seed, start)


def reached(tmp_path: Path, text: str, *options: str) -> dict[str, float]:
    path = tmp_path / "trace"
    path.write_text(text)
    fixed = ["--strategy", "epidemic", "--buffer", "unlimited", "--json"]
    told = CliRunner().invoke(app, ["simulate", "adhoc", "--trace", str(path), *fixed, *options])
    assert told.exit_code == 0, told.output
    found: dict[str, float] = json.loads(told.stdout)["reached"]
    return found


def test_a_message_makes_several_hops_within_a_step(tmp_path: Path) -> None:
    assert reached(tmp_path, "20 3 4\n20 1 2\n20 2 3\n", "--at", "0s,end") == {"0s": 1.0, "end": 1.0}


def test_the_order_of_steps_counts_and_not_that_of_lines(tmp_path: Path) -> None:
    assert reached(tmp_path, "40 2 3\n20 1 2\n", "--at", "end")["end"] == pytest.approx(5 / 6)


def test_a_contact_of_a_second_counts_in_one_step_and_across_a_boundary_in_two(tmp_path: Path) -> None:
    # 1 and 2 are together from second 119 to 120, in steps 0 and 1; 2 and 3 in step 1 only, 3 and 4 in step 0
    text = "1 2 119 120 1 0\n2 3 125 126 1 0\n3 4 10 11 1 0\n4 3 10 11 1 0\n"
    found = reached(tmp_path, text, "--at", "0s,2min,end")
    assert found["0s"] == pytest.approx(4 / 12)
    assert found["2min"] == found["end"] == pytest.approx(10 / 12)


def test_a_device_that_has_not_looked_itself_is_no_bridge(tmp_path: Path) -> None:
    text = "1 99 0 50 1 0\n2 99 0 50 1 0\n1 2 500 501 1 0\n"
    assert reached(tmp_path, text, "--at", "1s,end") == {"1s": 1.0, "end": 1.0}
    text = "1 99 0 50 1 0\n2 99 0 50 1 0\n1 1 5 6 1 0\n"
    assert reached(tmp_path, text, "--at", "end", "--format", "haggle") == {"end": 0.0}


def test_a_contact_that_lasts_over_the_start_counts_from_the_start_on(tmp_path: Path) -> None:
    text = "0 CONN 1 2 up\n0 CONN 3 4 up\n1 CONN 3 4 down\n400 CONN 1 2 down\n"
    assert reached(tmp_path, text, "--start", "25%", "--at", "0s,end")["end"] == pytest.approx(2 / 12)


def test_hosts_that_never_meet_are_pairs_that_are_not_reached(tmp_path: Path) -> None:
    # 3 has seen nobody that looks itself, 4 has seen itself only: both are hosts, of the first column
    text = "1 2 0 50 1 0\n2 1 0 50 1 0\n3 99 0 50 1 0\n4 4 0 50 1 0\n"
    assert reached(tmp_path, text, "--at", "end")["end"] == pytest.approx(2 / 12)
    # two groups that are never together
    assert reached(tmp_path, "20 1 2\n20 3 4\n", "--at", "end")["end"] == pytest.approx(4 / 12)


def test_contacts_that_overlap_count_as_one(tmp_path: Path) -> None:
    text = "1 2 0 500 1 0\n2 1 100 300 1 0\n1 2 200 900 1 0\n2 3 840 850 1 0\n3 2 840 850 1 0\n"
    assert reached(tmp_path, text, "--at", "14min,end")["14min"] == pytest.approx(1.0)


def test_lines_of_the_one_may_be_in_any_order_and_a_host_is_no_neighbour_of_itself(tmp_path: Path) -> None:
    lines = ["10 CONN 1 2 up", "15 CONN 2 1 down", "100 CONN 2 3 up", "110 CONN 2 3 down", "5 CONN 4 4 up"]
    for some in (lines, lines[::-1]):
        assert reached(tmp_path, "\n".join(some), "--at", "end")["end"] == pytest.approx(5 / 6)
