"""Flow graphs as they are written, in Python and in TOML: checked before Spark starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidings import flows
from tidings.errors import FlowError
from tidings.flows import (
    Graph,
    History,
    State,
    count,
    graph,
    highest,
    history,
    latest,
    load,
    mean,
    merge,
    total,
)
from tidings.pipeline.flow.building import FlowSpace, join
from tidings.pipeline.flow.reading import parse_graph

COLUMNS = {"symbol": "string", "price": "double", "volume": "long", "exchange": "string"}
QUOTES = """
name = "quotes"

[state.high]
from = "large"
by = "symbol"
window_s = 86400
late_s = 3600
collapse = { high = "highest(price)", trades = "count()" }
publish = "quotes.high"

[history.large]
from = "trades"
select = "volume > 1000"
publish = "quotes.large"

[history.trades]
where = "type = 'trade'"
columns = { symbol = "string", price = "double", volume = "long", exchange = "string" }

[history.changes]
from = "high"
expand = true
"""


def trades() -> History:
    return history("trades", "type = 'trade'", COLUMNS)


def high(of: History) -> State:
    return of.collapse(by="symbol", high=highest("price"))


def quotes() -> Graph:
    large = trades().select("volume > 1000").named("large").published("quotes.large")
    rules = {"high": highest("price"), "trades": count()}
    state = large.collapse("symbol", window_s=86400.0, late_s=3600.0, **rules)
    changes = state.named("high").published("quotes.high").expand().named("changes")
    return graph("quotes", changes)


def plain(graph: Graph) -> dict[str, object]:
    """The graph without the places of its parts."""
    return {
        node.name: (node.kind, node.edge, node.after, dict(node.columns), node.by, node.published)
        for node in graph.nodes
    }


def test_a_graph_in_toml_is_the_same_as_one_in_python_whatever_its_order() -> None:
    read, made = parse_graph(QUOTES), quotes()
    assert plain(read) == plain(made)
    assert (read.name, read.fingerprint) == (made.name, made.fingerprint)
    assert [node.name for node in read.nodes] == ["trades", "large", "high", "changes", "late"]


def test_a_graph_has_the_columns_kinds_and_keys_of_its_nodes() -> None:
    made = quotes()
    assert made["high"].by == ("symbol", "start")
    assert made["high"].columns == {
        "symbol": "string",
        "start": "timestamp",
        "end": "timestamp",
        "time": "timestamp",
        "high": "double",
        "trades": "bigint",
    }
    assert list(made["changes"].columns)[:3] == ["time", "node", "position"]
    assert [(node.name, node.published) for node in made.published] == [
        ("large", "quotes.large"),
        ("high", "quotes.high"),
        ("late", "quotes.late"),
    ]


def test_selects_narrow_what_is_read_if_nothing_else_reads_it() -> None:
    one = trades()
    two_selects = graph("g", high(one.select("volume > 1000")), one.select("symbol = 'A'"))
    assert two_selects.sources[0].where == "(type = 'trade') AND ((volume > 1000) OR (symbol = 'A'))"
    assert graph("g", high(one.select("volume > 1")), high(one)).sources[0].where == "type = 'trade'"
    decimals = history("trades", columns={"price": "decimal(10, 2)"}).select("price = 1")
    assert graph("g", decimals).sources[0].where == "type = 'trades'"


AIR = {"station": "string", "value": "double"}


def readings() -> History:
    return history("readings", "type = 'air'", AIR)


def test_nodes_can_do_a_collapse_that_alone_reads_a_source() -> None:
    rules = {"high": highest("value"), "average": mean("value"), "last": latest("value")}
    good = readings().select("value >= 0").select("station <> 'x'")
    made = graph("g", good.collapse("station", window_s=60.0, late_s=5.0, **rules).named("minute"))
    upstream = made.sources[0].upstream
    assert upstream is not None
    assert (upstream.state, upstream.where) == (
        "minute",
        "(type = 'air') AND (value >= 0) AND (station <> 'x')",
    )
    parts = ["highest(time)", "highest(value)", "total(value)", "numbers(value)", "latest(value)"]
    assert json.loads(upstream.collapse) == {
        "columns": {**AIR, "mismatches": "bigint"},
        "by": ["station"],
        "window_s": 60.0,
        "rules": {
            **{f"p{n}": part for n, part in enumerate(parts)},
            "s": "lowest(position)",
            "mismatches": "total(mismatches)",
        },
    }


@pytest.mark.parametrize(
    "collapse",
    [
        lambda one: one.collapse("station", late_s=5.0, n=count()),  # late by row
        lambda one: one.collapse("station", n=latest("station")),  # texts that may be too long
        lambda one: one.collapse("station", n=count()).expand(),
        lambda one: one.transform(station="station").collapse("station", n=count()),
        lambda one: one.published("g.readings").collapse("station", n=count()),
        lambda one: merge(one.select("value >= 0"), one.select("value < 0")).collapse("station", n=count()),
        lambda one: one.collapse("station", **{f"r{n}": highest("value") for n in range(62)}),  # too many
    ],
)
def test_other_collapses_need_the_events(collapse: Callable[[History], FlowSpace]) -> None:
    assert graph("g", collapse(readings())).sources[0].upstream is None


def test_nodes_without_a_name_get_one_of_their_own() -> None:
    one = trades()
    made = graph("g", one.select("volume > 1"), one.select("volume > 2"), high(one.select("volume > 2")))
    assert [node.name for node in made.nodes] == [
        "trades",
        "trades_select",
        "trades_select_2",
        "trades_select_3",
        "trades_select_3_collapse",
        "late",
    ]


def function(df: object) -> object:
    return df


def twice(of: History) -> State:
    """A state that is published as the same type as the history before it."""
    return high(of.select("volume > 2").published("h")).published("h")


BAD: dict[str, Callable[[], object]] = {
    "there is no column 'volum'; did you mean 'volume'?": lambda: trades().select("volum > 1"),
    "the condition is true for no event: volume > 'x'": lambda: trades().select("volume > 'x'"),
    "line 1, column 9": lambda: trades().select("volume >"),
    "column 'n': calculates with string": lambda: trades().transform(n="price * symbol"),
    "column 'n': there is no column 'prize'": lambda: trades().transform(n="prize + 1"),
    "collapse needs a key": lambda: trades().collapse(high=highest("price")),
    "collapse needs at least one rule": lambda: trades().collapse(by="symbol"),
    "'price' can't be a key: it is double": lambda: trades().collapse(by="price", n=count()),
    "there is no column 'stock'": lambda: trades().collapse(by="stock", n=count()),
    "total(symbol) needs numbers": lambda: trades().collapse(by="symbol", n=total("symbol")),
    "latest(colour) reads a column that does not exist": lambda: trades().collapse(
        by="symbol", n=latest("colour")
    ),
    "n=3 is no rule": lambda: trades().collapse(by="symbol", n=3),  # type: ignore[arg-type]
    "the result 'symbol' has the name of another": lambda: trades().collapse("symbol", symbol=count()),
    "the result 'subject' has the name of a header": lambda: trades().collapse("symbol", subject=count()),
    "the key has the column 'symbol' twice": lambda: trades().collapse(("symbol", "symbol"), n=count()),
    "the key column 'start' has the name of a column of the window": lambda: (
        trades()
        .collapse("symbol", window_s=60, n=count())
        .expand()
        .collapse(("symbol", "start"), window_s=60, n=count())
    ),
    "window_s must be": lambda: trades().collapse("symbol", window_s=0, n=count()),
    "late_s must be": lambda: trades().collapse("symbol", late_s=float("nan"), n=count()),
    "keys_max must be at least 1": lambda: trades().collapse("symbol", keys_max=0, n=count()),
    "'text' is no type": lambda: history("a", columns={"b": "text"}),
    "column 'time' is timestamp in every event": lambda: history("a", columns={"time": "string"}),
    "differ by case only": lambda: history("a", columns={"b": "string", "B": "string"}),
    "the histories have different columns: x": lambda: merge(
        trades(), history("a", columns={**COLUMNS, "x": "int"})
    ),
    "collapse needs the columns time, node, position": lambda: high(trades().transform(function, COLUMNS)),
    "needs its columns": lambda: trades().transform(function, {}),
    "a function or expressions": lambda: trades().transform(function, COLUMNS, a="1"),
    "the name 'trades' is there twice": lambda: graph("g", merge(trades(), trades())),
    "the name 'late' is taken": lambda: graph(
        "g", trades().named("trades").select("volume > 1").named("late")
    ),
    "has a name already": lambda: trades().named("other"),
    "'a b' is no name of a node": lambda: graph("g", trades().select("volume > 1").named("a b")),
    "'a b' is no name of a graph": lambda: graph("a b", trades()),
    "has no nodes": lambda: graph("g"),
    "can't be published: 'a..b' has an empty segment": lambda: graph("g", trades().published("a..b")),
    "no column type": lambda: graph("g", trades().published()),
    "reads what the graph publishes: 'trades' as 'trade'": lambda: graph("g", trades().published("trade")),
    "a state needs a type of its own": lambda: graph("g", twice(trades())),
    "must come before the first collapse": lambda: graph(
        "g", high(trades()).expand().transform(function, COLUMNS)
    ),
    "expand needs the events of one source": lambda: graph(
        "g", high(merge(trades(), history("b", columns=COLUMNS))).expand()
    ),
    "a transform by a function": lambda: join(function, {}, trades()),
}


@pytest.mark.parametrize("problem", BAD)
def test_a_graph_that_cant_run_is_refused_with_the_reason(problem: str) -> None:
    with pytest.raises(FlowError) as refused:
        BAD[problem]()
    assert problem in str(refused.value)
    assert refused.value.place


BAD_TOML = {
    "cycle.toml, [history.large]: the node is made from itself: large → other → large": """
        [history.large]
        from = "other"
        select = "volume > 1"
        [history.other]
        from = "large"
        select = "volume > 2"
        """,
    "cycle.toml, [history.large]: there is no node 'trade'; the nodes are large": """
        [history.large]
        from = "trade"
        select = "volume > 1"
        """,
    "cycle.toml, [state.a]: the name 'a' is there twice": """
        [history.a]
        columns = { b = "string" }
        [state.a]
        from = "a"
        by = "b"
        collapse = { n = "count()" }
        """,
    "cycle.toml, [state.s]: there is no rule 'highst'; the rules are count": """
        [history.a]
        columns = { b = "string" }
        [state.s]
        from = "a"
        by = "b"
        collapse = { n = "highst(b)" }
        """,
    "cycle.toml, [state.s]: 'highest' is no rule; write one": """
        [state.s]
        from = "a"
        by = "b"
        collapse = { n = "highest" }
        """,
    "cycle.toml, [state.s]: Object missing required field `collapse`": "[state.s]\nfrom = 'a'",
    "cycle.toml, [state.s]: collapse needs a key": """
        [history.a]
        [state.s]
        from = "a"
        collapse = { n = "count()" }
        """,
    "cycle.toml, [history.a]: Object contains unknown field `colums`": "[history.a]\ncolums = {}",
    "cycle.toml, [history.a]: needs one edge": "[history.b]\n[history.a]\nfrom = 'b'",
    "cycle.toml, [history.c]: select needs one history; merge the 2 first": """
        [history.a]
        [history.b]
        [history.c]
        from = ["a", "b"]
        select = "position > 1"
        """,
    "cycle.toml, [history.x]: expand needs a state": "[history.a]\n[history.x]\nfrom = 'a'\nexpand = true",
    "cycle.toml: Object contains unknown field `nodes`": "[nodes.a]",
    "cycle.toml: the graph has no nodes": "name = 'a'",
    "cycle.toml: Invalid value": "name = ]",
}


@pytest.mark.parametrize("problem", BAD_TOML)
def test_a_file_that_cant_run_is_refused_with_its_place(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "cycle.toml"
    path.write_text(BAD_TOML[problem])
    with pytest.raises(FlowError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{tmp_path}/{problem}")


def test_a_python_file_gives_the_one_graph_that_it_makes(tmp_path: Path) -> None:
    path = tmp_path / "flow.py"
    path.write_text("from tidings.flows import graph, history\nflow = graph('g', history('a'))\n")
    assert load(path).name == "g"
    path.write_text("a = 1\n")
    with pytest.raises(FlowError, match="must make one graph, and has 0"):
        load(path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\nx = (\n", r"flow\.py, line 2: SyntaxError: '\(' was never closed"),
        ("\nimport nothing_of_this_name\n", r"flow\.py, line 2: ModuleNotFoundError: No module named"),
        ("def f():\n    return {}['a']\nf()\n", r"flow\.py, line 2: KeyError: 'a'"),
        (
            "from tidings.flows import history\nhistory('a').select('y > 1')\n",
            r"flow\.py, line 2: select after 'a': there is no column 'y'",
        ),
    ],
)
def test_an_error_in_a_python_file_has_its_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(text)
    with pytest.raises(FlowError, match=told):
        load(tmp_path / "flow.py")


@pytest.mark.parametrize("name", ["missing.toml", "missing.py", "nothing"])
def test_what_is_no_graph_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=name):
        load(tmp_path / name)


def test_graphs_are_made_and_checked_without_spark(tmp_path: Path) -> None:
    path = tmp_path / "quotes.toml"
    path.write_text(QUOTES)
    program = (
        "import sys; from tidings.flows import load; load(sys.argv[1]);"
        "assert not {'pyspark', 'pandas', 'pyarrow', 'numba'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True)


def test_the_public_names_are_there() -> None:
    assert all(getattr(flows, name).__doc__ for name in flows.__all__)
