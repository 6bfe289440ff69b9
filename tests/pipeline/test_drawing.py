"""Pictures of pipelines: what they show, whatever their names and filters are."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from tidings.pipeline.drawing import LENGTH_MAX, mermaid, svg
from tidings.pipeline.plan import Plan, Source, Step

SVG = "{http://www.w3.org/2000/svg}"


def plan(where: str = "type = 'trade'", about: str = "volume > 1000") -> Plan:
    """Trades, the large ones, and the highest price of each day."""
    large = Step(name="large", after=("trades",), make=lambda df: df, about=about, is_published=True)
    high = Step(name="high", after=("large",), make=lambda df: df, kind="state", by=("symbol", "start"))
    return Plan(name="quotes", sources=(Source("trades", where, "price double"),), steps=(large, high))


def texts(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(picture).iter(f"{SVG}text")]


def test_a_picture_has_the_boxes_their_keys_and_what_is_published() -> None:
    assert texts(svg(plan())) == [
        "trades",
        "type = 'trade'",
        "large",
        "volume > 1000",
        "published: by the type of each row",
        "high",
        "by symbol, start",
    ]
    picture = ET.fromstring(svg(plan()))
    kinds = [group.get("class") for group in picture.iter(f"{SVG}g") if group.get("class")]
    assert kinds == ["source", "history", "state"]
    assert len([path for path in picture.iter(f"{SVG}path") if path.get("class") == "way"]) == 2


def test_a_flowchart_has_the_same() -> None:
    assert mermaid(plan()).splitlines()[:6] == [
        "flowchart LR",
        "    trades[(\"trades<br>type = 'trade'\")]:::source",
        '    large["large<br>volume #gt; 1000<br>published: by the type of each row"]:::history',
        '    high[["high<br>by symbol, start"]]:::state',
        "    trades --> large",
        "    large --> high",
    ]


characters = st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\"'#<>&;")


@given(st.text(characters, min_size=1, max_size=100))
def test_any_text_is_shown_as_it_is_or_cut_and_breaks_no_picture(text: str) -> None:
    shown = texts(svg(plan(where=text, about=text)))
    assert shown[1] == shown[3] == (text if len(text) <= LENGTH_MAX else f"{text[: LENGTH_MAX - 1]}…")
    lines = mermaid(plan(where=text, about=text)).splitlines()
    assert lines[1].count('"') == 2
    assert len(mermaid(plan()).splitlines()) == len(mermaid(plan(about=text)).split("\n")) - 1


def test_a_picture_has_colours_for_dark_pages() -> None:
    assert "prefers-color-scheme:dark" in svg(plan())
