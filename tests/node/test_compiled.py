from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from node.peers import SOURCE

from tidings.node import compiled
from tidings.node.server import CACHE, cache_place


def test_code_is_loaded_when_there_is_much_to_do_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[None] = []
    monkeypatch.setattr(compiled, "exercise", lambda: loads.append(None))
    loader = compiled.Loader()
    for _ in range(compiled.BUSY_TICKS - 1):
        loader.busy()
    loader.filters(compiled.FILTERS_MANY - 1)
    loader.wait()
    assert loads == []
    loader.busy()
    loader.busy()
    loader.filters(compiled.FILTERS_MANY)
    loader.wait()
    assert loads == [None]


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


def test_a_cache_that_can_not_be_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(compiled.CACHE_VARIABLE, "")
    (tmp_path / "file").write_text("")
    compiled.prepare(tmp_path / "file" / "cache")
    assert "could not compile" in caplog.text


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    monkeypatch.setenv(compiled.CACHE_VARIABLE, "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(compiled, "COMPILE_S_MAX", 0.0)
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    (cache / f"filled-{compiled.fingerprint()}").touch()
    compiled.prepare(cache)
    used = Path(os.environ[compiled.CACHE_VARIABLE])
    assert used != cache
    assert compiled.is_private(used)
    assert "others can write to the cache of compiled code" in caplog.text


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
    prepare = f"""
import sys
from pathlib import Path
from tidings.node.compiled import prepare
prepare(Path({str(shared)!r}))
print("numba" in sys.modules)"""
    assert run_code(prepare, shared) == "False\n"
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
