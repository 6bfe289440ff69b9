"""The event and its codecs, used by every other part of tidings."""

from tidings.event.batch import Batch
from tidings.event.header import Delivery, Header, Route
from tidings.event.model import HEADER_READERS, Event
from tidings.event.values import JMS_ALIASES, RESERVED, Value
from tidings.ids import Origin

__all__ = [
    "HEADER_READERS",
    "JMS_ALIASES",
    "RESERVED",
    "Batch",
    "Delivery",
    "Event",
    "Header",
    "Origin",
    "Route",
    "Value",
]
