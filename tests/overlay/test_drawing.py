"""Pictures of a topology."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from xml.etree import ElementTree as ET

from tidings.overlay.drawing import svg, text
from tidings.overlay.records import LinkRecord, NodeRecord

START_US = 1_763_400_000_000_000
LINKS = (
    ("a", "b", True),
    ("a", "c", True),
    ("c", "d", False),
    ("b", "e", True),
    ("d", "e", True),
    ("c", "f", True),
    ("a", "e", False),
)
NAMES = {"a": "hall", "b": "kitchen", "c": "shed", "d": "barn", "e": "gate", "f": "phone", "g": "far"}
SPACE = "{http://www.w3.org/2000/svg}"


def made(links: Iterable[tuple[str, str, bool]], names: dict[str, str], leaves: str = "") -> list[NodeRecord]:
    found: dict[str, list[LinkRecord]] = {node: [] for node in names}
    for number, (one, other, is_up) in enumerate(links):
        since = START_US + number * 60_000_000
        found[one].append(LinkRecord(other, since, is_up))
        found[other].append(LinkRecord(one, since))  # one end may not have noticed a cut
    return [
        NodeRecord(
            node, names[node], 1, 1, tuple(sorted(own, key=lambda link: link.neighbour)), node in leaves
        )
        for node, own in found.items()
    ]


def test_the_text_has_the_tree_and_beside_it_the_links_that_stand_by() -> None:
    assert text(made(LINKS, NAMES, leaves="f"), "a") == (
        "hall (this node)\n"
        "├─ kitchen: active, established 2025-11-17 17:20:00Z\n"
        "│  └─ gate: active, established 2025-11-17 17:23:00Z\n"
        "└─ shed: active, established 2025-11-17 17:21:00Z\n"
        "   ├─ barn: cut, established 2025-11-17 17:22:00Z\n"
        "   └─ phone (leaf): active, established 2025-11-17 17:25:00Z\n"
        "far (out of reach)\n"
        "\n"
        "beside the tree:\n"
        "  barn – gate: stands by, established 2025-11-17 17:24:00Z\n"
        "  hall – gate: stands by, cut, established 2025-11-17 17:26:00Z\n"
    )


def test_a_name_that_two_nodes_have_is_written_with_the_id() -> None:
    names = {"a": "hall", "b": "shed", "c": "shed"}
    drawn = text(made([("a", "b", True), ("a", "c", True)], names), "a")
    assert "├─ shed (b): active" in drawn
    assert "└─ shed (c): active" in drawn


def boxes(document: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    found = {}
    for group in document.iter(f"{SPACE}g"):
        rect, title = group.find(f"{SPACE}rect"), group.find(f"{SPACE}title")
        if rect is not None and title is not None and title.text is not None:
            x, y, width, height = (float(rect.attrib[part]) for part in ("x", "y", "width", "height"))
            found[title.text.split(" · ")[0]] = x, y, x + width, y + height
    return found


def test_the_svg_has_a_box_for_each_node_and_none_covers_another() -> None:
    document = ET.fromstring(svg(made(LINKS, NAMES, leaves="f"), "a"))
    found = boxes(document)
    assert set(found) == set(NAMES.values())
    for name, (left, top, right, bottom) in found.items():
        for other, (x, y, far_x, far_y) in found.items():
            assert name == other or right <= x or far_x <= left or bottom <= y or far_y <= top
    assert found["hall"][0] < found["shed"][0] < found["phone"][0]
    width, height = map(float, document.attrib["viewBox"].split()[2:])
    assert max(box[2] for box in found.values()) < width
    assert max(box[3] for box in found.values()) < height


def test_the_svg_has_each_link_with_its_state() -> None:
    document = ET.fromstring(svg(made(LINKS, NAMES, leaves="f"), "a"))
    links = {
        (title.text or "").partition(":")[0]: path.attrib["class"]
        for path in document.iter(f"{SPACE}path")
        if (title := path.find(f"{SPACE}title")) is not None
    }
    assert links == {
        "hall – kitchen": "link active",
        "hall – shed": "link active",
        "shed – barn": "link cut",
        "kitchen – gate": "link active",
        "shed – phone": "link active",
        "barn – gate": "link by",
        "hall – gate": "link cut",
    }
    classes = [group.attrib.get("class") for group in document.iter(f"{SPACE}g")]
    assert {"node own", "node leaf", "node lost"} <= set(classes)


def test_names_can_break_no_svg() -> None:
    drawn = svg(made([("a", "b", True)], {"a": "<script>&", "b": '"]]>'}), "a")
    assert set(boxes(ET.fromstring(drawn))) == {"<script>&", '"]]>'}


def test_a_long_line_and_a_node_alone_can_be_drawn() -> None:
    nodes = {f"n{number:04}": f"n{number:04}" for number in range(2_000)}
    ids = sorted(nodes)
    records = made([(one, other, True) for one, other in pairwise(ids)], nodes)
    assert len(text(records, "n0000").splitlines()) == 2_000
    assert len(boxes(ET.fromstring(svg(records[:1], "n0000")))) == 1
    assert text([], "a") == "\n"
    ET.fromstring(svg([], "a"))


def test_a_link_that_both_ends_have_measured_is_shown_with_its_weight() -> None:
    records = [
        NodeRecord("a", "hall", 1, 1, (LinkRecord("b", START_US, weight=4_000), LinkRecord("c", START_US))),
        NodeRecord("b", "shed", 1, 1, (LinkRecord("a", START_US, weight=8_000),)),
        NodeRecord("c", "gate", 1, 1, (LinkRecord("a", START_US, weight=8_000),)),
    ]
    lines = text(records, "a").splitlines()
    assert lines[1] == "├─ gate: active, established 2025-11-17 17:20:00Z"
    assert lines[2] == "└─ shed: active, weighs 6, established 2025-11-17 17:20:00Z"
