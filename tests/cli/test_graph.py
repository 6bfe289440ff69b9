"""`tidings pipeline list`, `check`, `draw` and `init`: none of them starts Spark."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.commands import run_command
from node.secured import Secured
from pipeline.nodes import Running, running

from tidings.security.rules import read_rules

ROOT = Path(__file__).parents[2]
QUOTES = """
[history.trades]
columns = { type = "string", symbol = "string", price = "double", volume = "bigint" }

[history.large]
from = "trades"
select = "volume > 1000"
publish = "quotes.large"

[state.high]
from = "large"
by = "symbol"
collapse = { high = "highest(price)" }
publish = "quotes.high"
"""


@pytest.fixture
def quotes(tmp_path: Path) -> str:
    (tmp_path / "quotes.toml").write_text(QUOTES)
    return str(tmp_path / "quotes.toml")


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


@pytest.fixture
def node(secured: Secured) -> Iterator[Running]:
    """A node with TLS and users."""
    with running(None, security=str(secured.path)) as node:
        yield node


# -- a graph


def test_a_graph_is_checked_without_a_node(quotes: str) -> None:
    code, output, _ = run_command("pipeline", "check", quotes)
    assert code == 0
    assert "reads trades where type = 'trades' AND volume > 1000\n" in output
    assert "publishes high where type = 'quotes.high'\n" in output
    assert output.endswith("quotes is in order\n")
    code, output, _ = run_command("pipeline", "check", quotes, "--json")
    tables = {"large": "history", "high": "state", "late": "history"}
    assert json.loads(output) == {"pipeline": "quotes", "tables": tables, "missing": None}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("volume > 1000", "amount > 1000", "quotes.toml, [history.large]: "),
        ('by = "symbol"\n', "", "quotes.toml, [state.high]: "),
        ('from = "trades"', 'from = "large"', "large → large"),
        ("highest(price)", "dearest(price)", "there is no rule 'dearest'"),
        ("quotes.large", "trades", "reads what the graph publishes"),
    ],
)
def test_a_mistake_in_a_graph_is_told_with_its_place(old: str, new: str, problem: str, quotes: str) -> None:
    Path(quotes).write_text(QUOTES.replace(old, new))
    for command in ("check", "draw", "run"):
        code, output, errors = run_command("pipeline", command, quotes)
        assert (code, output) == (2, "")
        assert problem in errors


def test_what_is_no_pipeline_is_told() -> None:
    code, _, errors = run_command("pipeline", "check", "town")
    assert code == 2
    assert "there is no pipeline 'town'; the pipelines are agents and city; or name a file" in errors
    assert "No such file" in run_command("pipeline", "check", "missing.toml")[2]


# -- rights


RULES = """
[[allow]]
users = ["bob"]
actions = ["subscribe", "publish"]
where = "type = 'quotes.high'"
"""


def check_as_bob(graph: str, node: Running, secured: Secured, *more: str) -> tuple[int, str, str]:
    """Check a graph at a node whose rules are these, by the certificate of bob."""
    who = [part for name, file in secured.client("bob").items() for part in (f"--{name}", str(file))]
    address = f"tidings+tls://{node.address}"
    return run_command("pipeline", "check", graph, "--node", address, *who, "--user", "bob", *more)


def test_a_right_that_is_missing_is_told_by_the_rule_that_grants_it(
    quotes: str, node: Running, secured: Secured
) -> None:
    code, output, _ = check_as_bob(quotes, node, secured)
    assert code == 0, output
    assert output.count(": allowed\n") == 4
    secured.write_access(RULES)
    node.reload()
    code, output, _ = check_as_bob(quotes, node, secured)
    assert code == 1
    assert "publishes high where type = 'quotes.high': allowed\n" in output
    assert "reads trades where type = 'trades' AND volume > 1000: not allowed\n" in output
    rules = output.partition("The access list of the node needs\n")[2]
    assert [one["actions"] for one in tomllib.loads(rules)["allow"]] == [
        ["subscribe"],
        ["publish"],
        ["publish"],
    ]
    assert len(read_rules(rules, "printed", ["bob"])["bob"]) == 3
    secured.write_access(RULES + rules)
    node.reload()
    code, output, _ = check_as_bob(quotes, node, secured, "--json")
    assert (code, json.loads(output)["missing"]) == (0, [])


HALF = """
[[allow]]
users = ["bob"]
actions = ["subscribe"]
where = "type = 'trades' AND symbol < 'M'"

[[allow]]
users = ["bob"]
actions = ["publish"]
where = "type LIKE 'quotes.%' AND priority > 4"
"""


def test_the_part_of_a_right_that_no_rule_covers_is_named(
    quotes: str, node: Running, secured: Secured
) -> None:
    secured.write_access(HALF)
    node.reload()
    code, output, _ = check_as_bob(quotes, node, secured)
    assert code == 1
    half = "type = 'trades' AND volume > 1000 AND (symbol >= 'M' OR symbol IS NULL)"
    assert f"volume > 1000: allowed in part, but not where {half}\n" in output
    high = "type = 'quotes.high' AND (priority <= 4 OR priority IS NULL)"
    assert f"publishes high where type = 'quotes.high': allowed in part, but not where {high}\n" in output
    rules = output.partition("The access list of the node needs\n")[2]
    found = json.loads(check_as_bob(quotes, node, secured, "--json")[1])["missing"]
    assert [one["part"] for one in found][:1] == [half]
    secured.write_access(HALF + rules)
    node.reload()
    code, output, _ = check_as_bob(quotes, node, secured)
    assert (code, output.count(": allowed\n")) == (0, 4)


def test_a_node_that_is_away_is_told(quotes: str) -> None:
    code, _, errors = run_command("pipeline", "check", quotes, "--node", "127.0.0.1:1")
    assert code == 1
    assert "no answer from 127.0.0.1:1" in errors


# -- pictures, lists and new graphs


def test_a_graph_is_drawn_as_mermaid_and_as_svg(quotes: str, tmp_path: Path) -> None:
    code, output, _ = run_command("pipeline", "draw", quotes)
    assert (code, output.splitlines()[0]) == (0, "flowchart LR")
    assert "    large --> high\n    high --> late\n" in output
    assert run_command("pipeline", "draw", quotes, "--svg")[1].startswith("<svg ")
    for name in ("quotes.svg", "quotes.mmd"):
        code, _, _ = run_command("pipeline", "draw", quotes, "--to", str(tmp_path / name))
        assert code == 0
    assert (tmp_path / "quotes.mmd").read_text() == output
    assert "4 boxes" in run_command("pipeline", "draw", quotes, "--to", str(tmp_path / "q.svg"))[1]
    assert "must end with" in run_command("pipeline", "draw", quotes, "--to", "quotes.png")[2]


def test_a_file_that_can_not_be_written_is_told(quotes: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    for name, problem in (("missing/q.svg", "No such file or directory"), ("folder.svg", "Is a directory")):
        code, _, errors = run_command("pipeline", "draw", quotes, "--to", str(tmp_path / name))
        assert (code, f"{name} can't be written: {problem}" in errors) == (2, True), errors
    code, _, errors = run_command("pipeline", "init", str(tmp_path / "missing" / "air.toml"))
    assert (code, "air.toml can't be written: No such file" in errors) == (2, True), errors


def test_the_picture_and_the_project_of_the_city_are_those_of_its_graph() -> None:
    pytest.importorskip("pyspark")
    _, output, _ = run_command("pipeline", "draw", "city", "--svg")
    stale = "make generated writes it anew"
    assert (ROOT / "docs" / "pictures" / "city.svg").read_text() == output, stale
    from tidings.pipeline.city.pipeline import CITY
    from tidings.pipeline.project import project_files

    files = project_files(CITY.plan(CITY.settings, "tables"), "city", "file:///var/tmp/tidings-city")
    for path, text in files.items():
        assert (ROOT / "pipelines" / "city" / path).read_text() == text, stale


def test_the_built_in_pipelines_are_listed_and_the_sinks_of_a_node() -> None:
    pytest.importorskip("pyspark")
    assert "city" in run_command("pipeline", "list")[1]
    with running(None) as node:
        code, output, _ = run_command("pipeline", "list", "--node", node.address, "--json")
    found = json.loads(output)
    assert (code, [one["name"] for one in found["pipelines"]], found["sinks"]) == (0, ["agents", "city"], [])


def test_a_new_graph_is_in_order_whatever_its_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = "name = 'a\"b\\c' OR value > 3"
    code, output, _ = run_command("pipeline", "init", "air.toml", "--where", where)
    assert (code, output) == (
        0,
        "air.toml is ready; run it with\n  tidings pipeline run air.toml --continuous\n",
    )
    code, output, _ = run_command("pipeline", "check", "air.toml", "--json")
    assert (code, json.loads(output)["tables"]) == (
        0,
        {"high": "history", "means": "state", "late": "history"},
    )
    assert tomllib.loads(Path("air.toml").read_text())["history"]["readings"]["where"].startswith(
        f"({where})"
    )
    assert "exists" in run_command("pipeline", "init", "air.toml")[2]
    assert "no name" in run_command("pipeline", "init", "a b.toml")[2]
