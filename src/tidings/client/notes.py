"""Notes on the filters of subscriptions, in the log of the program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from tidings.errors import FilterError, MissingExtra
from tidings.filters import Filter
from tidings.filters.notes import HEADER_VALUES, KnownValues

NOTED_LENGTH_MAX = 8_192
"""Characters of a filter that gets notes; a longer one, made by a program, would hold up the loop."""
LOGGER = logging.getLogger("tidings.notes")


def noted(filter: Filter | str) -> str:
    """Return the text of a filter for the node, and log the notes on it as warnings.

    The node reports a text that is no filter, and evaluates functions that are not installed here.
    """
    text = str(filter)
    if len(text) <= NOTED_LENGTH_MAX and LOGGER.isEnabledFor(logging.WARNING):
        with suppress(FilterError, MissingExtra):
            log_notes(filter if isinstance(filter, Filter) else Filter(text))
    return text


def log_notes(filter: Filter, known: Mapping[str, KnownValues] = HEADER_VALUES) -> None:
    """Log the notes on a filter as warnings; `known` are the values that attributes have."""
    for note in filter.notes_with(known):
        LOGGER.warning("filter: %s", note)
