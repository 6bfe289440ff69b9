"""Pictures of a pipeline, as Mermaid and as SVG: its sources, histories and states, and what it publishes.

A box has the name of the table, how it is made, and the type of the events as which it is published. States
have another colour and a doubled edge. The SVG needs nothing around it, and is readable on light and dark
pages.

Its boxes lie in columns from left to right, each to the right of those before it, laid out the way of
Sugiyama, Tagawa and Toda (1981): columns by the longest way from a beginning; an arrow over several columns
gets a place in each that it crosses; the order in a column follows the mean place of the neighbours, in some
sweeps from both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from msgspec import Struct

from tidings.pipeline.plan import Plan

MARGIN = 16.0
CHARACTER, LINE, PADDING = 7.4, 17.0, 10.0
"""Width of a character, height of a line, and the room around them in a box."""
LENGTH_MAX = 36
"""Characters of a line in a box; the whole text is shown when the mouse is over it."""

_STYLE = """\
text{font:13px sans-serif;fill:#222}.name{font-weight:bold}.how{fill:#555}.out{fill:#7a5c00}
rect{stroke-width:1.5}.source rect{fill:#eee;stroke:#888}.history rect{fill:#e3f0f5;stroke:#1f6f8b}
.state rect{fill:#fbf3d9;stroke:#c9a227}.way{fill:none;stroke:#888;stroke-width:1.5}.tip{fill:#888}
@media(prefers-color-scheme:dark){text{fill:#eee}.how{fill:#bbb}.out{fill:#e6c65c}
.source rect{fill:#333;stroke:#888}.history rect{fill:#143743;stroke:#5fb3cf}
.state rect{fill:#3d330f;stroke:#c9a227}}"""

_TIP = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'


class DrawnBox(Struct, frozen=True):
    """Box of a picture."""

    name: str
    kind: str
    """source, history or state"""
    how: str
    after: tuple[str, ...] = ()
    key: str = ""
    published: str = ""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Lines in the box, each with its class."""
        out = f"published: {self.published}" if self.published else ""
        lines = (("name", self.name), ("how", self.how), ("how", self.key), ("out", out))
        return [(kind, text) for kind, text in lines if text]


def boxes(plan: Plan) -> list[DrawnBox]:
    """Return the boxes of a pipeline, each after those it is made from."""
    sources = [DrawnBox(source.name, "source", source.where) for source in plan.sources]
    steps = [
        DrawnBox(
            step.name,
            step.kind,
            step.about,
            step.arrows,
            f"by {', '.join(step.by)}" if step.by else "",
            (step.type or step.types or "by the type of each row") if step.is_published else "",
        )
        for step in plan.steps
    ]
    return sources + steps


def mermaid(plan: Plan) -> str:
    """Return the picture as a flowchart of Mermaid's."""
    found = boxes(plan)
    lines = ["flowchart LR", *(f"    {_mermaid_box(box)}" for box in found)]
    lines += [f"    {one} --> {box.name}" for box in found for one in box.after]
    lines += [f"    classDef {kind} {style}" for kind, style in _CLASSES.items()]
    return "\n".join(lines) + "\n"


_CLASSES = {"source": "stroke:#888", "history": "stroke:#1f6f8b", "state": "stroke:#c9a227"}
_SHAPES = {"source": ("[(", ")]"), "history": ("[", "]"), "state": ("[[", "]]")}


def _mermaid_box(box: DrawnBox) -> str:
    start, end = _SHAPES[box.kind]
    text = "<br>".join(_entities(text) for _, text in box.lines)
    return f'{box.name}{start}"{text}"{end}:::{box.kind}'


def _entities(text: str) -> str:
    """Return a text with Mermaid's own entities, which it needs for quotes and for `#` itself."""
    marks = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "}
    return "".join(marks.get(character, character) for character in text)


def svg(plan: Plan) -> str:
    """Return the picture as an SVG document."""
    found = boxes(plan)
    sizes = {box.name: _size(box) for box in found}
    layout = lay_out(sizes, {box.name: box.after for box in found})
    width, height = (round(part + 2 * MARGIN) for part in layout.size)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    label = escape(f"The pipeline {plan.name}", {'"': "&quot;"})
    parts = [
        f'{head} role="img" aria-label="{label}">',
        f"<style>{_STYLE}</style>",
        f'<defs><marker id="tip" {_TIP}><path class="tip" d="M0,0L8,4L0,8z"/></marker></defs>',
        f'<g transform="translate({MARGIN:g},{MARGIN:g})">',
        *_arrows(layout),
        *(part for box in found for part in _svg_box(box, layout.spots[box.name])),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _size(box: DrawnBox) -> Size:
    longest = max(len(_cut(text)) for _, text in box.lines)
    return Size(longest * CHARACTER + 2 * PADDING, len(box.lines) * LINE + 2 * PADDING)


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 1] + "…"


def _arrows(layout: Layout) -> Iterator[str]:
    """Yield the arrows: level at both ends, straight where they cross a column."""
    for points in layout.ways.values():
        path = f"M{_number(*points[0])}"
        for number, (x, y) in enumerate(points[1:]):
            before_x, before_y = points[number]
            half = (before_x + x) / 2
            crosses = number % 2 == 1
            curve = f"C{_number(half, before_y)} {_number(half, y)} {_number(x, y)}"
            path += f"L{_number(x, y)}" if crosses else curve
        yield f'<path class="way" d="{path}" marker-end="url(#tip)"/>'


def _number(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _svg_box(box: DrawnBox, spot: BoxSpot) -> Iterator[str]:
    yield f'<g class="{box.kind}"><title>{escape(" · ".join(text for _, text in box.lines))}</title>'
    yield _rect(spot, 0)
    if box.kind == "state":
        yield _rect(spot, 3)
    for number, (kind, text) in enumerate(box.lines):
        y = spot.y + PADDING + LINE * number + LINE * 0.75
        yield f'<text class="{kind}" x="{spot.x + PADDING:.1f}" y="{y:.1f}">{escape(_cut(text))}</text>'
    yield "</g>"


def _rect(spot: BoxSpot, inset: float) -> str:
    x, y = spot.x + inset, spot.y + inset
    size = f'width="{spot.width - 2 * inset:.1f}" height="{spot.height - 2 * inset:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="5"/>'


# Layered layout


SWEEPS = 8
"""Times that the order in the columns, and then the places in it, are improved."""
ACROSS, DOWN = 56.0, 22.0
"""Room between columns, and between the boxes of one."""
LANE_HEIGHT = 6.0
"""Height of the place of an arrow in a column that it crosses."""


class Size(NamedTuple):
    """Size of a box."""

    width: float
    height: float


class BoxSpot(NamedTuple):
    """Place of a box, by its upper left corner, and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Height of the middle."""
        return self.y + self.height / 2


Lane = tuple[str, str, int]
"""Arrow from one box to another, where it crosses a column."""
Place = str | Lane


class Layout(NamedTuple):
    """Spots of the boxes; of each arrow the points by which it goes; and the size of the whole."""

    spots: dict[str, BoxSpot]
    ways: dict[tuple[str, str], list[tuple[float, float]]]
    size: Size


def lay_out(sizes: Mapping[str, Size], after: Mapping[str, Sequence[str]]) -> Layout:
    """Return the places of boxes; `after` has the boxes before each, in an order that has these first."""
    columns, before = _columns(list(sizes), after)
    order = _ordered(columns, before)
    heights = {place: sizes[place].height if isinstance(place, str) else LANE_HEIGHT for place in before}
    tops = _tops(order, before, heights)
    spots: dict[Place, BoxSpot] = {}
    left = 0.0
    for column in order:
        width = max((sizes[place].width for place in column if isinstance(place, str)), default=0.0)
        for place in column:
            own = sizes[place].width if isinstance(place, str) else width
            spots[place] = BoxSpot(left, tops[place], own, heights[place])
        left += width + ACROSS
    boxes = {place: spot for place, spot in spots.items() if isinstance(place, str)}
    high = max((spot.y + spot.height for spot in spots.values()), default=0.0)
    return Layout(boxes, _ways(after, spots), Size(max(0.0, left - ACROSS), high))


def _columns(
    names: Sequence[str], after: Mapping[str, Sequence[str]]
) -> tuple[list[list[Place]], dict[Place, list[Place]]]:
    """Return the columns of boxes and lanes, and for each of these the ones directly before it."""
    depth: dict[str, int] = {}
    for name in names:
        depth[name] = max((depth[one] + 1 for one in after[name]), default=0)
    columns: list[list[Place]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    before: dict[Place, list[Place]] = {}
    for name in names:
        columns[depth[name]].append(name)
        before[name] = []
        for one in after[name]:
            last: Place = one
            for number in range(depth[one] + 1, depth[name]):
                lane = (one, name, number)
                columns[number].append(lane)
                before[lane] = [last]
                last = lane
            before[name].append(last)
    return columns, before


def _ordered(columns: list[list[Place]], before: Mapping[Place, list[Place]]) -> list[list[Place]]:
    order = [list(column) for column in columns]
    behind = _turned(before)
    for sweep in range(SWEEPS):
        is_forward = sweep % 2 == 0
        neighbours = before if is_forward else behind
        for column in order if is_forward else reversed(order):
            at = {place: number for one in order for number, place in enumerate(one)}
            column.sort(key=lambda place: _mean([at[one] for one in neighbours[place]], at[place]))
    return order


def _turned(before: Mapping[Place, list[Place]]) -> dict[Place, list[Place]]:
    behind: dict[Place, list[Place]] = {place: [] for place in before}
    for place, others in before.items():
        for other in others:
            behind[other].append(place)
    return behind


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _tops(
    order: list[list[Place]], before: Mapping[Place, list[Place]], heights: Mapping[Place, float]
) -> dict[Place, float]:
    """Return the upper edges: each box as near to the mean of its neighbours as those above it allow."""
    behind = _turned(before)
    tops: dict[Place, float] = {}
    for column in order:
        tops |= _stacked(column, heights, dict.fromkeys(column, 0.0))
    for sweep in range(SWEEPS):
        neighbours = before if sweep % 2 == 0 else behind
        for column in order if sweep % 2 == 0 else reversed(order):
            wanted = {}
            for place in column:
                middles = [tops[one] + heights[one] / 2 for one in neighbours[place]]
                wanted[place] = _mean(middles, tops[place] + heights[place] / 2) - heights[place] / 2
            tops |= _stacked(column, heights, wanted)
    least = min(tops.values(), default=0.0)
    return {place: top - least for place, top in tops.items()}


def _stacked(
    column: list[Place], heights: Mapping[Place, float], wanted: Mapping[Place, float]
) -> dict[Place, float]:
    """Return the upper edges in a column, none above the end of the one before; all moved up by the mean."""
    tops: dict[Place, float] = {}
    free = float("-inf")
    for place in column:
        tops[place] = max(wanted[place], free)
        free = tops[place] + heights[place] + DOWN
    moved = _mean([tops[place] - wanted[place] for place in column], 0.0)
    return {place: top - moved for place, top in tops.items()}


def _ways(
    after: Mapping[str, Sequence[str]], spots: Mapping[Place, BoxSpot]
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    ways = {}
    lanes = sorted((place for place in spots if not isinstance(place, str)), key=lambda lane: lane[2])
    for name, others in after.items():
        for one in others:
            start, end = spots[one], spots[name]
            points = [(start.x + start.width, start.middle)]
            for lane in lanes:
                if lane[:2] == (one, name):
                    spot = spots[lane]
                    points += [(spot.x, spot.middle), (spot.x + spot.width, spot.middle)]
            ways[one, name] = [*points, (end.x, end.middle)]
    return ways
