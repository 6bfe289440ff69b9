"""Matching: the index (many filters, one event) and the shelf (many stored events, one filter)."""

from tidings.matching.index import Index, Matches, prepare
from tidings.matching.shelf import Shelf

__all__ = ["Index", "Matches", "Shelf", "prepare"]
