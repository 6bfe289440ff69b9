"""Nothing that others send, and nothing that lies on disk, is ever run: looked for in the source.

What is checked is all of tidings but the commands and the simulator, which read nothing from
the network by themselves; those may not be reached from the rest.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tidings import Batch, Event, Filter
from tidings.errors import CodecError
from tidings.event.check_compiled import check_certain
from tidings.event.json import from_json
from tidings.event.wire import array_head, decode_events
from tidings.protocol.frames import read_frame
from tidings.protocol.messages import Request

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tidings"
APART = ("__main__.py", "cli", "simulator")
EXPERIMENTS = "pipeline/experiments.py"
"""The simulator on Spark: a part of the commands, and read by nothing else."""
"""Packages that are not checked, and that no checked module may import."""

PICKLES = {"pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib"}
"""Modules that make objects of any class out of bytes, and so run what the bytes say."""
MODULES = PICKLES | {"multiprocessing", "builtins", "code", "codeop", "runpy", "imp", "yaml"}
MODULES |= {"xmlrpc", "logging.config", "importlib.machinery"}
BUILTINS = {"eval", "exec", "compile", "__import__", "__builtins__"}
ATTRIBUTES = {"load_extension", "enable_load_extension", "read_pickle", "unsafe_load"}
COMMANDS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
"""What has a shell read a text."""
KEYWORDS = {"allow_pickle", "shell", "ext_hook"}

IMPORTERS = {
    "queues/types.py": "loads types of queues that the node's own settings name",
    "__init__.py": "gives names of tidings, from a fixed table, when they are asked for",
    "client/mobile.py": "loads the classes of agents that the settings of a node name",
}
"""Where a module is imported whose name is not written in the import."""

RUNNERS = {"pipeline/flow/program.py": "runs the flow graph in Python that the user's own command names"}
"""Where a file is run, by `runpy`."""


def dangers(source: str, is_importer: bool = False) -> Iterator[str]:
    """What a module has that could run what it is given, each with its line."""
    for node in ast.walk(ast.parse(source)):
        for what in _dangers_of(node, is_importer):
            yield f"line {getattr(node, 'lineno', 0)}: {what}"


def _dangers_of(node: ast.AST, is_importer: bool) -> Iterator[str]:
    match node:
        case ast.Import() | ast.ImportFrom():
            imported = list(_imported(node))
            yield from (name for name in imported if _is_within(name, MODULES | COMMANDS))
            yield from (name for name in imported if _is_within(name, {f"tidings.{one}" for one in APART}))
            if not is_importer and "importlib.import_module" in imported:
                yield "import_module"
        case ast.Name(id=name) if name in BUILTINS:  # not only where it is called: it could be handed on
            yield name
        case ast.Attribute(attr=name) if name in ATTRIBUTES:
            yield name
        case ast.Attribute(ast.Name(owner), name) if f"{owner}.{name}" in COMMANDS:
            yield f"{owner}.{name}"
        case ast.Attribute(attr="import_module") if not is_importer:
            yield "import_module"
        case ast.keyword(arg=str(name)) if name in KEYWORDS:
            yield name


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Every module that an import names, or may name: `from a import b` may mean the module `a.b`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module is not None:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def modules(*apart: str) -> list[Path]:
    found = (path for path in sorted(SOURCE.rglob("*.py")))
    return [path for path in found if path.relative_to(SOURCE).parts[0] not in apart]


def test_no_module_runs_what_it_is_given() -> None:
    checked = {str(path.relative_to(SOURCE)): path.read_text() for path in modules(*APART)}
    assert {"protocol/session.py", "event/wire.py", "store/records.py", "node/server.py"} <= set(checked)
    del checked[EXPERIMENTS]
    found = {name: list(dangers(source, name in IMPORTERS)) for name, source in checked.items()}
    run = {name: [one for one in what if one.endswith(": runpy")] for name, what in found.items()}
    assert {name for name, what in run.items() if what} == set(RUNNERS)
    assert {name: what for name, what in found.items() if what and what != run.get(name)} == {}


def test_nothing_at_all_reads_pickles() -> None:
    """Events and filters can be pickled by programs that want to; tidings never reads one."""
    assert all("__reduce__" in vars(kind) for kind in (Event, Filter, Batch))
    for path in [*modules(), *(ROOT / "benchmarks").glob("*.py")]:
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if _is_import(node)]
        assert not [name for node in imports for name in _imported(node) if _is_within(name, PICKLES)], path


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


@pytest.mark.parametrize("name", list(IMPORTERS))
def test_every_place_that_imports_by_name_is_still_one_and_nothing_worse(name: str) -> None:
    found = [danger.partition(": ")[2] for danger in dangers((SOURCE / name).read_text())]
    assert found == ["import_module"]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as innocent",
        "import marshal, json",
        "from pickle import loads",
        "def read(data):\n    from dill import loads\n    return loads(data)",
        "import multiprocessing.managers",
        "from multiprocessing import managers",
        "from concurrent import futures; import cloudpickle",
        "import logging.config",
        "from logging import config",
        "from tidings import simulator",
        "from tidings.cli.app import app",
        "import tidings.simulator.world",
        "eval(text)",
        "run = exec",
        "list(map(eval, texts))",
        "compile(text, 'x', 'exec')",
        "__import__(name)",
        "__builtins__['eval'](text)",
        "import builtins",
        "from importlib import import_module",
        "import importlib; importlib.import_module(name)",
        "import yaml; yaml.load(text)",
        "numpy.load(file, allow_pickle=True)",
        "subprocess.run(command, shell=True)",
        "os.system(command)",
        "from os import system",
        "msgspec.msgpack.Decoder(ext_hook=hook)",
        "connection.enable_load_extension(True)",
    ],
)
def test_the_check_finds_what_it_looks_for(source: str) -> None:
    assert list(dangers(source))


@pytest.mark.parametrize(
    "source",
    [
        "import re; re.compile(pattern)",
        "from tidings.node import compiled",
        "self.execute(statement)",
        "origin.system",
        "import json; json.loads(text)",
        "import importlib.metadata",
        "evaluate = 1",
        "'eval(text)'  # exec",
    ],
)
def test_the_check_passes_over_what_only_looks_alike(source: str) -> None:
    assert list(dangers(source)) == []


# -- what is installed with it

FORMATS = {"cloudpickle", "dill", "joblib", "jsonpickle", "pyyaml", "ruamel-yaml"}
RUNNING = ("node", "geo", "postgres", "mqtt", "mdns", "zstd", "encryption")
"""The extras that a node or a client has; `spark` is for other programs, `dev` for these tests."""


def test_no_dependency_brings_in_a_format_that_is_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(line for extra in RUNNING for line in project["optional-dependencies"][extra]),
    ]
    brought = closure(asked)
    assert {"msgspec", "numba", "zeroconf", "ifaddr", "cryptography"} <= brought
    assert not brought & FORMATS


def closure(lines: list[str]) -> set[str]:
    """The names of what these requirements bring in, as far as it is installed here."""
    names: set[str] = set()
    waiting = [Requirement(line) for line in lines]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in names and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            names.add(name)
            waiting += map(Requirement, _requires(name))
    return names


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


# -- msgpack has extension types, which some readers turn into objects

EXTENSION = msgspec.msgpack.Ext(42, b"cos\nsystem\n(S'true'\ntR.")  # as a pickle would have it
GOOD = [1, "t", 0, {"a": 1}, None, None]


def wire(element: int, value: object) -> bytes:
    """An event that is good but for one element."""
    return array_head(1) + msgspec.msgpack.encode([*GOOD[:element], value, *GOOD[element + 1 :]])


@pytest.mark.parametrize("element", range(len(GOOD)))
@pytest.mark.parametrize("value", [EXTENSION, {"subject": EXTENSION}, [EXTENSION]])
def test_an_extension_type_in_an_event_is_refused_wherever_it_stands(element: int, value: object) -> None:
    raw = wire(element, value)
    with pytest.raises(CodecError):
        decode_events(raw)
    assert check_certain(raw) is None  # it is not certain, and leaves it to decoding


def test_an_extension_type_in_a_header_field_that_is_not_known_is_passed_over() -> None:
    (event,) = decode_events(wire(4, {"unknown": EXTENSION}))
    assert event == decode_events(wire(4, None))[0]


def test_an_extension_type_in_a_request_stays_bytes() -> None:
    content = msgspec.msgpack.encode([1, "status", {"a": EXTENSION}])
    message, _ = read_frame(Request.KIND, content)
    assert isinstance(message, Request)
    assert message.arguments == {"a": EXTENSION}


@pytest.mark.parametrize("key", ["__class__", "__reduce__", "py/object", "!!python/object"])
def test_json_that_names_a_class_is_text(key: str) -> None:
    event = from_json(f'{{"type": "t", "{key}": "os.system"}}')
    assert event.attributes[key] == "os.system"
