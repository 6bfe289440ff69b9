from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from node.peers import ANSWER_S_MAX, Run
from node.secured import Secured

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Run:
    """Runs a test on each of the loops there are, and ends it if it hangs."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(test, 2 * ANSWER_S_MAX))

    return run


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """A security directory."""
    return Secured(tmp_path)
