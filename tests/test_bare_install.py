"""tidings installed without extras, in an environment of its own, as a small device has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from adhoc.real import free_udp_ports

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def install(home: Path) -> Path:
    """Build a wheel and install it as a user would; returns the environment's folder of commands."""
    wheels, environment = home / "wheels", home / "environment"
    steps = [
        [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT],
        [sys.executable, "-m", "venv", "--without-pip", environment],
    ]
    for step in steps:
        result = run(*step)
        assert result.returncode == 0, result.stderr
    wheel = next(wheels.glob("tidings-*.whl"))
    lock = ["--constraint", ROOT / "requirements.lock"]
    result = run(*PIP, "--python", environment / "bin" / "python", "install", *lock, wheel)
    assert result.returncode == 0, result.stderr
    return environment / "bin"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("bare"))


def python(commands: Path, code: str) -> str:
    result = run(commands / "python", "-I", "-W", "error", "-c", code, cwd=commands)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_msgspec_is_the_only_dependency(commands: Path) -> None:
    listed = run(*PIP, "--python", commands / "python", "list", "--format", "json")
    assert sorted(package["name"] for package in json.loads(listed.stdout)) == ["msgspec", "tidings"]


def test_events_filters_and_the_index_work(commands: Path) -> None:
    code = """
from tidings import Event, Filter, Index
index = Index()
for limit in range(100):
    index.add(limit, Filter("type = 'air.pm10' AND value > :v", v=limit))
event = Event("air.pm10", value=2.5)
print(Filter("value > 2").matches(event), sorted(index.match(event)))"""
    assert python(commands, code) == "True [0, 1, 2]"


def test_codecs_work(commands: Path) -> None:
    code = """
from tidings import Batch, Event
from tidings.event.json import from_json, to_json
event = Event("air.pm10", value=2.5)
print(from_json(to_json(event)) == event, list(Batch.of([event])) == [event])"""
    assert python(commands, code) == "True True"


def test_queues_lookup_and_spaces_work_and_take_little_memory(commands: Path, tmp_path: Path) -> None:
    code = f"""
import resource
import tidings
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with tidings.blocking.open({str(tmp_path)!r}) as bus:
    jobs = bus.create_queue("jobs", priorities=True, properties={{"paper": "A4"}})
    jobs.put("job", number=1)
    jobs.put("job", number=2, priority=9)
    print([found.name for found in bus.lookup(properties={{"paper": "A4"}})], jobs.get()["number"])
    with bus.transaction() as tx:
        tx.put("jobs", "job", number=tx.get("jobs", timeout_s=60)["number"] + 2)
    bus.space("board").write(("a", 3))
with tidings.blocking.open({str(tmp_path)!r}) as bus:
    print(bus.queue("jobs").get(timeout_s=60)["number"], bus.space("board").take(("a", int), timeout_s=60))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 40)"""
    assert python(commands, code).splitlines() == ["['jobs'] 2", "3 ('a', 3)", "True"]


def test_queues_of_other_nodes_are_found_and_used(commands: Path) -> None:
    code = """
import asyncio
import tidings
from tidings.node.config import NodeConfig
from tidings.node.server import Node
async def work():
    kitchen = Node(NodeConfig(name="kitchen", port=0))
    await kitchen.start()
    async with tidings.connect(kitchen.addresses[0]) as there:
        await there.create_queue("jobs")
    async with tidings.open(peers={"kitchen": kitchen.addresses[0]}) as bus:
        while not await bus.lookup("jobs", scope="remote"):
            pass
        jobs = await bus.queue("jobs")
        await jobs.put("job", number=1)
        print(jobs, (await jobs.get(timeout_s=60))["number"])
    await kitchen.close()
asyncio.run(work())"""
    assert python(commands, code) == "<Queue 'jobs@kitchen'> 1"


def test_programs_that_meet_carry_messages_for_each_other(commands: Path) -> None:
    one, two = free_udp_ports(2)
    code = f"""
import asyncio
import tidings
def host(name, own, other):
    return tidings.open(None, adhoc={{"name": name, "adhoc_port": own, "adhoc_to": f"127.0.0.1:{{other}}"}})
async def work():
    async with host("one", {one}, {two}) as near, host("two", {two}, {one}) as far:
        jobs = await far.create_queue("jobs")
        await (await near.queue("jobs@two")).put("job", number=1)
        print((await jobs.get(timeout_s=60))["number"])
asyncio.run(work())"""
    assert python(commands, code) == "1"


REGULAR_EXPRESSION = """
from tidings import Filter
Filter("MATCHES(name, 'a+')")"""
ARROW = """
from tidings.event.arrow import schema
schema()"""


@pytest.mark.parametrize(("code", "extra"), [(REGULAR_EXPRESSION, "node"), (ARROW, "node")])
def test_a_missing_part_names_its_extra(commands: Path, code: str, extra: str) -> None:
    result = run(commands / "python", "-I", "-c", code)
    assert f"pip install 'tidings[{extra}]'" in result.stderr.splitlines()[-1]


def test_the_command_names_its_extra_without_a_traceback(commands: Path) -> None:
    result = run(commands / "tidings", "demo")
    assert result.returncode == 1
    assert result.stderr == "tidings: the command line needs the 'node' extra: pip install 'tidings[node]'\n"


def test_benchmarks_stay_in_the_checkout(commands: Path) -> None:
    code = """
from importlib import metadata
files = [str(file) for file in metadata.files("tidings") if file.suffix == ".py"]
print(len(files) > 100, [file for file in files if "bench" in file])"""
    assert python(commands, code) == "True ['tidings/cli/bench.py']"


def test_the_types_come_with_the_package(commands: Path) -> None:
    code = "import tidings, pathlib; print((pathlib.Path(tidings.__file__).parent / 'py.typed').exists())"
    assert python(commands, code) == "True"
