"""The taxonomy of a node: a file of terms and units that its clients use when they make filters.

The node itself reads no terms: it hands out the file, as JSON and piece by piece, to each user that may
subscribe to something.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, json

from tidings.errors import CodecError, FilterError
from tidings.filters import Taxonomy
from tidings.protocol.service import IncomingRequest, Service

TAXONOMY_PIECE_SIZE = 256 << 10
"""Bytes of a node's taxonomy in one answer."""


class ReadTaxonomyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `taxonomy.read`."""

    offset: Annotated[int, Meta(ge=0)] = 0


class TaxonomyService(Service):
    """Hands out the taxonomy, as JSON; empty if the node has none."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.operations = {"taxonomy.read": (ReadTaxonomyRequest, self._read)}

    def _read(self, asked: IncomingRequest, wanted: ReadTaxonomyRequest) -> dict[str, Any]:
        asked.session.principal.grant("subscribe")
        piece = self._content[wanted.offset : wanted.offset + TAXONOMY_PIECE_SIZE]
        return {"size": len(self._content), "piece": piece}


def taxonomy_from(content: bytes) -> Taxonomy:
    """Return the taxonomy that a node has handed out."""
    if not content:
        return Taxonomy()
    try:
        return Taxonomy(json.decode(content, type=dict[str, Any]))
    except (DecodeError, FilterError) as error:
        raise CodecError("$.taxonomy", f"the node's taxonomy can't be read: {error}") from None
