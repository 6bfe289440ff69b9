"""Pictures of a topology, as text and as SVG: the tree, the links that stand by, and what is cut.

Both are drawn from records and the id of the node from which the tree is seen, which is at the left. The SVG
needs nothing around it, and is readable on light and dark pages. A node that no links connect with that one
is drawn beside the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

from tidings.overlay.coordinating import Subnets
from tidings.overlay.records import NodeRecord
from tidings.overlay.tree import Edge, edges_of, spanning_tree

MARGIN = 16.0
CHARACTER, LINE, PADDING = 7.4, 17.0, 8.0
"""Width of a character, height of a line, and the room around them in a box."""
ACROSS, DOWN = 64.0, 14.0
"""Room between columns, and between the boxes of one."""
LENGTH_MAX = 28
"""Characters of a line in a box; the whole text is shown when the mouse is over it."""

LinkState = Literal["active", "stands by", "cut"]

_STYLE = """\
text{font:13px sans-serif;fill:#222}.name{font-weight:bold}.id{fill:#555;font-size:11px}
rect{fill:#e3f0f5;stroke:#1f6f8b;stroke-width:1.5}.own rect{stroke-width:3}
.leaf rect{fill:#fbf3d9;stroke:#c9a227}.lost rect{fill:#eee;stroke:#888;stroke-dasharray:5 4}
.link{fill:none;stroke-width:1.5}.active{stroke:#1f6f8b;stroke-width:2.5}.by{stroke:#888;stroke-dasharray:5 4}
.cut{stroke:#b3261e;stroke-dasharray:2 4;stroke-width:2.5}
@media(prefers-color-scheme:dark){text{fill:#eee}.id{fill:#bbb}rect{fill:#143743;stroke:#5fb3cf}
.leaf rect{fill:#3d330f;stroke:#c9a227}.lost rect{fill:#333;stroke:#888}
.active{stroke:#5fb3cf}.by{stroke:#999}.cut{stroke:#ff8a80}}"""
_CLASSES: dict[LinkState, str] = {"active": "active", "stands by": "by", "cut": "cut"}


class DrawnLink(NamedTuple):
    """Link between two nodes, the one nearer to the start of the drawing first."""

    one: str
    other: str
    since: int
    is_in_tree: bool
    is_up: bool
    weight: float | None = None

    @property
    def state(self) -> LinkState:
        """How the link stands."""
        if not self.is_up:
            return "cut"
        return "active" if self.is_in_tree else "stands by"

    @property
    def about(self) -> str:
        """How it stands and since when it is there, for people."""
        what = self.state if self.is_up or self.is_in_tree else "stands by, cut"
        weight = "" if self.weight is None else f", weighs {self.weight / 1000:g}"
        return f"{what}{weight}, established {_moment(self.since)}"


class _Picture:
    """Tree of the nodes in the order in which they are drawn, and their links."""

    def __init__(self, records: Iterable[NodeRecord], own: str) -> None:
        self.records = {record.node: record for record in records}
        self.own = own
        edges = edges_of(self.records.values())
        self.subnets = Subnets(self.records.values(), edges)
        self._tree = set(spanning_tree(edges, self.subnets.leaves))
        self._links = {
            (record.node, link.neighbour): link for record in self.records.values() for link in record.links
        }
        beside: dict[str, list[Edge]] = {node: [] for node in self.records}
        for edge in self._tree:
            beside[edge[1]].append(edge)
            beside[edge[2]].append(edge)
        self.depth: dict[str, int] = {}
        self.above: dict[str, DrawnLink] = {}
        self.below: dict[str, list[str]] = {node: [] for node in self.records}
        self.roots: list[str] = []
        self._reached: set[str] = set()
        for start in [own, *sorted(self.records, key=self._place)]:
            if start in self.records and start not in self.depth:
                self.roots.append(start)
                self._walk(start, beside)
                if start == own:
                    self._reached = set(self.depth)
        self.others = [self._link(edge, edge[1]) for edge in sorted(edges) if edge not in self._tree]

    def _place(self, node: str) -> tuple[str, str]:
        return self.records[node].name, node

    def _walk(self, start: str, beside: dict[str, list[Edge]]) -> None:
        self.depth[start] = 0
        reached = [start]
        for node in reached:  # grows while it is walked
            found = [edge for edge in beside[node] if edge[1] not in self.depth or edge[2] not in self.depth]
            ends = {edge[2] if edge[1] == node else edge[1]: edge for edge in found}
            for other in sorted(ends, key=self._place):
                self.depth[other] = self.depth[node] + 1
                self.above[other] = self._link(ends[other], node)
                self.below[node].append(other)
                reached.append(other)

    def _link(self, edge: Edge, one: str) -> DrawnLink:
        other = edge[2] if edge[1] == one else edge[1]
        ends = self._links[one, other], self._links[other, one]
        is_up = all(link.is_up for link in ends)
        since = max(link.since for link in ends)
        weight = fmean(link.weight for link in ends) if all(link.weight for link in ends) else None
        return DrawnLink(one, other, since, edge in self._tree, is_up, weight)

    def is_lost(self, node: str) -> bool:
        """Whether a node is not in the tree that is drawn first."""
        return node not in self._reached

    def title(self, node: str) -> str:
        """Name of a node, with its id where others have the name."""
        record = self.records[node]
        names = [one.name for one in self.records.values()].count(record.name)
        return record.name if record.name and names == 1 else f"{record.name} ({node})".strip()


def text(records: Iterable[NodeRecord], own: str) -> str:
    """Return the tree as lines of text, with the links that stand by below it."""
    picture = _Picture(records, own)
    lines: list[str] = []
    for root in picture.roots:
        lines += _tree_lines(picture, root)
    if picture.others:
        lines += ["", "beside the tree:"]
        lines += [
            f"  {picture.title(link.one)} – {picture.title(link.other)}: {link.about}"
            for link in picture.others
        ]
    return "\n".join(lines) + "\n"


def _tree_lines(picture: _Picture, root: str) -> Iterator[str]:
    """Yield the lines of a tree; a stack and no recursion, since a line of nodes may be long."""
    waiting: list[tuple[str, str, str]] = [(root, "", "")]
    while waiting:
        node, lead, branch = waiting.pop()
        link = picture.above.get(node)
        marks = [
            " (this node)" if node == picture.own else "",
            " (leaf)" if node in picture.subnets.leaves else "",
            f" (coordinator of {members})" if (members := picture.subnets.members[node]) else "",
        ]
        if link is None and picture.is_lost(node):
            marks.append(" (out of reach)")
        about = "" if link is None else f": {link.about}"
        yield f"{lead}{branch}{picture.title(node)}{''.join(marks)}{about}"
        inner = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        below = picture.below[node]
        waiting += [(one, inner, "└─ " if one == below[-1] else "├─ ") for one in reversed(below)]


def svg(records: Iterable[NodeRecord], own: str) -> str:
    """Return the tree as an SVG document: columns by the distance from a node, and other links as arcs."""
    picture = _Picture(records, own)
    spots = _spots(picture)
    width = max((spot.x + spot.width for spot in spots.values()), default=0.0) + 2 * MARGIN
    bulge = max((_bulge(spots, link) for link in picture.others), default=0.0)
    height = max((spot.y + spot.height for spot in spots.values()), default=0.0) + 2 * MARGIN + LINE + DOWN
    links = [*picture.others, *picture.above.values()]
    size = f'viewBox="0 0 {width + bulge:.0f} {height:.0f}" width="{width + bulge:.0f}"'
    head = '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="The topology of the overlay"'
    parts = [
        f"{head} {size}>",
        f"<style>{_STYLE}</style>",
        f'<g transform="translate({MARGIN:g},{MARGIN:g})">',
        *(_svg_link(picture, spots, link) for link in links),
        *(part for node, spot in spots.items() for part in _svg_box(picture, node, spot)),
        *_legend(height - 2 * MARGIN - LINE / 2),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


class _Spot(NamedTuple):
    """Place of a box, by its upper left corner, and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def _spots(picture: _Picture) -> dict[str, _Spot]:
    """Return the places of the nodes: those at the ends below each other, others in the middle of theirs."""
    height = 2 * LINE + 2 * PADDING
    widths: dict[int, float] = {}
    for node, depth in picture.depth.items():
        widths[depth] = max(widths.get(depth, 0.0), _width(picture, node))
    left = [sum(widths[one] + ACROSS for one in range(depth)) for depth in range(len(widths))]
    tops: dict[str, float] = {}
    free = 0.0
    order = [node for root in picture.roots for node in _from_the_top(picture, root)]
    for node in order:
        if not picture.below[node]:
            tops[node], free = free, free + height + DOWN
    for node in reversed(order):
        if picture.below[node]:
            tops[node] = (tops[picture.below[node][0]] + tops[picture.below[node][-1]]) / 2
    return {
        node: _Spot(left[picture.depth[node]], tops[node], _width(picture, node), height) for node in order
    }


def _from_the_top(picture: _Picture, root: str) -> Iterator[str]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(picture.below[node])


def _width(picture: _Picture, node: str) -> float:
    record = picture.records[node]
    return max(len(_cut(record.name)) * CHARACTER * 1.1, len(_cut(node)) * CHARACTER) + 2 * PADDING


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH_MAX else text[: LENGTH_MAX - 1] + "…"


def _svg_link(picture: _Picture, spots: dict[str, _Spot], link: DrawnLink) -> str:
    one, other = spots[link.one], spots[link.other]
    start = one.x + one.width
    if link.is_in_tree:
        half = (start + other.x) / 2
        path = (
            f"M{_point(start, one.middle)}C{_point(half, one.middle)} {_point(half, other.middle)} "
            f"{_point(other.x, other.middle)}"
        )
    else:
        end = other.x + other.width
        out = max(start, end) + _bulge(spots, link)
        path = (
            f"M{_point(start, one.middle)}C{_point(out, one.middle)} {_point(out, other.middle)} "
            f"{_point(end, other.middle)}"
        )
    title = escape(f"{picture.title(link.one)} – {picture.title(link.other)}: {link.about}")
    return f'<path class="link {_CLASSES[link.state]}" d="{path}"><title>{title}</title></path>'


def _bulge(spots: dict[str, _Spot], link: DrawnLink) -> float:
    """Return how far an arc beside the tree goes to the right of both its ends."""
    return 24.0 + min(80.0, abs(spots[link.one].middle - spots[link.other].middle) / 4)


def _point(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _svg_box(picture: _Picture, node: str, spot: _Spot) -> Iterator[str]:
    record = picture.records[node]
    marks = {
        "own": node == picture.own,
        "leaf": node in picture.subnets.leaves,
        "lost": picture.is_lost(node),
    }
    kind = " ".join(["node", *(mark for mark, is_set in marks.items() if is_set)])
    about = " · ".join(part for part in (record.name, node, record.address) if part)
    yield f'<g class="{kind}"><title>{escape(about)}</title>'
    size = f'width="{spot.width:.1f}" height="{spot.height:.1f}"'
    yield f'<rect x="{spot.x:.1f}" y="{spot.y:.1f}" {size} rx="5"/>'
    for number, (style, line) in enumerate((("name", record.name), ("id", node))):
        y = spot.y + PADDING + LINE * number + LINE * 0.75
        yield f'<text class="{style}" x="{spot.x + PADDING:.1f}" y="{y:.1f}">{escape(_cut(line))}</text>'
    yield "</g>"


def _legend(y: float) -> Iterator[str]:
    x = 0.0
    for state, style in _CLASSES.items():
        yield f'<path class="link {style}" d="M{_point(x, y)}L{_point(x + 30, y)}"/>'
        yield f'<text x="{x + 36:.1f}" y="{y + 4:.1f}">{state}</text>'
        x += 60 + len(state) * CHARACTER


def _moment(since: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
