"""Experiments: grids, rows that are written as they come, estimates and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

import pytest

from tidings.errors import UserError
from tidings.simulator.experiments import (
    parse_grid,
    read_rows,
    run_experiment,
    student,
    summary,
    tasks_of,
)
from tidings.simulator.plotting import plot_svg

ran: list[tuple[int, int, str]] = []


def dice(
    seed: int, *, sides: int = 6, colour: Literal["red", "blue"] = "red", loaded: bool = False
) -> dict[str, float]:
    """Throw dice."""
    ran.append((seed, sides, colour))
    assert seed != 13, "an unlucky seed"
    return {"sum": sides * (seed + 1) + loaded, "half": sides / 2}


def test_a_grid_has_all_combinations_with_values_of_the_right_types() -> None:
    assert parse_grid(dice, ["sides=6,8", "colour=red,blue"]) == [
        {"sides": 6, "colour": "red"},
        {"sides": 6, "colour": "blue"},
        {"sides": 8, "colour": "red"},
        {"sides": 8, "colour": "blue"},
    ]
    assert parse_grid(dice, ["loaded=true"]) == [{"loaded": True}]
    assert parse_grid(dice, []) == [{}]


@pytest.mark.parametrize("text", ["sides", "sides=", "sides=six", "colour=green", "seed=1", "faces=6", ""])
def test_a_grid_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--grid"):
        parse_grid(dice, [text])


def test_a_grid_has_a_limit() -> None:
    many = ",".join(map(str, range(200)))
    with pytest.raises(UserError, match="40000 points"):
        parse_grid(two_numbers, [f"one={many}", f"two={many}"])


def two_numbers(seed: int, *, one: int = 0, two: int = 0) -> dict[str, float]:
    return {"sum": seed + one + two}


def test_rows_are_written_as_they_come_and_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    ran.clear()
    points = parse_grid(dice, ["sides=6,8"])
    rows = run_experiment(dice, points, 2, 0, tmp_path)
    assert rows == [
        {"sides": 6, "seed": 0, "sum": 6, "half": 3.0, "error": None},
        {"sides": 8, "seed": 0, "sum": 8, "half": 4.0, "error": None},
        {"sides": 6, "seed": 1, "sum": 12, "half": 3.0, "error": None},
        {"sides": 8, "seed": 1, "sum": 16, "half": 4.0, "error": None},
    ]
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    tasks_of(points, 1, 1)[0].path(tmp_path, dice).unlink()
    assert run_experiment(dice, points, 2, 0, tmp_path) == rows
    assert ran[4:] == [(1, 6, "red")]


def test_a_seed_that_fails_is_a_row(tmp_path: Path) -> None:
    rows = run_experiment(dice, [{"sides": 6}], 2, 13, tmp_path)
    assert rows[0]["error"].startswith("AssertionError: an unlucky seed")
    assert rows[1]["error"] is None
    assert read_rows(dice, tasks_of([{"sides": 6}], 2, 13), tmp_path) == rows
    assert [one.runs for one in summary(rows, "sum", ["sides"])] == [1]


def test_an_estimate_has_the_bounds_of_student() -> None:
    rows = [{"sides": 6, "sum": value, "error": None} for value in (10, 12, 14)]
    (one,) = summary(rows, "sum", ["sides"])
    assert (one.runs, one.mean) == (3, 12)
    assert one.high - one.mean == pytest.approx(4.30 * 2 / 3**0.5)
    assert [student(freedom) for freedom in (1, 10, 12, 15, 40, 1000)] == [
        12.71,
        2.23,
        2.23,
        2.13,
        2.04,
        2.00,
    ]


def test_a_plot_has_a_line_with_bounds_for_each_value_of_a_parameter(tmp_path: Path) -> None:
    rows = run_experiment(dice, parse_grid(dice, ["sides=1,10,1000", "colour=red,blue"]), 3, 0, tmp_path)
    picture = ET.fromstring(plot_svg(rows, "sides", "sum", "colour"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{space}path")) == 2
    assert len(picture.findall(f"{space}g")) == 6
    titles = [title.text or "" for title in picture.iter(f"{space}title")]
    assert titles[1].startswith("red sides=10: 20, -4.826")
    assert {"red", "blue", "1,000", "sides (logarithmic)"} <= {
        text.text for text in picture.iter(f"{space}text")
    }


def test_a_plot_of_nothing_is_a_picture_all_the_same() -> None:
    ET.fromstring(plot_svg([], "sides", "sum"))
