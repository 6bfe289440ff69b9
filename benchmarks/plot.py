"""Draw the figures in benchmarks/results: as bars, ours beside the target and the peers, or as lines.

The pictures are SVG, written by hand: no package is needed, and two runs can be compared line by line.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
COLOURS = {
    "tidings": "#1f6f8b",
    "target": "#c9a227",
    "nats": "#8c8c8c",
    "mosquitto": "#b5b5b5",
    "redis": "#d0d0d0",
}
COLOURS["closures"] = COLOURS["activemq"] = "#8c8c8c"
COLOURS["before"] = COLOURS["rabbitmq"] = "#b5b5b5"
COLOURS["a source that does nothing"] = "#8c8c8c"
COLOURS["one node"] = COLOURS["one server"] = "#8c8c8c"
COLOURS["two nodes"] = COLOURS["hub and leaf"] = COLOURS["TLS"] = COLOURS["rule"] = COLOURS["tidings"]
WIDTH, LABEL, BAR, GAP = 860, 300, 13, 12
HEIGHT = 360
IN_2011 = {1: 110_000, 10: 43_000}
"""Messages a second of the original, by the readings of a message; on a machine of its time."""


class Bar(NamedTuple):
    """One bar of a group."""

    who: str
    value: float


Group = tuple[str, list[Bar]]
Point = tuple[float, float]


def draw(title: str, unit: str, groups: list[Group], path: Path) -> None:
    """Write groups of bars on a logarithmic scale."""
    values = [bar.value for _, bars in groups for bar in bars]
    low, high = math.log10(min(values)) - 0.3, math.log10(max(values))
    lines, y = [], 40
    for name, bars in groups:
        lines.append(f'<text x="{LABEL - 10}" y="{y + 10}" text-anchor="end">{escape(name)}</text>')
        for bar in bars:
            length = (WIDTH - LABEL - 150) * (math.log10(bar.value) - low) / (high - low)
            fill = COLOURS.get(bar.who, "#999")
            lines.append(f'<rect x="{LABEL}" y="{y}" width="{length:.0f}" height="{BAR}" fill="{fill}"/>')
            value = f"{bar.value:,.0f}" if bar.value >= 1000 else f"{bar.value:.4g}"
            lines.append(f'<text x="{LABEL + length + 6:.0f}" y="{y + 10}">{bar.who} {value}</text>')
            y += BAR + 3
        y += GAP
    caption = f'<text x="10" y="20" font-size="14">{escape(title)} ({escape(unit)}, logarithmic)</text>'
    path.write_text(_svg(y, [caption, *lines]))


def _svg(height: int, lines: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif"'
    )
    body = [f'{head} font-size="11">', '<rect width="100%" height="100%" fill="white"/>', *lines]
    return "\n".join(body) + "\n</svg>\n"


def matching(figures: dict[str, Any]) -> list[Group]:
    """Microseconds an event, by workload."""
    groups = []
    for one in figures["workloads"]:
        if "us_per_event" in one:
            bars = [Bar("tidings", one["us_per_event"])]
            bars += [Bar("target", one["target_us"])] if one.get("target_us") else []
            bars += [Bar("closures", one["reference_us_extrapolated"])] if "times_faster" in one else []
            groups.append((f"{one['name']}, {one['filters']:,} filters", bars))
    return groups


def rates(figures: dict[str, Any]) -> list[Group]:
    """Events or messages a second, by workload."""
    groups = []
    for one in figures["workloads"]:
        if one["unit"].endswith("s/s"):
            bars = [Bar("tidings", one["value"])]
            bars += [Bar("target", one["target"])] if one["target"] else []
            bars += [Bar(who, value) for who, value in one["beside"].items()]
            groups.append((one["name"], bars))
    return groups


def secured(figures: dict[str, Any]) -> list[Group]:
    """Events or messages a second: the two that a ratio is of, or what went to another node."""
    groups = [
        (one["name"], [Bar(who, value) for who, value in one["beside"].items()])
        for one in figures["workloads"]
        if one["unit"].startswith("×")
    ]
    return groups + rates(figures)


def linked(figures: dict[str, Any]) -> list[Group]:
    """Events a second: the two that each ratio is of."""
    return [
        (one["name"], [Bar(who.removesuffix(", events/s"), rate) for who, rate in one["beside"].items()])
        for one in figures["workloads"]
        if one["unit"] == "×" and all(who.endswith("events/s") for who in one["beside"])
    ]


def gateway(figures: dict[str, Any]) -> list[Group]:
    """Messages or readings a second, and those of a broker that was fed the same."""
    groups = [group for group in rates(figures) if not group[0].endswith("the most")]
    for one in figures["workloads"]:
        if one["unit"] == "× Mosquitto":
            names = {"messages/s": "tidings", "mosquitto": "mosquitto"}
            bars = [Bar(who, one["beside"][name]) for name, who in names.items()]
            groups.append((one["name"], bars))
    return groups


def fair(figures: dict[str, Any]) -> list[Group]:
    """The canary's longest round trip of each row, beside the goal and what it was before."""
    before = {(one["row"], one["secured"]): one for one in _before()}
    groups = []
    for one in figures["rows"]:
        name = f"{one['row']}{', users' * one['secured']}"
        bars = [Bar("tidings", 1e3 * one["longest_s"]), Bar("target", figures["goals"]["longest_ms"])]
        old = before.get((one["row"], one["secured"]))
        groups.append((name, bars if old is None else [*bars, Bar("before", 1e3 * old["longest_s"])]))
    return groups


def _before() -> list[dict[str, Any]]:
    """The rows as they were before shares were fair."""
    file = RESULTS / "fair-before.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


class Chart:
    """Straight axes from nothing to the most there is, for lines."""

    def __init__(self, most_x: float, most_y: float) -> None:
        self._most_x = most_x
        self._most_y = most_y

    def place(self, point: Point) -> tuple[int, int]:
        """Where a point is in the picture."""
        x, y = point[0] / self._most_x, point[1] / self._most_y
        return round(80 + (WIDTH - 130) * x), round(HEIGHT - 45 - (HEIGHT - 90) * y)

    def line(self, points: list[Point], colour: str, dashes: str = "none") -> str:
        """Points joined by a line."""
        where = " ".join(f"{x},{y}" for x, y in map(self.place, points))
        look = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        return f'<polyline points="{where}" fill="none" {look}/>'

    def axes(self) -> list[str]:
        """Both axes, the upright one with numbers."""
        lines = [self.line([(0, self._most_y), (0, 0), (self._most_x, 0)], "#444")]
        for part in range(5):
            value = self._most_y * part / 4
            x, y = self.place((0, value))
            lines.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{value:,.0f}</text>')
        return lines

    def dot(self, point: Point, colour: str) -> str:
        """A point, and its number below the axis."""
        x, y = self.place(point)
        number = f'<text x="{x}" y="{HEIGHT - 28}" text-anchor="middle">{point[0]}</text>'
        return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>{number}'


def draw_curve(title: str, points: list[Point], rate: int, before: int, path: Path) -> None:
    """Write what arrived over the number of connections, with what was sent, and what there was before."""
    most_x = max(x for x, _ in points)
    chart = Chart(most_x, max(rate * most_x, before))
    ours, sent, past = COLOURS["tidings"], COLOURS["nats"], COLOURS["target"]
    lines = [
        f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
        *chart.axes(),
        chart.line([(0, 0), (most_x, rate * most_x)], sent, "2 4"),
        chart.line([(0, before), (most_x, before)], past, "8 4"),
        chart.line(points, ours),
        *(chart.dot(point, ours) for point in points),
        f'<text x="{WIDTH // 2}" y="{HEIGHT - 8}" text-anchor="middle">connections</text>',
    ]
    names = (("arrived", ours), ("sent", sent), (f"the most in 2011: {before:,}", past))
    for number, (name, colour) in enumerate(names):
        lines.append(f'<text x="100" y="{45 + 16 * number}" fill="{colour}">{name}</text>')
    path.write_text(_svg(HEIGHT, lines))


def curves(figures: dict[str, Any]) -> None:
    """The two figures of the original's evaluation: messages a second over the number of connections."""
    for curve in figures["curves"]:
        points = [(point["connections"], point["messages"]) for point in curve["points"]]
        what = "one reading" if curve["readings"] == 1 else f"{curve['readings']} readings"
        title = f"Messages/s of {what} over connections that send {curve['rate']:,} messages/s each"
        path = PICTURES / f"gateway-{curve['readings']}.svg"
        draw_curve(title, points, curve["rate"], IN_2011[curve["readings"]], path)


def main() -> None:
    """Draw what there are figures of."""
    PICTURES.mkdir(exist_ok=True)
    if (RESULTS / "gateway.json").exists():
        curves(json.loads((RESULTS / "gateway.json").read_text()))
    for name, groups_of, title, unit in (
        ("matching", matching, "Matching one event", "µs, less is better"),
        ("node", rates, "Through a node", "events a second, more is better"),
        ("queue", rates, "Put into a queue, stored and got", "messages a second, more is better"),
        ("gateway", gateway, "Through a gateway", "a second, more is better"),
        ("pipeline", rates, "The log, and Spark that reads it", "a second, more is better"),
        ("fair", fair, "The longest that a good client waits for an answer", "ms, less is better"),
        ("overlay", linked, "Through two nodes in line, and through one", "events a second, more is better"),
        ("secure", secured, "With TLS, with rules, and to another node", "a second, more is better"),
    ):
        file = RESULTS / f"{name}.json"
        if file.exists():
            draw(title, unit, groups_of(json.loads(file.read_text())), PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
