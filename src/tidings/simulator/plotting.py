"""Plots of experiments as SVG, written by hand: lines with bounds that hold with 95 %.

A scale is logarithmic if its values are positive and spread by more than a factor of 20.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import NamedTuple
from xml.sax.saxutils import escape

from tidings.simulator.experiments import Estimate, Row, series

WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 150.0, 36.0, 46.0
COLOURS = ("#1f6f8b", "#c9a227", "#b3261e", "#5b8c3a", "#7a4fa3", "#8c8c8c")
SPREAD = 20
"""Factor between values from which on a scale is logarithmic."""
TICKS = 5

_STYLE = """\
text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.axis{stroke:#888}
.grid{stroke:#ddd}path{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#eee}.grid{stroke:#444}}"""


class _Scale(NamedTuple):
    """Places of values between two points of the picture."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = log10(low), log10(high), log10(max(value, self.low))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Return the values that are written at the scale."""
        if self.is_log:
            return [10.0**power for power in range(round(log10(self.low)), round(log10(self.high)) + 1)]
        return [self.low + (self.high - self.low) * number / TICKS for number in range(TICKS + 1)]


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    low, high = min(values), max(values)
    if low > 0 and high / low > SPREAD:
        return _Scale(10.0 ** floor(log10(low)), 10.0 ** ceil(log10(high)), start, end, is_log=True)
    low = min(low, 0.0)
    step = 10.0 ** floor(log10(max(high - low, 1e-9)))
    return _Scale(low, max(ceil(high / step) * step, low + step), start, end, is_log=False)


def plot_svg(rows: Sequence[Row], x: str, y: str, by: str | None = None) -> str:
    """Return a plot of a figure over a parameter, with a line for each value of another."""
    lines = list(series(rows, x, y, by))
    points = [one for _, found in lines for one in found]
    across = _scale([float(one.point[x]) for one in points] or [1.0], LEFT, WIDTH - RIGHT)
    up = _scale(
        [value for one in points for value in (one.low, one.mean, one.high)] or [1.0], HEIGHT - BOTTOM, TOP
    )
    title = y if by is None else f"{y} by {by}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}"'
    parts = [
        f'{head} viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{LEFT:g}" y="20">{escape(title)}</text>',
        *_axes(across, up, x),
    ]
    for number, (name, found) in enumerate(lines):
        parts += _line(name, found, across, up, x, number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(across: _Scale, up: _Scale, x: str) -> Iterator[str]:
    for value in up.ticks():
        y = up.place(value)
        yield f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{_text(value)}</text>'
    for value in across.ticks():
        place = across.place(value)
        yield f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18:g}" text-anchor="middle">{_text(value)}</text>'
    yield (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 8:g}" text-anchor="middle">'
        f"{escape(x)}{' (logarithmic)' if across.is_log else ''}</text>"
    )


def _line(
    name: str, found: Sequence[Estimate], across: _Scale, up: _Scale, x: str, number: int
) -> Iterator[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(across.place(float(one.point[x])), one) for one in found]
    path = " ".join(f"{at:.1f},{up.place(one.mean):.1f}" for at, one in places)
    yield f'<path stroke="{colour}" d="M{path.replace(" ", " L")}"/>'
    for at, one in places:
        about = f"{name} {x}={one.point[x]}: {one.mean:.6g}, {one.low:.6g} to {one.high:.6g}, {one.runs} runs"
        yield (
            f'<g stroke="{colour}" fill="{colour}"><title>{escape(about.strip())}</title>'
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{up.place(one.low):.1f}" y2="{up.place(one.high):.1f}"/>'
            f'<circle cx="{at:.1f}" cy="{up.place(one.mean):.1f}" r="3"/></g>'
        )
    if name and places:
        y = TOP + 18 * number + 12
        yield f'<rect x="{WIDTH - RIGHT + 12:g}" y="{y - 9:g}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{WIDTH - RIGHT + 28:g}" y="{y:g}">{escape(name)}</text>'


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
