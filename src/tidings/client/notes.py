"""Notes on the filters of subscriptions, in the log of the program."""

from __future__ import annotations

import logging

from tidings.errors import FilterError, MissingExtra
from tidings.filters import Filter

LOGGER = logging.getLogger("tidings.notes")


def noted(filter: Filter | str) -> str:
    """Return the text of a filter for the node, and log the notes on it as warnings.

    The node reports a text that is no filter, and evaluates functions that are not installed here.
    """
    if LOGGER.isEnabledFor(logging.WARNING):
        try:
            read = filter if isinstance(filter, Filter) else Filter(filter)
            for note in read.notes:
                LOGGER.warning("filter: %s", note)
        except (FilterError, MissingExtra):
            pass
    return str(filter)
