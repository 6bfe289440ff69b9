"""Mistakes that can be built into the channels of simulated nodes, to see that storms find them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from tidings.channels import service
from tidings.channels.causal import CausalOrder
from tidings.channels.ordering import Ordering
from tidings.channels.sequencer import Sequencer
from tidings.protocol.relays import Relays
from tidings.replies import resolved

ChannelFault = Literal[
    "", "twice", "had-again", "unnamed", "lone-sequencer", "early-arrival", "early-release"
]
CHANNEL_FAULTS: tuple[ChannelFault, ...] = get_args(ChannelFault)
"""Mistakes that can be built in, and are found.

twice: events that come over two ways are not recognised. had-again: a member that has moved gets what it had
(causal, total). unnamed: events of a causal channel name no predecessors. lone-sequencer: a sequencer waits
for nobody (total). early-arrival: a member arrives before its new node is as far as it was (total).
early-release: a node hands events on to members as they come (causal).
"""


@contextmanager
def built_in(fault: ChannelFault) -> Iterator[None]:
    """Build a mistake in, until the end of the block."""
    where: dict[ChannelFault, tuple[Any, str, Any]] = {
        "twice": (Relays, "_had", lambda _self, _batch: 0),
        "had-again": (service, "beyond", lambda _told, batch: list(range(len(batch)))),
        "unnamed": (CausalOrder, "send", lambda _self: {}),
        "lone-sequencer": (Sequencer, "_count", _agree_alone),
        "early-arrival": (Ordering, "reach", lambda _self, _channel, _told, is_coming: resolved(None)),  # noqa: ARG005
        "early-release": (CausalOrder, "_missing", lambda _self, _arrival: []),
    }
    if not fault:
        yield
        return
    place, name, wrong = where[fault]
    right = getattr(place, name)
    setattr(place, name, wrong)
    try:
        yield
    finally:
        setattr(place, name, right)


def _agree_alone(sequencer: Sequencer, _now: float) -> None:
    sequencer.agreed = sequencer.last
