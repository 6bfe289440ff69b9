"""How much tests do, and how long they wait for what must happen before they call it a failure.

Tests say how often they repeat something at an effort of 1: examples, storms, kills. An ordinary run does
less than a third of that. TIDINGS_EFFORT=10, as `make soak` has it, means ten times as much, and whole sizes
where a test is made smaller otherwise. TIDINGS_SEED chooses other random choices. Limits on time are ample
on a quiet machine; on a slow or busy one TIDINGS_PATIENCE=3 makes all of them three times as long. None of
them is a time that a test measures.
"""

from __future__ import annotations

import math
import os

ORDINARY = 0.3
"""The effort of `make test`."""
EFFORT = float(os.environ.get("TIDINGS_EFFORT", ORDINARY))
PATIENCE = float(os.environ.get("TIDINGS_PATIENCE", "1"))
SEED = int(os.environ.get("TIDINGS_SEED", "20261115"))
"""Where random choices begin that hypothesis does not make."""
IS_SOAK = EFFORT > 1
"""Whether this is the long run."""


def often(count: int, at_least: int = 1) -> int:
    """How many of something that is done so often at an effort of 1."""
    return max(at_least, math.ceil(count * EFFORT))


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, on this one."""
    return seconds * PATIENCE


def lasting(seconds: float) -> float:
    """So many seconds of a quiet machine at an effort of 1, for what takes longer at a greater one."""
    return patience(seconds * max(1.0, EFFORT))


ANSWER_S = patience(180.0)
"""For something that runs already, to answer."""
TEST_S = min(lasting(1_200.0), patience(3_600.0))
"""For a whole test with all that it prepares, unless it is marked with another limit: one that hangs must not
hang the long run, too."""
