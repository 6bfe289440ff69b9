"""Header fields as the scan of raw events sees them (`tidings.event.scan`)."""

from __future__ import annotations

from typing import Final

from tidings.event import HEADER_READERS

SCANNED_HEADER: Final = frozenset({
    "type", "time", "source", "channel", "subject", "priority", "ttl_s", "keep_s", "delivery", "route",
    "reliability", "reply_to", "correlation_id", "object_class", "content_type",
})  # fmt: skip
"""The header fields that the scan reads; conditions on the others are left to the filter itself."""

UNSCANNED: Final = frozenset(HEADER_READERS) - SCANNED_HEADER

TEXT_FIELDS: Final = frozenset({
    "type", "channel", "subject", "reply_to", "correlation_id", "object_class", "content_type",
})  # fmt: skip
"""The header fields that stand in an event as text, or not at all."""
