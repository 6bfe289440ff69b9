"""How long tests wait for what must happen before they call it a failure, and how long they may take.

The limits are ample on a quiet machine. On one that is slow or busy TIDINGS_PATIENCE=3 makes all of them
three times as long; none of them is a time that a test measures.
"""

from __future__ import annotations

import os

SCALE = float(os.environ.get("TIDINGS_PATIENCE", "1"))
IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
"""Whether this is the long run, with many more examples, storms and kills."""


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, on this one."""
    return seconds * SCALE


ANSWER_S = patience(30.0)
"""For something that runs already, to answer."""
TEST_S = patience(36_000.0 if IS_SOAK else 300.0)
"""For a whole test with all that it prepares, unless it is marked with another limit."""
