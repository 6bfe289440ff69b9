"""Fading: reliable events that may be stored for a while only, by `keep_s`, and are transient from then on.

The time counts from when the first node took the event in; links carry the part that is used up. A node that
takes such an event later than that stores it for nobody: it goes to the subscribers that are there, and to
other nodes in the same way. One that has stored it before delivers it to no durable subscription that comes
back after that time. Persistent events are kept as the log is.
"""

from __future__ import annotations

from msgspec import structs

from tidings.event import Batch, Event
from tidings.event.header import DELIVERIES
from tidings.event.relayed import RelayedBatch
from tidings.event.wire import Checked

_TRANSIENT, _RELIABLE = DELIVERIES.index("transient"), DELIVERIES.index("reliable")


def is_faded(event: Event, age_s: float) -> bool:
    """Whether an event of this age, since its first node took it in, is to be stored no longer."""
    return event.keep_s is not None and event.delivery == "reliable" and age_s >= event.keep_s


def is_over(event: Event, age_s: float) -> bool:
    """Whether an event that was stored so long ago is to be delivered no more."""
    return (event.ttl_s is not None and event.ttl_s <= age_s) or is_faded(event, age_s)


def faded(batch: Batch, checked: Checked) -> Checked:
    """Return the facts about events, with those that are to be stored no longer as transient ones.

    They are not plain: an event must not overtake others that are stored and wait.
    """
    age_s = batch.age_us / 1e6 if isinstance(batch, RelayedBatch) else 0.0
    deliveries = bytearray(checked.deliveries)
    for row, delivery in enumerate(deliveries):
        if delivery == _RELIABLE and is_faded(batch[row], age_s):
            deliveries[row] = _TRANSIENT
    return structs.replace(checked, deliveries=bytes(deliveries))
