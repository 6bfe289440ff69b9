"""A figure: what was measured, beside what, its target and the verdict."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Report = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """One measured value; `target` is None where there is none, or where what it refers to is missing."""

    name: str
    unit: str
    value: float
    target: float | None
    beside: dict[str, float]
    less_is_better: bool = False
    rate: int | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached, if there is one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.less_is_better else self.value >= self.target

    @property
    def line(self) -> str:
        """The figure as a line of a table."""
        others = "".join(f", {name} {_text(value)}" for name, value in self.beside.items())
        verdict = ""
        if self.target is not None:
            verdict = f"; target {_text(self.target)} {'reached' if self.reached else 'MISSED'}"
        return f"{self.name:60s} {_text(self.value):>9s} {self.unit}{others}{verdict}"

    def as_dict(self) -> dict[str, Any]:
        """The figure for JSON."""
        found: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "value": _rounded(self.value),
            "target": None if self.target is None else _rounded(self.target),
            "reached": self.reached,
            "beside": {name: _rounded(value) for name, value in self.beside.items()},
        }
        return found if self.rate is None else found | {"rate": self.rate}


def gather(measured: Iterable[Figure], facts: dict[str, Any], report: Report) -> dict[str, Any]:
    """All figures with the facts of their run and of the machine, for JSON; each is told when measured."""
    facts = {**facts, "machine": machine()}
    figures = []
    for figure in measured:
        report(figure.line)
        figures.append(figure)
    missed = [figure.name for figure in figures if figure.reached is False]
    report(f"missed: {', '.join(missed)}" if missed else "every target reached")
    return {**facts, "workloads": [figure.as_dict() for figure in figures]}


def machine() -> dict[str, Any]:
    """What a run was made with, and how busy it was before."""
    return {
        "python": platform.python_version(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": [round(one, 1) for one in os.getloadavg()],
    }


def _rounded(value: float) -> float:
    return round(value) if value >= 1000 else float(f"{value:.4g}")


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def processor() -> str:
    """What the machine says its processor is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
