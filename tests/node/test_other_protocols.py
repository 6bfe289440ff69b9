"""What a browser, or any other program, can be led to send to the port of a node by whoever it talks to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from node.peers import peer_of, run, running

from tidings import Batch, Event
from tidings.node.server import Node
from tidings.protocol.frames import FIRST_FRAME_MAX, FrameReader, TooLarge, encode
from tidings.protocol.messages import Accepted, Hello, Publish

FRAMES = encode(Hello([1], "page", 1)) + encode(Publish(), Batch.of([replace(Event("t"), counter=1)]).raw)
"""What it would like the node to hear."""
OTHERS = {
    "HTTP/1": b"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "FTP": b"USER a\r\n",
    "SMTP": b"EHLO evil.example\r\n",
}


def published(node: Node) -> int:
    return sum(times for (what, _), times in node.driver.broker.tallies.items() if what == "published")


@pytest.mark.parametrize("beginning", OTHERS.values(), ids=OTHERS.keys())
def test_another_protocol_is_refused_before_what_it_carries_is_read(beginning: bytes) -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as page:
            page.writer.write(beginning + FRAMES)
            assert (await page.goodbye()).code == "too-large"
            assert published(node) == 0

    run(scenario())


def test_what_it_carries_would_be_heard_if_it_came_first() -> None:
    async def scenario() -> None:
        async with running() as node, peer_of(node.addresses[0]) as client:
            client.writer.write(FRAMES)
            await client.expect(Accepted)
            assert published(node) == 1

    run(scenario())


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=4, max_size=40))
def test_no_line_of_text_is_the_beginning_of_a_frame(line: str) -> None:
    with pytest.raises(TooLarge):
        list(FrameReader(FIRST_FRAME_MAX).feed(line.encode() + FRAMES))
