"""How much tests do, and how long they wait for what must happen before they call it a failure.

TIDINGS_EFFORT=20, as `make soak` has it, means twenty times as many examples, storms and kills, and whole
sizes where a test is made smaller otherwise. TIDINGS_SEED chooses other ones. The limits on time are ample on
a quiet machine; on a slow or busy one TIDINGS_PATIENCE=3 makes all of them three times as long. None of them
is a time that a test measures.
"""

from __future__ import annotations

import os

EFFORT = int(os.environ.get("TIDINGS_EFFORT", "1"))
PATIENCE = float(os.environ.get("TIDINGS_PATIENCE", "1"))
SEED = int(os.environ.get("TIDINGS_SEED", "20261115"))
"""Where random choices begin that hypothesis does not make."""
IS_SOAK = EFFORT > 1
"""Whether this is the long run."""


def often(count: int) -> int:
    """How many of something that is done so often in an ordinary run."""
    return count * EFFORT


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, on this one."""
    return seconds * PATIENCE


ANSWER_S = patience(180.0)
"""For something that runs already, to answer."""
TEST_S = patience(600.0 * EFFORT)
"""For a whole test with all that it prepares, unless it is marked with another limit."""
