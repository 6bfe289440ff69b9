#!/usr/bin/env python3
"""Draw the diagrams of the documents as SVG: layers, a tick with its commit, a message's life, the city.

The declarative project of the city, in `pipelines/city`, is written with them.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from tidings.pipeline.city.pipeline import CITY
from tidings.pipeline.drawing import svg
from tidings.pipeline.project import project_files, write_files

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
PROJECT = Path(__file__).parents[1] / "pipelines" / "city"
STORAGE = "file:///var/tmp/tidings-city"
BLUE, SAND, GREY = "#1f6f8b", "#c9a227", "#6b6b6b"
SVG = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" role="img"'
TIP = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
LINE = f'fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#tip)"'
LAYERS = (
    ("programs", "cli · testing (pytest)"),
    ("for applications", "client · pipeline (Spark)"),
    ("drivers of the cores", "node (asyncio) · simulator (virtual time)"),
    ("other nodes and devices", "peers · postgres · sensors"),
    ("services of the broker", "queues · log · gateway · security · transport"),
    ("the broker", "exchange · protocol · store"),
    ("interest", "interest"),
    ("matching", "matching"),
    ("filters", "filters"),
    (
        "ground",
        "event · ids · clocks · errors · replies · steps · turns · timers · backoff · seen · numbered · …",
    ),
)


class Picture:
    """An SVG drawing, of boxes, arrows and texts."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg {SVG} viewBox="0 0 {width} {height}" width="{width}" aria-label="{escape(title)}">',
            f'<defs><marker id="tip" {TIP}><path d="M0,0L8,4L0,8z" fill="{GREY}"/></marker></defs>',
            '<rect width="100%" height="100%" rx="8" fill="white"/>',
        ]

    def text(self, x: float, y: float, text: str, anchor: str = "start", fill: str = "#222") -> None:
        """Write a line."""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, *lines: str, fill: str = BLUE) -> None:
        """Draw a box with lines of text in its middle."""
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}"/>')
        first = y + height / 2 + 4.5 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 16 * number, line, "middle", "white")

    def arrow(self, *points: tuple[float, float], text: str = "", at: tuple[float, float] = (0, 0)) -> None:
        """Draw an arrow along these points, with a text at a place."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" {LINE}/>')
        if text:
            self.text(*at, text, "middle", GREY)

    def save(self, name: str) -> None:
        """Write the file."""
        (PICTURES / name).write_text("\n".join([*self._parts, "</svg>\n"]))


def layers() -> None:
    """Draw which packages may import which: each only what lies below."""
    picture = Picture(860, 40 * len(LAYERS) + 50, "The layers of tidings")
    for number, (what, packages) in enumerate(LAYERS):
        y = 15 + 40 * number
        picture.text(15, y + 20, what, fill=GREY)
        picture.box(185, y, 660, 32, packages, fill=BLUE if number < 6 else SAND if number < 9 else GREY)
    y = 15 + 40 * len(LAYERS) + 18
    picture.text(
        15, y, "A package imports only what lies below it. Cores do no I/O; drivers carry out their effects."
    )
    picture.save("layers.svg")


def tick() -> None:
    """Draw one tick: what arrives, what is stored, and which frames wait for that."""
    picture = Picture(860, 300, "A tick, its commit and marks")
    for y, who in ((50, "connections"), (130, "broker (loop)"), (230, "store (thread)")):
        picture.text(15, y + 5, who, fill=GREY)
    picture.box(140, 30, 130, 40, "frames arrive", fill=GREY)
    picture.box(300, 110, 170, 44, "tick 7: match, deliver,", "operations for the store")
    picture.box(500, 110, 150, 44, "tick 8 goes on", "meanwhile")
    picture.box(500, 208, 165, 44, "commit 7: one", "transaction, one fsync", fill=SAND)
    picture.box(680, 110, 165, 44, "mark 7 is durable:", "outboxes let go", fill=SAND)
    picture.box(680, 30, 165, 40, "ACCEPTED, DELIVER", fill=GREY)
    picture.arrow((270, 50), (330, 50), (330, 108))
    picture.arrow((385, 154), (385, 230), (498, 230), text="operations, mark 7", at=(442, 248))
    picture.arrow((470, 132), (498, 132))
    picture.arrow((665, 230), (760, 230), (760, 156))
    picture.arrow((762, 110), (762, 72))
    picture.arrow((430, 110), (430, 50), (678, 50), text="transient events leave at once", at=(555, 42))
    picture.text(
        15,
        285,
        "A frame that promises something waits in its outbox for its mark, and those behind it wait with it.",
    )
    picture.save("tick.svg")


def message() -> None:
    """Draw the states of a message in a queue."""
    picture = Picture(860, 300, "The life of a message")
    picture.box(20, 100, 110, 44, "put", "(stored)", fill=GREY)
    picture.box(220, 100, 130, 44, "on the shelf", "(waits)")
    picture.box(470, 100, 130, 44, "in flight", "(one reader)")
    picture.box(720, 30, 120, 40, "acknowledged", fill=GREY)
    picture.box(720, 210, 120, 40, "dead letter", fill=SAND)
    picture.box(220, 210, 130, 40, "expired, purged", fill=GREY)
    picture.arrow((130, 122), (218, 122), text="accepted", at=(174, 114))
    picture.arrow((350, 112), (468, 112), text="get", at=(410, 104))
    picture.arrow((470, 134), (352, 134), text="release · lease ends · reader dies", at=(410, 162))
    picture.arrow((600, 112), (660, 112), (660, 50), (718, 50), text="acknowledge", at=(655, 40))
    picture.arrow((600, 134), (660, 134), (660, 222), (718, 222), text="reject", at=(690, 214))
    picture.arrow((285, 144), (285, 208), text="ttl_s", at=(305, 182))
    picture.arrow((520, 144), (520, 240), (718, 240), text="delivered deliveries_max times", at=(600, 258))
    picture.text(
        15,
        285,
        "A message is on the shelf or in flight, never both; after a crash, where the last commit says.",
    )
    picture.save("message.svg")


def city() -> None:
    """Draw the city pipeline, and write its declarative project."""
    plan = CITY.plan(CITY.settings, "tables")
    (PICTURES / "city.svg").write_text(svg(plan))
    write_files(PROJECT, project_files(plan, "city", STORAGE))


if __name__ == "__main__":
    layers()
    tick()
    message()
    city()
