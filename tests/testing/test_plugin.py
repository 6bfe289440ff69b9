"""The plugin, in runs of pytest of its own: with pytest-asyncio, with anyio's plugin, and with neither.

The runs are in this process, and each forgets the modules that it was the first to import. `asyncio` must not
be imported twice, as its compiled half stays with the first; importing all of them here also saves time.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import anyio.pytest_plugin  # noqa: F401  # as the docstring says, and so below
import pytest
import pytest_asyncio.plugin  # noqa: F401

import tidings.client.blocking
import tidings.testing.clock
import tidings.testing.node_process
import tidings.testing.proxy  # noqa: F401
from tidings.testing import plugin

PLUGIN = "tidings.testing.plugin"
IS_INSTALLED = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
LOADED = [] if IS_INSTALLED else [plugin]
# Of the modules that are imported here pytest would say that it came too late for their assertions.
STRICTLY = ("-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning")

NEITHER = ("-p", "no:asyncio", "-p", "no:anyio")
STRICT = ("-p", "no:anyio", "-o", "asyncio_default_fixture_loop_scope=function")
AUTO = (*STRICT, "-o", "asyncio_mode=auto")
ANYIO = ("-p", "no:asyncio")
BOTH = ("-o", "asyncio_default_fixture_loop_scope=function")

Tests = pytest.Pytester


def passes(tests: Tests, text: str, *options: str, count: int = 1) -> None:
    tests.makepyfile(text)
    tests.runpytest_inprocess(*options, *STRICTLY, plugins=LOADED).assert_outcomes(passed=count)


def errors(tests: Tests, text: str, *options: str) -> str:
    tests.makepyfile(text)
    result = tests.runpytest_inprocess(*options, plugins=LOADED)
    result.assert_outcomes(errors=1)
    return result.stdout.str()


USE = """
import pytest
import tidings

{fixture}
async def queue(tidings_bus):
    return await tidings_bus.create_queue("jobs")

{mark}
async def test_a_message_is_put_and_got(tidings_bus, queue):
    async with tidings_bus.subscribe("n > 1") as events:
        await tidings_bus.publish("job", n=2)
        await queue.put("job", n=(await anext(events))["n"])
    assert (await queue.get(timeout_s=0))["n"] == 2
"""
ASYNCIO_FIXTURE = "import pytest_asyncio\n\n@pytest_asyncio.fixture"
ASYNCIO_MARK, ANYIO_MARK = "@pytest.mark.asyncio", "@pytest.mark.anyio"
ON_ASYNCIO = """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.mark.parametrize(
    ("options", "fixture", "mark"),
    [
        pytest.param(STRICT, ASYNCIO_FIXTURE, ASYNCIO_MARK, id="pytest-asyncio strict"),
        pytest.param(AUTO, "@pytest.fixture", "", id="pytest-asyncio auto"),
        pytest.param(ANYIO, "@pytest.fixture", ANYIO_MARK + ON_ASYNCIO, id="anyio"),
        pytest.param(BOTH, "@pytest.fixture", ANYIO_MARK, id="anyio beside pytest-asyncio"),
        pytest.param(BOTH, ASYNCIO_FIXTURE, ASYNCIO_MARK, id="pytest-asyncio beside anyio"),
    ],
)
def test_the_bus_is_on_the_loop_of_the_test_and_of_its_fixtures(
    pytester: Tests, options: tuple[str, ...], fixture: str, mark: str
) -> None:
    text = USE.format(fixture=fixture, mark=mark.partition("\n")[0])
    if "anyio" in mark:
        text += ON_ASYNCIO
    passes(pytester, text, *options)


def test_the_bus_is_on_the_wider_loop_that_a_test_is_marked_for(pytester: Tests) -> None:
    text = """
        import pytest

        @pytest.mark.asyncio(loop_scope="module")
        async def test_one(tidings_bus):
            await tidings_bus.status()

        @pytest.mark.asyncio
        async def test_another(tidings_bus):
            await tidings_bus.status()
    """
    passes(pytester, text, *STRICT, count=2)


def test_each_test_has_a_bus_of_its_own(pytester: Tests) -> None:
    text = """
        import pytest

        @pytest.mark.parametrize("turn", [1, 2])
        async def test_nothing_is_left(tidings_bus, turn):
            await tidings_bus.create_queue("jobs")
    """
    passes(pytester, text, *AUTO, count=2)


def test_without_a_plugin_that_runs_coroutines_the_bus_names_what_to_do(pytester: Tests) -> None:
    said = errors(pytester, "def test_it(tidings_bus): ...", *NEITHER)
    assert "use tidings_blocking_bus" in said


def test_a_test_without_a_loop_has_a_blocking_bus(pytester: Tests) -> None:
    text = """
        def test_it(tidings_blocking_bus, tidings_clock):
            queue = tidings_blocking_bus.create_queue("jobs", expiry=True)
            queue.put("job", ttl_s=60)
            tidings_clock.advance_blocking(61)
            assert queue.is_empty()
    """
    passes(pytester, text, *NEITHER)


@pytest.mark.parametrize("options", [AUTO, ANYIO], ids=["pytest-asyncio", "anyio"])
def test_the_bus_goes_by_the_clock_that_the_test_asks_for(pytester: Tests, options: tuple[str, ...]) -> None:
    text = f"""
        import asyncio
        import pytest
        {ON_ASYNCIO.replace(chr(10), chr(10) + 8 * " ")}

        {ANYIO_MARK if options is ANYIO else ""}
        async def test_it(tidings_bus, tidings_clock):
            queue = await tidings_bus.create_queue("jobs", expiry=True)
            await queue.put("job", ttl_s=60)
            sleeping = asyncio.create_task(asyncio.sleep(3_600))
            await tidings_clock.advance(3_601)
            assert sleeping.done() and await queue.is_empty()
    """
    passes(pytester, text, *options)


def test_a_node_can_be_cut_off_killed_and_restarted(pytester: Tests) -> None:
    text = """
        import pytest
        import tidings

        @pytest.fixture
        def tidings_node_settings():
            return {"name": "hall"}

        def test_it(tidings_node, tidings_cut, tmp_path):
            assert tidings_node.log.is_relative_to(tmp_path)
            with tidings.blocking.connect(tidings_cut.address, random=lambda: 0.0) as bus:
                tidings_cut.cut()
                with pytest.raises(tidings.TidingsError):
                    bus.status(timeout_s=0.05)
                tidings_node.kill()
                tidings_node.restart()
                tidings_cut.mend()
                assert tidings_node.is_running and bus.status()
    """
    passes(pytester, text, *NEITHER)


# -- how it is loaded


def test_pytest_finds_it_and_users_see_its_fixtures(pytester: Tests) -> None:
    result = pytester.runpytest_inprocess(*NEITHER, "--fixtures", plugins=LOADED)
    shown = result.stdout.str()
    for name in ("bus", "blocking_bus", "clock", "node", "node_settings", "cut"):
        assert f"tidings_{name} -- " in shown
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tidings": PLUGIN}


def test_loading_it_imports_nothing_else_of_tidings() -> None:
    code = f"""
import sys, pytest
before = set(sys.modules)
import {PLUGIN}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(new), sorted(name for name in sys.modules if name.startswith("tidings")))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = "['tidings', 'tidings.testing', 'tidings.testing.plugin']"
    assert result.stdout.strip() == f"['tidings'] {own}"


def test_on_another_loop_than_asyncios_the_bus_says_what_it_needs() -> None:
    with pytest.raises(pytest.fail.Exception, match="anyio_backend must be 'asyncio'"):
        plugin._bus(None).__anext__().send(None)  # as a loop of another kind would begin it
