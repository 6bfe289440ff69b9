"""The pytest plugin: fixtures for the tests of programs that use tidings.

pytest loads it wherever tidings is installed (entry point `pytest11`), so it imports the rest of tidings only
when a fixture is used. `tidings_bus` is an async fixture, and those belong to a plugin that runs coroutines:
anyio's takes it by itself, pytest-asyncio takes it in its automatic mode and needs a mark in its strict mode.
The other fixtures need neither. The rule kept: the bus lives on the loop on which the test runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidings.client import Bus, blocking
    from tidings.testing.clock import VirtualClock
    from tidings.testing.node_process import NodeProcess
    from tidings.testing.proxy import Proxy

BusFixture = Callable[..., AsyncIterator["Bus"]]

NO_RUNNER = (
    "tidings_bus is a fixture for async tests, and neither pytest-asyncio nor anyio runs this one: install"
    " and mark for one of them, or use tidings_blocking_bus, or enter tidings.open() in a loop of your own"
)
NO_ASYNCIO = "tidings_bus needs asyncio, and this test runs on another loop: anyio_backend must be 'asyncio'"


def _make_bus_fixture() -> BusFixture:
    async def tidings_bus(_tidings_clock_in_use: VirtualClock | None) -> AsyncIterator[Bus]:
        """Bus to a node in this process that stores nothing, as `tidings.open()` gives it."""
        import asyncio

        import tidings

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pytest.fail(NO_ASYNCIO, pytrace=False)
        clock = _tidings_clock_in_use
        async with tidings.open() if clock is None else clock.open() as bus:
            yield bus

    return tidings_bus


_bus = _make_bus_fixture()
_bus_for_anyio = _make_bus_fixture()  # without pytest-asyncio's mark, which would have both set it up
tidings_bus = pytest.fixture(_bus)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Called by pytest for each fixture: give `tidings_bus` to the plugin that runs the test."""
    if fixturedef.func is not _bus:
        return (yield)
    if "anyio_backend" in request.fixturenames:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fixturedef, "func", _bus_for_anyio)
            return (yield)
    if not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(NO_RUNNER, pytrace=False)
    _mark_for_pytest_asyncio(request)
    return (yield)


def _mark_for_pytest_asyncio(request: pytest.FixtureRequest) -> None:
    """Have pytest-asyncio set the fixture up in its strict mode too, on the loop of the test."""
    import pytest_asyncio

    marker = request.node.get_closest_marker("asyncio")
    scope = marker.kwargs.get("loop_scope") if marker is not None else None
    pytest_asyncio.fixture(_bus, loop_scope=scope or request.config.getini("asyncio_default_test_loop_scope"))


@pytest.fixture
def tidings_blocking_bus(_tidings_clock_in_use: VirtualClock | None) -> Iterator[blocking.Bus]:
    """Bus of `tidings.blocking` to a node in this process that stores nothing, for tests without a loop."""
    from tidings.client import blocking

    clock = _tidings_clock_in_use
    with blocking.open() if clock is None else blocking.Bus(clock.open()) as bus:
        yield bus


@pytest.fixture
def tidings_clock() -> VirtualClock:
    """Clock of the test's bus and loop, which `await tidings_clock.advance(seconds)` puts forward."""
    from tidings.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def _tidings_clock_in_use(request: pytest.FixtureRequest) -> VirtualClock | None:
    """The clock, if the test or one of its fixtures asks for it."""
    if "tidings_clock" not in request.fixturenames:
        return None
    clock: VirtualClock = request.getfixturevalue("tidings_clock")
    return clock


@pytest.fixture
def tidings_node_settings() -> dict[str, Any]:
    """Settings of `tidings_node`, by their names in docs/node.md; override this fixture to give some."""
    return {}


@pytest.fixture
def tidings_node(tmp_path: Path, tidings_node_settings: dict[str, Any]) -> Iterator[NodeProcess]:
    """Node in a process of its own, with a directory below `tmp_path`, on a free port."""
    from tidings.testing.node_process import NodeProcess

    home = tmp_path / "tidings"
    home.mkdir()
    with NodeProcess(home, **tidings_node_settings) as node:
        yield node


@pytest.fixture
def tidings_cut(tidings_node: NodeProcess) -> Iterator[Proxy]:
    """Proxy before `tidings_node`, whose connections the test can break, stall and restore."""
    from tidings.testing.proxy import Proxy

    with Proxy(tidings_node.address) as proxy:
        yield proxy
