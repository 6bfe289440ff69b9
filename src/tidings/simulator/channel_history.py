"""Reading of what is stored of a channel, by requests as the client makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidings.channels.description import ChannelOrder, LogPlace
from tidings.channels.merging import HistoryMerge, TakenEvents
from tidings.channels.parts import HistoryPage
from tidings.event import Event

PAGE_SIZE = 100
"""Bytes of a page, so that there are many of them."""


def read_history(ask: Callable[..., Any], channel: str, order: ChannelOrder) -> list[Event]:
    """Return what a member reads; `ask` returns the reply to an operation with arguments."""
    found = ask("channel.places", channel=channel)
    assert isinstance(found, dict), found
    places = msgspec.convert(found["logs"], list[LogPlace])
    logs = [one.node for one in places if not one.are_copies]
    merge = HistoryMerge([f"{one.node}{one.are_copies}" for one in places], order)
    for place in places:
        start, source = place.first, f"{place.node}{place.are_copies}"
        while start < place.end:
            asked = {"to": place.node, "start": start, "end": place.end, "size_max": PAGE_SIZE}
            without = logs if place.are_copies else []
            told = ask("channel.read", channel=channel, without=without, **asked)
            page = msgspec.convert(told, HistoryPage)
            merge.add(source, page.parts)
            start = page.next
        merge.end(source)
    taken = TakenEvents()
    return [event for event in merge.take() if taken.take(event)]
