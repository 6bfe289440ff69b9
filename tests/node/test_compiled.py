from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from cli.commands import run_command
from node.peers import SOURCE, Run, peer_of, run, running

import tidings
from tidings import Event
from tidings.client.subscription import Subscription
from tidings.event import wire
from tidings.matching import index
from tidings.node import compiled
from tidings.node.compiled import CACHE, cache_place
from tidings.protocol import frames


def test_code_is_loaded_when_there_is_much_to_do_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[None] = []
    monkeypatch.setattr(compiled, "exercise", lambda: loads.append(None))
    loader = compiled.Loader()
    for _ in range(compiled.BUSY_TICKS - 1):
        loader.busy()
    loader.filters(compiled.FILTERS_MANY - 1)
    for read in range(0, 5 * compiled.BYTES_MANY, compiled.BYTES_MANY - 1):
        loader.traffic(read)
    loader.wait()
    assert loads == []
    loader.busy()
    loader.busy()
    loader.filters(compiled.FILTERS_MANY)
    loader.wait()
    assert loads == [None]


def test_a_node_loads_code_when_its_log_is_searched_but_not_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[None] = []
    monkeypatch.setattr(compiled, "exercise", lambda: loads.append(None))

    async def scenario() -> None:
        async with running(dir=str(tmp_path)) as node, tidings.connect(node.addresses[0]) as bus:
            await bus.publish_all([Event("air", {"n": n}, delivery="persistent") for n in range(1_000)])
            loader = node._loader = compiled.Loader()
            node._on_wake()
            monkeypatch.setattr(compiled, "BYTES_MANY", 10_000)
            assert len([found async for found in bus.log.read()]) == 1_000
            node._on_wake()
            loader.wait()
            assert loads == []
            assert len([found async for found in bus.log.read(where="n >= 990")]) == 10
            node._on_wake()
            loader.wait()
            assert loads == [None]

    run(scenario())


def test_code_that_can_not_be_loaded_is_no_catastrophe(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ImportError("no compiler")

    monkeypatch.setattr(compiled, "exercise", fail)
    loader = compiled.Loader()
    loader.load()
    loader.wait()
    assert "compiled code could not be loaded" in caplog.text


def compiling(loader: compiled.Loader, directory: str | None = None) -> None:
    """Have a loader compile, until that is done or has failed."""

    async def scenario() -> None:
        loader.compile(directory)
        assert loader.state == "compiling"
        assert loader._filling is not None
        await loader._filling

    asyncio.run(scenario())


def test_a_cache_that_can_not_be_made_is_reported_once_and_the_node_stays_with_plain_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loads: list[None] = []
    monkeypatch.setattr(compiled, "exercise", lambda: loads.append(None))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    loader = compiled.Loader()
    compiling(loader, str(tmp_path / "file" / "node"))
    loader.load()
    loader.wait()
    assert loader.state == "off"
    assert loads == []
    assert [record.getMessage() for record in caplog.records] == ["could not compile"]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    monkeypatch.setenv(compiled.CACHE_VARIABLE, "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    used = compiled.use_cache(cache)
    assert os.environ[compiled.CACHE_VARIABLE] == str(used)
    assert used != cache
    assert compiled.is_private(used)
    assert "others can write to the cache of compiled code" in caplog.text


@pytest.fixture
def quick_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets the child do nothing; the cache that it fills."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(compiled.CACHE_VARIABLE, "")
    monkeypatch.setattr(compiled, "COMPILER", "pass")
    return tmp_path / "tidings" / CACHE


def test_code_that_is_wanted_while_it_is_compiled_is_loaded_after_that(
    quick_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []
    loader = compiled.Loader()
    monkeypatch.setattr(compiled, "exercise", lambda: states.append(loader.state))

    async def scenario() -> None:
        loader.compile(None)
        loader.load()
        loader.load()
        assert states == []
        assert loader._filling is not None
        await loader._filling

    asyncio.run(scenario())
    loader.wait()
    assert states == ["loading"]
    assert loader.state == "in use"
    assert (quick_compiler / f"filled-{compiled.fingerprint()}").exists()


def test_a_filled_cache_is_not_filled_again(quick_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiling(compiled.Loader())
    monkeypatch.setattr(compiled, "COMPILER", "raise SystemExit(1)")
    loader = compiled.Loader()
    compiling(loader)
    assert loader.state == "ready"
    assert list(quick_compiler.iterdir()) == [quick_compiler / f"filled-{compiled.fingerprint()}"]


@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize(
    ("compiler", "s_max", "problem"),
    [("raise SystemExit('no memory')", 60.0, "no memory"), ("input()", 0.0, "not done within 0 s")],
)
def test_a_compiler_that_fails_or_takes_too_long_leaves_plain_python(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    compiler: str,
    s_max: float,
    problem: str,
) -> None:
    monkeypatch.setattr(compiled, "COMPILER", compiler)
    monkeypatch.setattr(compiled, "COMPILE_S_MAX", s_max)
    loader = compiled.Loader()
    compiling(loader)
    assert loader.state == "off"
    (record,) = (one for one in caplog.records if one.getMessage() == "could not compile")
    assert problem in record.__dict__["values"]["problem"]


@pytest.mark.usefixtures("quick_compiler")
def test_a_node_serves_while_its_code_is_compiled_and_ends_the_compiler_when_it_stops(
    monkeypatch: pytest.MonkeyPatch, on_loop: Run
) -> None:
    monkeypatch.setattr(compiled, "COMPILER", "import time; time.sleep(3600)")

    async def scenario() -> None:
        async with running(compiled=True) as node, peer_of(node.addresses[0]) as peer:
            await peer.hello()
            await peer.subscribe("value > 1")
            peer.publish(Event("a", value=2))
            assert [event["value"] for event in await peer.events(1)] == [2]
            status = await peer.ask("status")
            assert status.result["compiled"] == "compiling"

    on_loop(scenario())


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python, with compiled code that is quickly loaded, and that goes with the test."""
    compiled.exercise()
    monkeypatch.setattr(wire, "_certain", None)
    monkeypatch.setattr(frames, "_join", frames.join)
    monkeypatch.setattr(index, "_is_prepared", False)


@pytest.mark.usefixtures("plain")
def test_no_event_is_lost_or_reordered_when_a_node_changes_over_to_compiled_code() -> None:
    async def receive(subscription: Subscription, marks: list[int]) -> None:
        async for event in subscription:
            if event["n"] < 0:
                return
            marks.append(event["n"])

    async def scenario() -> None:
        marks: list[list[int]] = [[] for _ in range(40)]
        async with tidings.open() as bus, contextlib.AsyncExitStack() as stack:
            tasks = [
                asyncio.create_task(
                    receive(await stack.enter_async_context(bus.subscribe(f"m = {m} OR n < 0")), marks[m])
                )
                for m in range(40)
            ]
            loading = asyncio.create_task(asyncio.to_thread(compiled.exercise))
            n = 0
            is_last = False
            while not is_last:
                is_last = loading.done()  # so one more round goes through compiled code
                for _ in range(100):
                    await bus.publish("a", m=n % 40, n=n)
                    n += 1
                await bus.status()
            await loading
            await bus.publish("a", m=0, n=-1)
            await asyncio.gather(*tasks)
        assert marks == [list(range(m, n, 40)) for m in range(40)]

    run(scenario())


def test_a_cache_is_private_if_neither_it_nor_what_it_lies_in_can_be_changed_by_others(
    tmp_path: Path,
) -> None:
    shared, cache = tmp_path / "shared", tmp_path / "shared" / "cache"
    cache.mkdir(parents=True, mode=0o700)
    assert compiled.is_private(cache)
    shared.chmod(0o777)
    assert not compiled.is_private(cache)
    shared.chmod(0o1777)  # as /tmp is
    assert compiled.is_private(cache)
    (tmp_path / "link").symlink_to(cache)
    assert not compiled.is_private(tmp_path / "link")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_cache_that_belongs_to_another_user_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 65534, -1)
    assert not compiled.is_private(tmp_path / "cache")


def run_code(code: str, cache: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), compiled.CACHE_VARIABLE: str(cache)}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_filled_cache_leaves_nothing_to_compile_and_the_node_that_filled_it_small(tmp_path: Path) -> None:
    shared, cache = cache_place(None) / CACHE, tmp_path / "cache"  # to fill one takes half a minute
    compile = """
import sys
from tidings.node.compiled import compile_now
compile_now()
print("numba" in sys.modules)"""
    assert run_code(compile, shared) == "False\n"
    assert (shared / f"filled-{compiled.fingerprint()}").exists()
    copytree(shared, cache, ignore=ignore_patterns("*.tmp.*"))  # of others that fill it at the same time
    made = sorted(cache.rglob("*.nbc"))
    assert made
    run_code("from tidings.node.compiled import exercise; exercise()", cache)
    assert sorted(cache.rglob("*.nbc")) == made


def test_compiled_code_is_kept_for_all_nodes_of_a_user_or_in_the_directory_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_place("somewhere") == cache_place(None) == tmp_path / "cache" / "tidings"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_place("somewhere") == Path("somewhere")
    assert cache_place(None).is_dir()


def test_the_command_that_compiles_prints_where_the_code_is(quick_compiler: Path) -> None:
    assert run_command("node", "compile", "--json") == (0, f'{{"cache":"{quick_compiler}"}}\n', "")
    assert (quick_compiler / f"filled-{compiled.fingerprint()}").exists()
    assert run_command("node", "compile") == (0, f"compiled code is in {quick_compiler}\n", "")


@pytest.mark.usefixtures("quick_compiler")
def test_the_command_that_compiles_fails_if_nothing_would_be_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, _, errors = run_command("node", "compile")
    assert code == 1
    assert "XDG_CACHE_HOME" in errors
    assert run_command("node", "compile", "--dir", str(tmp_path / "node"))[0] == 0
    (tmp_path / "node" / CACHE).chmod(0o777)
    assert run_command("node", "compile", "--dir", str(tmp_path / "node"))[0] == 1
    monkeypatch.setattr(compiled, "COMPILER", "raise SystemExit('no memory')")
    code, _, errors = run_command("node", "compile", "--dir", str(tmp_path / "other"))
    assert code == 1
    assert "no memory" in errors


def test_settings_before_another_command_of_the_node_are_refused() -> None:
    for flags in (("--port", "7300"), ("--config", "node.toml"), ("--show-config",)):
        code, _, errors = run_command("node", *flags, "compile")
        assert code == 2
        assert errors.startswith(f"tidings: {flags[0]} is for starting a node")


def test_a_cache_from_a_machine_with_another_processor_is_filled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = "processor\t: {}\nmodel name\t: {}\ncpu MHz\t\t: {}\nflags\t\t: fpu sse {}\n\n"

    def made(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text)
        return compiled.fingerprint()

    monkeypatch.setattr(compiled, "CPU_INFO", tmp_path / "cpuinfo")
    one = made(core.format(0, "A", 800, "avx2"))
    assert made(core.format(0, "A", 3600, "avx2") + core.format(1, "A", 900, "avx2")) == one
    assert len({one, made(core.format(0, "B", 800, "avx2")), made(core.format(0, "A", 800, "avx512f"))}) == 3
    (tmp_path / "cpuinfo").unlink()
    assert len(compiled.fingerprint()) == 16  # as where there is no such file
