"""Picture of one network: its tree, after the weights of links have changed, and after a node has died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from xml.sax.saxutils import escape

from tidings.overlay.tree import Edge, spanning_tree
from tidings.simulator.overlay_costs import (
    Place,
    build,
    edges_of_graph,
    random_network,
    reweighed,
    switch,
)
from tidings.simulator.record_costs import Graph
from tidings.simulator.repair_costs import SMALLEST, Repair, repair

SIDE, MARGIN, LINE = 360.0, 24.0, 17.0
NAMED_MAX = 40
"""Nodes up to which their names are written."""

_STYLE = """\
text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.name{font-size:9px}
line{stroke:#bbb;stroke-width:1}.tree{stroke:#1f6f8b;stroke-width:2.5}.new{stroke:#c9a227;stroke-width:3}
circle{fill:#1f6f8b}.dead{fill:#b3261e}
@media(prefers-color-scheme:dark){text{fill:#eee}line{stroke:#555}.tree{stroke:#5fb3cf}.new{stroke:#e0bd4a}
circle{fill:#5fb3cf}}"""


def overlay_picture(seed: int, nodes: int, degree: int = 4) -> str:
    """Build a tree by messages, switch to that of other weights, let a node die; return an SVG of it."""
    random = Random(seed)
    graph, places = random_network(random, nodes, degree)
    built = build(graph, seed)
    before = spanning_tree(edges_of_graph(graph))
    later = reweighed(random, graph)
    switched = switch(later, before, seed)
    after = spanning_tree(edges_of_graph(later))
    repaired = repair(graph, seed) if nodes >= SMALLEST else None
    panels = 2 if repaired is None else 3
    lines = max(len(built.sent), len(switched.sent)) + 2
    width, height = panels * SIDE + (panels + 1) * MARGIN, SIDE + 3 * MARGIN + lines * LINE
    old = {edge[1:] for edge in before}
    head = '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Trees of an overlay"'
    parts = [
        f'{head} viewBox="0 0 {width:g} {height:g}" width="{width:g}">',
        f"<style>{_STYLE}</style>",
        *_panel("tree before", MARGIN, graph, places, before, old),
        *_panel("tree after (new links in yellow)", SIDE + 2 * MARGIN, later, places, after, old),
        *_messages("messages that built the first tree", MARGIN, built.sent),
        *_messages("messages of the switch in five steps", SIDE + 2 * MARGIN, switched.sent),
        *([] if repaired is None else _repaired(repaired, graph, places)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _repaired(found: Repair, graph: Graph, places: Mapping[str, Place]) -> Iterator[str]:
    """Yield the tree after the death of a node, and the messages of that."""
    left = 2 * SIDE + 3 * MARGIN
    known = {edge[1:] for edge in found.before}
    title = f"tree after the death of {int(found.dead[1:])} (new links in yellow)"
    yield from _panel(title, left, graph, places, found.after, known, found.dead)
    yield from _messages("messages of the repair", left, found.sent)


def _panel(
    title: str,
    left: float,
    graph: Graph,
    places: Mapping[str, Place],
    tree: Iterable[Edge],
    known: set[tuple[str, str]],
    dead: str = "",
) -> Iterator[str]:
    yield f'<text class="title" x="{left:g}" y="{MARGIN - 8:g}">{escape(title)}</text>'
    spots = {name: (left + SIDE * x, MARGIN + SIDE * y) for name, (x, y) in places.items()}
    used = {edge[1:] for edge in tree}
    links = [edge for edge in edges_of_graph(graph) if dead not in edge[1:]]
    for weight, one, two in sorted(links, key=lambda edge: edge[1:] in used):
        style = ("tree" if (one, two) in known else "new") if (one, two) in used else "standby"
        (x1, y1), (x2, y2) = spots[one], spots[two]
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        yield f'<line class="{style}" {ends}><title>{one} – {two}: weighs {weight}</title></line>'
    for name, (x, y) in spots.items():
        style = ' class="dead"' if name == dead else ""
        yield f'<circle{style} cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{name}</title></circle>'
        if len(spots) <= NAMED_MAX:
            yield f'<text class="name" x="{x + 4:.1f}" y="{y - 3:.1f}">{int(name[1:])}</text>'


def _messages(title: str, left: float, sent: Counter[str]) -> Iterator[str]:
    top = SIDE + 2 * MARGIN + LINE
    yield f'<text class="title" x="{left:g}" y="{top:g}">{escape(title)}</text>'
    for number, (kind, count) in enumerate([*sorted(sent.items()), ("all", sent.total())], 1):
        yield f'<text x="{left:g}" y="{top + number * LINE:g}">{escape(kind)}</text>'
        yield f'<text x="{left + 180:g}" y="{top + number * LINE:g}" text-anchor="end">{count:,}</text>'
