from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.peers import Start, starting


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts nodes as processes of their own; those still running at the end of the test are killed."""
    yield from starting()
