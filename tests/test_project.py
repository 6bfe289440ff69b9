"""The promises that no single module keeps: imports, layers, set-up, the lock, what may be skipped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

import tidings

ROOT = Path(__file__).parent.parent
HEAVY = ("numpy", "numba", "pyarrow", "re2", "typer", "rich", "shapely", "uvloop", "cryptography", "asyncio")


def run_python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


# -- what `import tidings` gives and costs


def test_the_package_exports_at_most_25_names_and_all_of_them_exist() -> None:
    assert len(tidings.__all__) <= 25
    assert all(getattr(tidings, name) is not None for name in tidings.__all__)
    assert set(tidings.__all__) <= set(dir(tidings))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tidings.nonsense  # noqa: B018


def test_importing_tidings_brings_in_no_other_package() -> None:
    loaded = run_python(
        f"import tidings, sys; print(*[m for m in {HEAVY!r} + ('msgspec',) if m in sys.modules])"
    )
    assert loaded == ""


def test_making_and_matching_an_event_needs_no_extra() -> None:
    code = f"""
import sys
from tidings import Event, Filter
assert Filter("value > 40").matches(Event("air.pm10", value=41.2))
print(*[m for m in {HEAVY!r} if m in sys.modules])"""
    assert run_python(code) == ""


def test_the_version_stands_in_the_changelog() -> None:
    assert f"## {tidings.__version__}" in (ROOT / "CHANGELOG.md").read_text()


# -- the lock


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_lock_holds_names_and_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert len(lines) > 20
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9-]+==[0-9a-z.+!]+", line), line


def test_the_lock_names_everything_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    parts = (extras[name] for name in ("node", "spark", "geo", "concepts", "dev"))
    asked = [*project["dependencies"], *chain.from_iterable(parts)]
    names = {re.split(r"[^a-zA-Z0-9-]", line)[0] for line in asked}
    assert names <= set(locked())


def test_the_bare_install_asks_for_msgspec_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split(r"[^a-z]", line)[0] for line in project["dependencies"]] == ["msgspec"]


# -- the scripts on machines that lack something: every command they call is a small stand-in on PATH


class Machine:
    """A folder with the scripts and a PATH of its own, on which commands do what the test says."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "bin"
        (home / "scripts").mkdir()
        self.bin.mkdir()
        for script in ("setup", "apt", "java", "tools"):
            shutil.copy(ROOT / "scripts" / script, home / "scripts")
        (home / "requirements.lock").write_text("msgspec==1.0\n")
        for name in (
            "sh",
            "dirname",
            "rm",
            "mkdir",
            "chmod",
            "cat",
            "touch",
            "grep",
            "sed",
            "readlink",
            "env",
            "ls",
        ):
            (self.bin / name).symlink_to(str(shutil.which(name)))

    def command(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.home}/calls\n{script}\n')
        path.chmod(0o755)

    def java(self, home: str, version: str) -> Path:
        """Put a Java into a folder of this machine."""
        path = self.home / home / "bin" / "java"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        path.chmod(0o755)
        return path

    def setup(self) -> subprocess.CompletedProcess[str]:
        return self.run("setup")

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", self.home / "scripts" / script],
            env={"PATH": str(self.bin), "JAVA_HOMES": str(self.home / "jvm"), **environment},
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> str:
        calls = self.home / "calls"
        return calls.read_text() if calls.exists() else ""


# A python3 whose venv works once the Debian package is there: the file `package` stands for it.
PYTHON = """
case "$*" in
    --version) echo Python 3.11.2 ;;
    "-m venv"*)
        mkdir -p .venv/bin
        test -e package || { echo ensurepip is not available; exit 1; }
        printf '#!/bin/sh\\necho pip "$@" >> calls\\n' > .venv/bin/pip
        chmod +x .venv/bin/pip ;;
esac"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.command("python3", PYTHON)
    machine.command("id", "echo 1000")
    machine.command("sudo", "exit 1")
    machine.command("apt-get", 'case "$*" in install*) touch package ;; esac')
    machine.java("jvm/java-17", "17.0.15")
    return machine


def test_setup_makes_an_environment_and_installs_the_lock_then_tidings(machine: Machine) -> None:
    (machine.home / "package").touch()
    result = machine.setup()
    assert result.returncode == 0, result.stderr
    installs = [line for line in machine.calls.splitlines() if line.startswith("pip install")]
    assert "--requirement requirements.lock" in installs[0]
    assert installs[1].endswith("--editable .")
    assert (machine.home / ".venv" / ".ready").exists()
    assert "apt-get" not in machine.calls


def test_setup_keeps_an_environment_that_is_there(machine: Machine) -> None:
    (machine.home / "package").touch()
    machine.setup()
    (machine.home / "calls").unlink()
    assert machine.setup().returncode == 0
    assert "venv" not in machine.calls


def test_setup_without_rights_prints_the_command_to_type_and_leaves_nothing_behind(machine: Machine) -> None:
    result = machine.setup()
    assert result.returncode == 1
    assert "\n    sudo apt-get install -y python3-venv\n" in result.stderr
    assert not (machine.home / ".venv").exists()
    assert "apt-get" not in machine.calls


@pytest.mark.parametrize(
    ("command", "script"), [("id", "echo 0"), ("sudo", 'test "$2" = true || { shift; "$@"; }')]
)
def test_setup_with_rights_installs_the_missing_package(machine: Machine, command: str, script: str) -> None:
    machine.command(command, script)
    result = machine.setup()
    assert result.returncode == 0, result.stderr
    assert "apt-get install -y -qq python3-venv" in machine.calls
    assert (machine.home / ".venv" / ".ready").exists()


def test_setup_where_venv_fails_for_good_says_why(machine: Machine) -> None:
    machine.command("id", "echo 0")
    machine.command("apt-get", "")
    result = machine.setup()
    assert result.returncode == 1
    assert "ensurepip is not available" in result.stderr


def test_setup_on_an_old_python_says_what_is_needed(machine: Machine) -> None:
    machine.command("python3", "exit 1")
    result = machine.setup()
    assert result.returncode == 1
    assert "Python 3.11 or newer is needed" in result.stderr


def test_setup_without_java_leaves_an_environment_that_the_next_time_is_not_made_again(
    machine: Machine,
) -> None:
    (machine.home / "package").touch()
    shutil.rmtree(machine.home / "jvm")
    result = machine.setup()
    assert result.returncode == 1
    assert "\n    sudo apt-get install -y default-jre-headless\n" in result.stderr
    assert "tidings demo --no-spark" in result.stderr
    assert not (machine.home / ".venv" / ".ready").exists()
    machine.java("jvm/java-17", "17.0.15")
    assert machine.setup().returncode == 0
    assert machine.calls.count("-m venv") == 1


def test_the_environment_is_made_again_only_when_its_inputs_change() -> None:
    rule = (ROOT / "Makefile").read_text()
    inputs = "requirements.lock pyproject.toml scripts/setup scripts/apt scripts/java"
    assert f"$(READY): {inputs}\n\t@scripts/setup\n" in rule


# -- scripts/java: which Java Spark gets


def test_the_java_of_path_is_taken_if_it_is_new_enough(machine: Machine) -> None:
    (machine.bin / "java").symlink_to(machine.java("opt/java-21", "21"))
    result = machine.run("java")
    assert (result.returncode, result.stdout) == (0, f"{machine.home}/opt/java-21\n")


def test_the_java_of_java_home_goes_first(machine: Machine) -> None:
    (machine.bin / "java").symlink_to(machine.java("opt/java-21", "21"))
    machine.java("my own/java", "25-ea")
    assert (
        machine.run("java", JAVA_HOME=f"{machine.home}/my own/java").stdout == f"{machine.home}/my own/java\n"
    )


@pytest.mark.parametrize("version", ["1.8.0_452", "11.0.27", "16.0.2"])
def test_a_java_that_is_too_old_gives_way_to_a_newer_one_of_this_machine(
    machine: Machine, version: str
) -> None:
    old = machine.java("jvm/a-old", version)
    (machine.bin / "java").symlink_to(old)
    result = machine.run("java", JAVA_HOME=str(old.parent.parent))
    assert (result.returncode, result.stdout) == (0, f"{machine.home}/jvm/java-17\n")
    assert not machine.calls


@pytest.mark.parametrize("version", ["", "11.0.27"])
def test_without_rights_a_missing_java_is_named_with_the_command_to_type(
    machine: Machine, version: str
) -> None:
    shutil.rmtree(machine.home / "jvm")
    if version:
        machine.java("jvm/java-11", version)
    result = machine.run("java")
    assert (result.returncode, result.stdout) == (1, "")
    assert "needs Java 17 or newer" in result.stderr
    assert "\n    sudo apt-get install -y default-jre-headless\n" in result.stderr
    assert "apt-get" not in machine.calls


def offer(machine: Machine, **versions: str) -> None:
    """Have root's apt-get bring a Java of these versions, by the beginning of the package's name."""
    (machine.bin / "cp").symlink_to(str(shutil.which("cp")))
    machine.command("id", "echo 0")
    script = ""
    for package, version in versions.items():
        machine.java(f"made/{version}", version)
        script += f'case "$*" in install*{package}*) cp -r made/{version} jvm/{version} ;; esac\n'
    machine.command("apt-get", script)
    shutil.rmtree(machine.home / "jvm")
    (machine.home / "jvm").mkdir()


def test_with_rights_a_missing_java_is_installed(machine: Machine) -> None:
    offer(machine, default="21.0.7")
    result = machine.run("java")
    assert (result.returncode, result.stdout) == (0, f"{machine.home}/jvm/21.0.7\n"), result.stderr
    assert "apt-get install -y -qq default-jre-headless" in machine.calls
    assert "openjdk-17" not in machine.calls


def test_where_the_default_java_is_too_old_the_17th_is_installed(machine: Machine) -> None:
    offer(machine, default="11.0.27", openjdk="17.0.15")
    result = machine.run("java")
    assert (result.returncode, result.stdout) == (0, f"{machine.home}/jvm/17.0.15\n"), result.stderr


def test_a_java_that_can_not_be_had_is_told(machine: Machine) -> None:
    offer(machine)
    machine.command("apt-get", "exit 100")
    result = machine.run("java")
    assert result.returncode == 1
    assert "could not be installed" in result.stderr


# -- scripts/tools


def test_tools_that_are_missing_are_installed_with_rights_and_named_without(machine: Machine) -> None:
    told = machine.run("tools")
    assert told.returncode == 0
    assert "type: sudo apt-get install -y strace" in told.stdout
    assert "apt-get" not in machine.calls
    machine.command("id", "echo 0")
    assert machine.run("tools").returncode == 0
    assert "apt-get install -y -qq strace" in machine.calls


def test_tools_that_can_not_be_installed_fail_nothing(machine: Machine) -> None:
    machine.command("id", "echo 0")
    machine.command("apt-get", "exit 100")
    told = machine.run("tools")
    assert told.returncode == 0
    assert "could not install strace" in told.stdout


# -- what may be skipped

SKIPPING = """
import pytest
def test_one(): pytest.skip("no data here")
@pytest.mark.xfail
def test_two(): assert False
"""
SKIPPING_MODULE = "import pytest; pytest.skip('not on this machine', allow_module_level=True)"

HANGING = """
import time
def test_waiting(): time.sleep(20)
"""
INTERRUPTING = """
import signal, subprocess
def test_interrupting():
    with subprocess.Popen(["sleep", "20"]) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
"""
RunTests = Callable[..., pytest.RunResult]


@pytest.fixture
def run_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    """Runs a file of tests under this project's conftest, with CI and skips.txt as given."""

    def run(source: str, *, ci: str, skips: str = "") -> pytest.RunResult:
        monkeypatch.setenv("CI", ci)
        pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
        for name in ("effort", "quick_java"):
            pytester.makepyfile(**{name: (ROOT / "tests" / f"{name}.py").read_text()})
        (pytester.path / "skips.txt").write_text(skips)
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider")

    return run


@pytest.mark.parametrize("source", [SKIPPING, SKIPPING_MODULE])
def test_a_skip_fails_the_run_in_ci(run_tests: RunTests, source: str) -> None:
    result = run_tests(source, ci="true")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*was skipped and tests/skips.txt does not name it*"])


@pytest.mark.parametrize("source", [SKIPPING, SKIPPING_MODULE])
def test_a_skip_that_is_listed_passes_in_ci(run_tests: RunTests, source: str) -> None:
    assert run_tests(source, ci="true", skips="# notes\ntest_it.py  # needs data\n").ret in (0, 5)


def test_a_skip_of_another_test_is_no_excuse(run_tests: RunTests) -> None:
    assert run_tests(SKIPPING, ci="true", skips="test_it.py::test_two  # needs data\n").ret == 1


def test_a_skip_is_a_skip_elsewhere(run_tests: RunTests) -> None:
    run_tests(SKIPPING, ci="").assert_outcomes(skipped=1, xfailed=1)


def test_every_listed_skip_has_a_reason_and_names_a_test_that_exists() -> None:
    for line in (ROOT / "tests" / "skips.txt").read_text().splitlines():
        node_id, _, reason = line.partition("#")
        if node_id.strip():
            file, _, function = node_id.strip().partition("::")
            assert reason.strip(), line
            assert f"def {function}" in (ROOT / file).read_text(), line


# -- what the tree may not say


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    assert Path(__file__) in found
    return found


def test_no_file_names_a_package_index() -> None:
    words = [b"index" + b"-url", b"find" + b"-links", b"pypi" + b".org/simple", b"file:///" + b"opt"]
    for path in project_files():
        text = path.read_bytes()
        assert not [word for word in words if word in text], path


@pytest.mark.parametrize("name", ["scripts/setup", "scripts/java", "scripts/tools", ".ci/run"])
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


# -- tests end, however they are started


def test_a_test_that_never_ends_fails(run_tests: RunTests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_PATIENCE", "0.003")
    result = run_tests(HANGING, ci="true")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Timeout*"])


def test_programs_that_tests_start_can_be_interrupted_though_all_runs_in_the_background(
    run_tests: RunTests,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it leaves behind
    try:
        run_tests(INTERRUPTING, ci="true").assert_outcomes(passed=1)
    finally:
        signal.signal(signal.SIGINT, before)
