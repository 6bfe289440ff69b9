from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from node.gateway.networks import GatewayCommand, starting_gateways


@pytest.fixture
def start_gateway() -> Iterator[Callable[..., GatewayCommand]]:
    """Starts gateways as processes of their own; those still running at the end of the test are killed."""
    yield from starting_gateways()
