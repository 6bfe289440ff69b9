"""Draw the figures in benchmarks/results as bars, ours beside the target and the peers.

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
COLOURS["rabbitmq"] = "#b5b5b5"
WIDTH, LABEL, BAR, GAP = 860, 300, 13, 12


class Bar(NamedTuple):
    """One bar of a group."""

    who: str
    value: float


Group = tuple[str, list[Bar]]


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
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif"'
    caption = f'<text x="10" y="20" font-size="14">{escape(title)} ({escape(unit)}, logarithmic)</text>'
    body = "\n".join(
        [f'{head} font-size="11">', '<rect width="100%" height="100%" fill="white"/>', caption, *lines]
    )
    path.write_text(body + "\n</svg>\n")


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


def main() -> None:
    """Draw what there are figures of."""
    PICTURES.mkdir(exist_ok=True)
    for name, groups_of, title, unit in (
        ("matching", matching, "Matching one event", "µs, less is better"),
        ("node", rates, "Through a node", "events a second, more is better"),
        ("queue", rates, "Put into a queue, stored and got", "messages a second, more is better"),
    ):
        file = RESULTS / f"{name}.json"
        if file.exists():
            draw(title, unit, groups_of(json.loads(file.read_text())), PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
