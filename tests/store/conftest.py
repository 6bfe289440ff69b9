"""Every test of what stores have in common runs on each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.openers import LASTING, Opener, openers


@pytest.fixture(params=["sqlite", "simulated", "memory"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return openers(tmp_path / "node")[request.param]


@pytest.fixture(params=LASTING)
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return openers(tmp_path / "node")[request.param]
