"""Patterns that Flink's MATCH_RECOGNIZE can say, too: both find the same, in the long run.

Flink's rows of a match follow each other, so what ours passes over is `N*?` there; its WITHIN ends just
before the time, ours includes it. It can't say absence at the end, time-outs, OVERLAPPING and ranges of a
last step.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from effort import IS_SOAK, SEED, lasting
from patterns.reference import Given
from patterns.samples import S, event_of, expected

from tidings import Pattern

ROOT = Path(__file__).parents[2]
FLINK = "apache-flink==2.3.0"
CASES = 3
"""Cases of each pattern."""
ROWS = 60
SAID = [
    ("a[type = 'A'] THEN b[type = 'B']", "A N*? B", "B", "A AS A.kind = 'A', B AS B.kind = 'B'"),
    (
        "a[type = 'A'] THEN NO c[type = 'C'] THEN b[type = 'B']",
        "A N*? B",
        "B",
        "A AS A.kind = 'A', N AS N.kind <> 'C', B AS B.kind = 'B'",
    ),
    (
        "a[type = 'A'] THEN b[type = 'B' AND n > a.n]",
        "A N*? B",
        "B",
        "A AS A.kind = 'A', B AS B.kind = 'B' AND B.n > A.n",
    ),
    (
        "a[type = 'A'] THEN b[type = 'B'] THEN d[type = 'D']",
        "A N*? B M*? D",
        "D",
        "A AS A.kind = 'A', B AS B.kind = 'B', D AS D.kind = 'D'",
    ),
    (
        "a[type = 'A']{3}",
        "A N*? B M*? D",
        "D",
        "A AS A.kind = 'A', B AS B.kind = 'A', D AS D.kind = 'A'",
    ),
]


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has Flink; `TIDINGS_FLINK` names one that is there."""
    if not IS_SOAK:
        pytest.skip("Flink is for the long run")
    known = os.environ.get("TIDINGS_FLINK")
    if known:
        return known
    home = tmp_path_factory.mktemp("flink")
    python = str(home / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    install = [python, "-m", "pip", "install", "-q", "--prefer-binary", FLINK]
    made = subprocess.run(install, check=False, capture_output=True, timeout=lasting(600))
    if made.returncode:
        pytest.skip("Flink can't be installed here")
    return python


def happened(chance: random.Random) -> list[Given]:
    """Events of two keys, no two at one time: Flink's order of those is its own."""
    times = sorted(chance.sample(range(1, 200), ROWS))
    made = []
    for number, time_s in enumerate(times):
        key = chance.choice("pq")
        event = event_of(chance.choice("ABCD"), time_s, n=chance.randrange(5), k=key)
        made.append(Given(time_s * S, "", number, (key,), event))
    return made


@pytest.mark.slow
def test_flink_finds_what_the_reference_finds(flink: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cases: list[dict[str, Any]] = []
    wanted = []
    for ours, theirs, last, define in SAID * CASES:
        within_s, given = chance.randint(3, 30), happened(chance)
        pattern = Pattern(f"{ours} WITHIN {within_s} s BY k LATE 0 s")
        found = expected(pattern, given, 1 << 60)
        wanted.append(sorted([one.key[0], one.events[0][1] // 1_000, one.end // 1_000] for one in found))
        rows = [[one.time // 1_000, one.key[0], one.event.type, one.event["n"]] for one in given]
        case = {"pattern": theirs, "define": define, "within_s": within_s, "last": last}
        cases.append(case | {"rows": rows})
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"folder": str(tmp_path), "cases": cases}))
    program = [flink, str(ROOT / "tests" / "pipeline" / "flink_matching.py"), str(plan)]
    surroundings = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")
    }
    ended = subprocess.run(
        program, env=surroundings, timeout=lasting(600), check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    for case, ours_found, flink_found in zip(cases, wanted, told, strict=True):
        assert sorted(flink_found) == ours_found, case["pattern"]
    assert sum(map(len, wanted)) > len(cases)
