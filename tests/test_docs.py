"""What the documents say is run: code with its output, commands with theirs, and the tests they name."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import msgspec
import pytest
from effort import ANSWER_S
from typer.main import get_command
from typer.testing import CliRunner

import tidings
from tidings.adhoc.settings import AdhocSettings
from tidings.cli.app import app
from tidings.client import Bus, Interest, Subscription, Transaction, message, queue, worker
from tidings.client.advertisements import Offers
from tidings.client.listener import Listener
from tidings.client.runner import Runner
from tidings.client.space import Watch
from tidings.errors import TidingsError
from tidings.event.header import FIELD_CHECKS
from tidings.exchange import REPORTED_MAX, Exchange
from tidings.interest.audience import REPORTED_SIZE_MAX
from tidings.node.assembly import CoreSettings, NodeCore, NodeService
from tidings.node.config import NodeConfig
from tidings.node.metrics import HELP
from tidings.node.server import Node
from tidings.node.settings import PREFIX, load
from tidings.protocol import login, session, subscriptions
from tidings.protocol.consumer import CREDITED_SIZE_MAX, WAITING_MAX, WAITING_SIZE_MAX, Consumer
from tidings.protocol.frames import FIRST_FRAME_MAX, FRAME_MAX, REPLY_MAX
from tidings.protocol.messages import KINDS
from tidings.protocol.outbox import ROOM
from tidings.protocol.publishing import Publishing
from tidings.protocol.session import Session
from tidings.protocol.worker import UNREAD_SIZE_MAX
from tidings.queues import (
    arguments,
    dead_letters,
    description,
    inflight,
    manager,
    service,
    transactions,
    waiting,
)
from tidings.queues.description import REPORTED, Description
from tidings.security.inviting import Inviting
from tidings.store.memory import MemoryStore

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
API = (ROOT / "docs" / "api.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (?P<feature>.+?) \| (?P<name>.+?) \| (?P<test>.+?) \|$", re.MULTILINE)

PATIENCE_S = ANSWER_S
"""After this an example that waits for something is taken to wait for ever."""


class Example(NamedTuple):
    line: int
    code: str
    output: str | None


def examples(text: str) -> Iterator[Example]:
    """The blocks of Python in a document; output is the unnamed block that follows at once."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip_longest(blocks, blocks[1:]):
        if block[1] == "python":
            shown = following and not following[1] and not text[block.end() : following.start()].strip()
            yield Example(text.count("\n", 0, block.start()) + 2, block[2], following[2] if shown else None)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command` of the console blocks in a document, with the output below it."""
    for block in BLOCK.finditer(text):
        if block[1] == "console":
            for part in re.split(r"^\$ ", block[2], flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield command, output


class Interpreter:
    """Runs the examples of one document, one after the other, as `python -m asyncio` would."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._names: dict[str, Any] = {}
        self._runner = runner

    def printed_by(self, example: Example) -> str:
        """Run the code; the last expression of the block is shown as an interpreter would show it."""
        tree = ast.parse(example.code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self._run(tree, "exec")
            if isinstance(last, ast.Expr):
                value = self._run(ast.Expression(last.value), "eval")
                if value is not None:
                    printed.write(f"{value!r}\n")
        return printed.getvalue()

    def _run(self, tree: ast.AST, mode: str) -> Any:
        code = compile(tree, "example", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, self._names)
        if code.co_flags & inspect.CO_COROUTINE:
            return self._runner.run(asyncio.wait_for(result, PATIENCE_S))
        return result


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_print_what_the_document_shows(document: Path) -> None:
    with asyncio.Runner() as runner:
        interpreter = Interpreter(runner)
        for example in examples(document.read_text()):
            printed = interpreter.printed_by(example)
            if example.output is not None:
                assert printed == example.output, f"{document.name}, line {example.line}"


def test_examples_and_commands_are_found_in_the_documents() -> None:
    """A change of how they are written must not leave them unrun."""
    texts = {path.name: path.read_text() for path in reversed(DOCUMENTS)}  # README.md: that of the project
    shown = {name: sum(one.output is not None for one in examples(text)) for name, text in texts.items()}
    told = {name: len(list(commands(text))) for name, text in texts.items()}
    with_examples = {"README.md", "client.md", "encryption.md", "filters.md", "queues.md", "spaces.md"}
    with_examples |= {"payloads.md", "channels.md"}
    assert with_examples <= {name for name, count in shown.items() if count}
    assert {"README.md", "channels.md", "node.md", "queues.md", "security.md"} <= {
        name for name, count in told.items() if count
    }
    for name, text in texts.items():
        blocks = re.findall(r"^ *[`~]{3,} *python\b", text, re.MULTILINE)
        assert len(list(examples(text))) == len(blocks), name


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node beside the test, to which commands go; it runs in a loop of its own."""
    runner = Runner()
    settings = NodeConfig(
        dir=str(tmp_path / "node"),
        name="here",
        port=0,
        http_port=0,
        compiled=False,
        adhoc=True,
        adhoc_port=0,
    )
    node = Node(settings)
    runner.run(node.start())
    monkeypatch.setenv("TIDINGS_NODE", node.addresses[0])
    yield node
    runner.run(node.close())
    runner.stop()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_print_what_the_document_shows(document: Path) -> None:
    """In the documents … stands for whatever is on that line."""
    for command, shown in commands(document.read_text()):
        name, *arguments = shlex.split(command)
        assert name == "tidings", command
        printed = printed_by_command(arguments)
        assert re.fullmatch(re.escape(shown).replace("…", ".*"), printed), f"{command}\n{printed}"


def printed_by_command(arguments: list[str]) -> str:
    """All that a command says; an error of tidings is said as `tidings.cli.main` says it."""
    result = CliRunner().invoke(app, arguments)
    if isinstance(result.exception, TidingsError):
        return f"{result.output}tidings: {result.exception}\n"
    return result.output


def test_the_readme_shows_code_with_its_output_by_line_25() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    first = next(examples("\n".join(lines)))
    assert lines[0] == "# tidings"
    assert first.line <= 25
    assert first.output


def test_the_path_of_an_event_is_five_names_that_exist() -> None:
    path = (ROOT / "README.md").read_text().partition("The path of one event, in five names:")[2]
    steps = re.findall(r"`(\w+)\.(\w+)`", path.partition("\n\n")[0])
    homes = {kind.__name__: kind for kind in (Bus, Session, Publishing, Exchange, Consumer)}
    assert [callable(getattr(homes[name], method)) for name, method in steps] == [True] * 5


def test_the_commands_to_set_up_are_targets_of_the_makefile() -> None:
    text, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert set(targets) >= {"run", "test"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_links_between_documents_lead_somewhere() -> None:
    found = 0
    for document in [*DOCUMENTS, *ROOT.glob("*.md"), ROOT / "examples" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
            found += 1
    assert found > 20


def test_the_map_names_every_package_and_each_has_a_folder_of_tests() -> None:
    packages = sorted(path.parent.name for path in (ROOT / "src" / "tidings").glob("*/__init__.py"))
    mapped = (ROOT / "docs" / "README.md").read_text().partition("The packages in `src/tidings`")[2]
    assert sorted(re.findall(r"`(\w+)/`", mapped.partition("| --- | --- |")[2])) == packages
    assert [one for one in packages if not (ROOT / "tests" / one).is_dir()] == []


def test_every_example_program_is_listed() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def rows_of(document: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its two first lines."""
    text = (ROOT / "docs" / document).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# -- what is said to those who come from elsewhere


def comparisons() -> list[str]:
    """The code in the third columns of the tables."""
    text = (ROOT / "docs" / "coming-from.md").read_text()
    return [code for row in ROW.finditer(text) for code in names_in(row["test"])]


def test_every_example_for_those_who_come_from_elsewhere_works() -> None:
    asyncio.run(asyncio.wait_for(carry_out(comparisons()), PATIENCE_S))


async def carry_out(examples: list[str]) -> None:
    assert len(examples) > 180
    async with tidings.open() as bus:

        async def answer(request: tidings.Event) -> None:
            await bus.reply(request, "answer")

        orders = bus.subscribe("type = 'order'", durable="orders", acknowledge="client")
        jobs, taken = await bus.create_queue("jobs"), await bus.create_queue("taken")
        space = await bus.space("space")
        async with (
            bus.listen("type LIKE '%.ask'", answer),
            orders,
            bus.subscribe("type = 'clicks'") as clicks,
            taken.messages() as messages,
        ):
            await bus.publish("order", delivery="reliable")
            names = {"tidings": tidings, "bus": bus, "orders": orders, "clicks": clicks, "jobs": jobs}
            names |= {"event": await anext(orders), "moment": datetime.now(UTC), "space": space}
            for code in examples:
                for one in (jobs, taken):
                    await one.put("job", color="blue", priority=7)
                await space.write(("temperature", "north", 21.5))
                await space.write(tidings.Event("shape.circle", radius=2))
                names["message"] = await anext(messages)
                await carry_out_one(eval(code.removeprefix("await "), names))


async def carry_out_one(result: Any) -> None:
    if isinstance(result, Subscription):
        await result.__aenter__()
        await result.leave()
    elif isinstance(result, Transaction | Watch | Interest | Listener | message.Take | worker.Messages):
        async with result:
            pass
    elif isinstance(result, Offers):
        await anext(result)
    elif inspect.isawaitable(result):
        await result


# -- what is said of the node


def test_the_settings_of_a_node_are_those_there_are() -> None:
    rows = rows_of("node.md", "Settings")
    fields = msgspec.structs.fields(NodeConfig)
    flags = {flag for parameter in get_command(app).commands["node"].params for flag in parameter.opts}
    assert [row[0] for row in rows] == [f"`{field.name}`" for field in fields]
    for (key, flag, variable, default, _), field in zip(rows, fields, strict=True):
        assert names_in(flag)[0] in flags
        assert names_in(variable) == [PREFIX + names_in(key)[0].upper()]
        shown = json.loads(msgspec.json.encode(field.default))
        assert default == ("none" if shown is None else f"`{str(shown).lower()}`"), key


def test_the_file_of_settings_is_one(tmp_path: Path) -> None:
    blocks = BLOCK.finditer((ROOT / "docs" / "node.md").read_text())
    found = [block[2] for block in blocks if block[1] == "toml"]
    assert found
    for text in found:
        file = tmp_path / "node.toml"
        file.write_text(text)
        assert load(file).dir == "/var/lib/tidings"


def test_the_metrics_are_those_there_are(node: Node) -> None:
    with tidings.blocking.connect(node.addresses[0]) as bus, bus.subscribe(durable="all"):
        bus.create_queue("jobs")
        bus.create_channel("trip")
        node.driver.core.registry.discover("kitchen", "tidings+tls://127.0.0.1:1", 0.0)
        assert node.metrics_address is not None
        with urlopen(node.metrics_address) as page:
            shown = set(re.findall(r"^# TYPE (\w+)", page.read().decode(), re.MULTILINE))
    possible = shown | {f"tidings_{what}_total" for what in HELP}
    assert {names_in(row[0])[0] for row in rows_of("node.md", "Metrics")} == possible


def test_the_lines_of_the_log_are_those_there_are() -> None:
    node = ROOT / "src" / "tidings" / "node"
    sources = "".join(file.read_text() for file in node.glob("*.py"))
    written = set(re.findall(r'logs\.(\w+)\(\s*"([^"]+)"', sources))
    written |= set(re.findall(r'\s(info|warning|error)\("([^"]+)"', (node / "logs.py").read_text()))
    for package in ("peers", "overlay"):
        for file in (ROOT / "src" / "tidings" / package).glob("*.py"):
            written |= set(re.findall(r'[._]log\(\s*"(\w+)", "([^"]+)"', file.read_text()))
    for begun, passed in re.findall(r'Lasting\("([^"]+)", "([^"]+)"\)', sources):
        written |= {("error", begun), ("info", passed)}
    rows = rows_of("node.md", "Logs")
    assert {(level, name) for level, events, _ in rows for name in names_in(events)} == written


# -- what is said of the protocol


def test_the_frames_of_the_protocol_are_those_there_are() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([A-Z]+) \| \w+ \| (.*) \|$", text, re.MULTILINE)
    said = {int(number): (name, re.findall(r"`(\w+)`", header)) for number, name, header in rows}
    kinds = {number: (kind.__name__.upper(), list(kind.__struct_fields__)) for number, kind in KINDS.items()}
    assert said == kinds


def test_the_operations_of_the_protocol_are_those_there_are() -> None:
    operations = {name: kind for name, (kind, _) in session._OPERATIONS.items() if name != "status"}
    settings = CoreSettings(name="n", lasts=False, adhoc=AdhocSettings())
    broker = NodeCore(MemoryStore("n"), settings, 0.0, bytes).broker
    inviting = Inviting(broker, None, lambda: None, lambda: None, lambda _name, _address: None)
    added = {**broker.operations, **NodeService(dict).operations, **inviting.operations}
    of_others = ("log.", "sink.", "queue.create")  # said in other tables
    operations |= {name: kind for name, (kind, _) in added.items() if not name.startswith(of_others)}
    said = {
        names_in(name)[0]: names_in(arguments) for name, arguments, _ in rows_of("protocol.md", "Requests")
    }
    there_are = {name: list(kind.__struct_fields__) for name, kind in operations.items()}
    assert said == {**there_are, "status": [], "queue.create": []}


def test_the_operations_of_the_log_are_those_there_are() -> None:
    operations = NodeCore(MemoryStore("n"), CoreSettings(lasts=False), 0.0, bytes).log.operations
    said = {names_in(row[0])[0]: names_in(row[1]) for row in rows_of("protocol.md", "The log")}
    assert said == {name: list(kind.__struct_fields__) for name, (kind, _) in operations.items()}


def test_the_limits_of_the_protocol_are_those_in_force() -> None:
    said = {names_in(row[0])[0]: row[1] for row in rows_of("protocol.md", "Limits")}
    assert said == {
        "FIRST_FRAME_MAX": f"{FIRST_FRAME_MAX >> 10} KiB",
        "FRAME_MAX": f"{FRAME_MAX >> 20} MiB",
        "REPLY_MAX": f"{REPLY_MAX >> 10:,} KiB",
        "WINDOW": f"{login.WINDOW >> 20} MiB",
        "OUTBOX_SIZE_MAX": f"{session.OUTBOX_SIZE_MAX >> 20} MiB",
        "ROOM": f"{ROOM >> 20} MiB",
        "UNREAD_SIZE_MAX": f"{UNREAD_SIZE_MAX >> 20} MiB",
        "READ_S_MAX": f"{session.READ_S_MAX:g} s",
        "CREDITED_SIZE_MAX": f"{CREDITED_SIZE_MAX >> 20} MiB",
        "WAITING_MAX": f"{WAITING_MAX:,} events",
        "WAITING_SIZE_MAX": f"{WAITING_SIZE_MAX >> 20} MiB",
        "SUBSCRIPTIONS_MAX": f"{subscriptions.SUBSCRIPTIONS_MAX:,}",
        "REPORTED_MAX": f"{REPORTED_MAX} filters",
        "REPORTED_SIZE_MAX": f"{REPORTED_SIZE_MAX >> 20} MiB",
        "NAME_LENGTH_MAX": f"{session.NAME_LENGTH_MAX} characters",
        "HELLO_S_MAX": f"{session.HELLO_S_MAX:g} s",
        "SILENT_S_MAX": f"{session.SILENT_S_MAX:g} s",
    }


# -- what is said of queues


def test_the_fields_of_a_queue_are_those_there_are() -> None:
    rows = rows_of("queues.md", "Description")
    fields = msgspec.structs.fields(Description)
    assert [row[0] for row in rows] == [f"`{field.name}`" for field in fields]
    plain = Description()
    for (_, default, _), field in zip(rows, fields, strict=True):
        assert default == ("reported" if field.name in REPORTED else f"`{getattr(plain, field.name)!r}`")


def test_the_header_fields_that_can_be_searched_are_all_but_the_body() -> None:
    said = (ROOT / "docs" / "queues.md").read_text().partition("header field can be asked for")[2]
    names = names_in(said.partition(".\n")[0])
    assert set(names) == {"type", *FIELD_CHECKS} - {"body"}


def test_the_limits_of_queues_are_those_in_force() -> None:
    said = {names_in(row[0])[0]: row[1] for row in rows_of("queues.md", "Limits")}
    assert said == {
        "description.NAME_LENGTH_MAX": f"{description.NAME_LENGTH_MAX} characters",
        "description.TEXT_LENGTH_MAX": f"{description.TEXT_LENGTH_MAX:,} characters",
        "description.PROPERTIES_MAX": f"{description.PROPERTIES_MAX}",
        "manager.QUEUES_MAX": f"{manager.QUEUES_MAX:,}",
        "manager.SIZE_MAX": f"{manager.SIZE_MAX >> 30} GiB",
        "letters.DEAD_MAX": f"{dead_letters.DEAD_MAX:,}",
        "waiting.WAITING_MAX": f"{waiting.WAITING_MAX:,}",
        "waiting.ANSWER_SIZE_MAX": f"{waiting.ANSWER_SIZE_MAX >> 20} MiB",
        "manager.FOUND_MAX": f"{manager.FOUND_MAX:,}",
        "service.STATUS_QUEUES_MAX": f"{service.STATUS_QUEUES_MAX:,}",
        "arguments.GET_MAX": f"{arguments.GET_MAX:,}",
        "waiting.ANSWER_COUNT_MAX": f"{waiting.ANSWER_COUNT_MAX:,}",
        "inflight.RESUME_S": f"{inflight.RESUME_S:g} s",
        "transactions.TRANSACTION_S_MAX": f"{transactions.TRANSACTION_S_MAX:g} s",
        "transactions.TRANSACTIONS_MAX": f"{transactions.TRANSACTIONS_MAX:,}",
        "transactions.MESSAGES_MAX": f"{transactions.MESSAGES_MAX:,}",
        "transactions.SIZE_MAX": f"{transactions.SIZE_MAX >> 20} MiB",
        "description.REASON_LENGTH_MAX": f"{description.REASON_LENGTH_MAX} characters",
        "description.DELAY_S_MAX": f"{description.DELAY_S_MAX:,.0f} s",
        "description.RETRIES_MAX": f"{description.RETRIES_MAX}",
        "description.GROUP_LENGTH_MAX": f"{description.GROUP_LENGTH_MAX} characters",
        "description.RATE_MAX": f"{description.RATE_MAX:,.0f}",
        "queue.PREFETCH_MAX": f"{queue.PREFETCH_MAX:,}",
        "worker.HANDED_MAX": f"{worker.HANDED_MAX:,}",
    }


# -- what is guaranteed


MISHAPS = {
    "a client dies",
    "the node is killed",
    "the power fails",
    "the disk is damaged",
    "the disk is lost",
    "the disk is full",
    "a partition",
}


@pytest.mark.parametrize("delivery", ["Transient", "Reliable", "Persistent"])
def test_it_is_said_of_each_delivery_what_holds_whatever_happens(delivery: str) -> None:
    rows = rows_of("guarantees.md", delivery)
    assert {row[0] for row in rows} == MISHAPS
    assert {row[1] for row in rows} == {"live", "durable", "both"}


def test_it_is_said_of_queues_what_holds_whatever_happens() -> None:
    assert {row[0] for row in rows_of("guarantees.md", "Queues")} == MISHAPS


@pytest.mark.parametrize("heading", ["Transient", "Reliable", "Persistent", "Queues", "Whatever happens"])
def test_every_guarantee_names_tests_that_exist(heading: str) -> None:
    rows = rows_of("guarantees.md", heading)
    assert rows
    for row in rows:
        assert re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", row[-1]), row
        for name in names_in(row[-1]):
            file, _, function = name.partition("::")
            assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(), name


# -- what a node is protected from


THREATS = [
    "On the way",
    "Who comes in",
    "What each may do",
    "What comes in",
    "Secrets and files",
    "Other nodes",
]


@pytest.mark.parametrize("heading", THREATS)
def test_every_threat_names_tests_that_exist_or_says_that_there_is_none(heading: str) -> None:
    rows = rows_of("threats.md", heading)
    assert rows
    for threat, _, tests in rows:
        assert tests == "no test" or re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", tests), threat
        for name in names_in(tests):
            file, _, function = name.partition("::")
            assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(), name


# -- the list of features


def features() -> list[re.Match[str]]:
    rows = ROW.finditer((ROOT / "docs" / "features.md").read_text())
    found = [row for row in rows if row["feature"] not in ("feature", "---")]
    assert len(found) > 200
    assert len([row for row in found if row["test"] != "—"]) > 150
    return found


def test_a_feature_has_both_a_name_and_a_test_or_neither() -> None:
    for row in features():
        if row["name"] == "—":
            assert row["test"] == "—", row[0]
        else:
            assert re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", row["test"]), row[0]


def test_every_test_named_for_a_feature_exists() -> None:
    for row in features():
        for name in re.findall(r"`([^`]+)`", row["test"]):
            file, _, function = name.partition("::")
            assert re.search(rf"^ *def {function}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), row[
                0
            ]


def test_every_row_of_a_feature_has_three_columns() -> None:
    text = (ROOT / "docs" / "features.md").read_text()
    table_lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(ROW.match(line) for line in table_lines)


def test_the_page_of_limits_is_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    limits = import_module("limits")
    assert limits.PAGE.read_text() == limits.page(), "run make generated"


def test_every_public_class_is_in_the_reference() -> None:
    listed = set(re.findall(r"auto(?:class|function):: [\w.]*?(\w+)$", API, re.MULTILINE))
    met = {name for name, kind in vars(tidings.blocking).items() if inspect.isclass(kind) and _is_own(kind)}
    assert met | set(tidings.__all__) - {"TidingsError", "__version__", "blocking"} <= listed
    for module in ("tidings.errors", "tidings.client.blocking", "pyspark_tidings"):
        assert f"automodule:: {module}\n" in API


def _is_own(kind: type) -> bool:
    return kind.__module__ == tidings.blocking.__name__
