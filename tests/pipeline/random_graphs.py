"""Random flow graphs, of all edges but Python functions, and rows for them; `flow_oracle` works them off."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from pipeline.flow_oracle import Row, moment

from tidings import flows
from tidings.flows import (
    Graph,
    History,
    State,
    count,
    first,
    graph,
    highest,
    history,
    latest,
    lowest,
    mean,
    total,
)
from tidings.pipeline.flow.building import FlowSpace
from tidings.pipeline.flow.checking import KEYS
from tidings.pipeline.flow.edges import Collapse, Expand, Late, Read, Select, Transform
from tidings.pipeline.flow.types import PLACE

SOURCES = ("trades", "offers")
COLUMNS = {"symbol": "string", "price": "double", "volume": "bigint"}
NUMBERS = ("double", "bigint")
EDGES_MAX = 8
STATES_MAX = 3
WINDOWS_S = (None, None, 60.0, 7.5)


def some_graph(dice: Random, late_s: float) -> Graph:
    """A graph of about EDGES_MAX edges, which has a collapse; lateness is `late_s`, less, or any."""
    return _Growing(dice, late_s).graph()


def some_rows(dice: Random, number: int, spread_s: float) -> list[Row]:
    """Rows of all sources in the order of their positions, with times that go up and down by so much."""
    return [
        {
            "time": moment(position * 10 + dice.uniform(-spread_s, spread_s)),
            "node": "here",
            "position": position,
            "symbol": dice.choice(["A", "B", "C", "D", "A", "B", "C", "D", None]),
            "price": dice.choice([None, round(dice.uniform(0, 100), 2)]),
            "volume": dice.choice([None, dice.randrange(3_000)]),
        }
        for position in range(number)
    ]


def toml_of(made: Graph, types: str) -> str:
    """A graph as a file; the types of its events begin with `types` and a dot."""
    tables = []
    for node in made.nodes:
        edge = node.edge
        if isinstance(edge, Late):
            continue
        told: dict[str, Any] = {"from": list(node.after)} if node.after else {}
        match edge:
            case Read():
                columns = {name: type for name, type in node.columns.items() if name not in PLACE}
                told = {"where": f"type = '{types}.{node.name}'", "columns": columns}
            case Select(condition):
                told["select"] = condition
            case Transform(expressions):
                told["transform"] = expressions
            case Expand():
                told["expand"] = True
            case Collapse():
                times = {"window_s": edge.window_s, "late_s": edge.late_s}
                told = {"from": node.after[0], "by": list(edge.by), "keys_max": edge.keys_max}
                told |= {name: value for name, value in times.items() if value is not None}
                told["collapse"] = {name: str(rule) for name, rule in edge.rules.items()}
        if node.published is not None:
            told["publish"] = f"{types}.{node.published}"
        lines = [f"{key} = {_toml(value)}" for key, value in told.items()]
        tables.append("\n".join([f"[{node.kind}.{node.name}]", *lines]))
    return "\n\n".join([f"name = '{types}'", *tables])


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in value.items())} }}"


class _Growing:
    """A graph to which edges are added."""

    def __init__(self, dice: Random, late_s: float) -> None:
        self._dice = dice
        self._late_s = late_s
        self._histories: list[History] = []
        self._states: list[State] = []
        self._sources: dict[int, frozenset[str]] = {}
        self._names = 0
        for name in SOURCES[: dice.choice([1, 1, 2])]:
            self._histories.append(history(name, columns=COLUMNS))
            self._sources[id(self._histories[-1])] = frozenset({name})

    def graph(self) -> Graph:
        """Return it, with all its nodes."""
        grown = [self._select, self._transform, self._merge, self._collapse, self._collapse, self._expand]
        for _ in range(self._dice.randrange(3, EDGES_MAX)):
            self._dice.choice(grown)()
        if not self._states:
            self._collapse()
        if not any(type(one._edge).__name__ == "Expand" for one in self._histories):
            self._expand()
        return graph("g", *self._histories, *self._states)

    def _add(self, made: Any, *before: FlowSpace) -> None:
        self._names += 1
        made.named(f"{type(made._edge).__name__.lower()}{self._names}")
        if self._dice.random() < 0.3:
            made.published(f"g.n{self._names}")
        self._sources[id(made)] = frozenset().union(*(self._sources[id(one)] for one in before))
        (self._states if isinstance(made, State) else self._histories).append(made)

    def _some(self) -> History:
        """A history, rather one of the last."""
        return self._dice.choice(self._histories[-3:])

    def _columns(self, one: FlowSpace, *types: str) -> list[str]:
        return [name for name, type in one.columns.items() if name not in PLACE and type in types]

    def _select(self) -> None:
        one = self._some()
        if numbers := self._columns(one, *NUMBERS):
            self._add(one.select(f"{self._dice.choice(numbers)} >= {self._dice.randrange(60)}"), one)

    def _transform(self) -> None:
        one, dice = self._some(), self._dice
        columns = {name: name for name in self._columns(one, *KEYS)}
        for name in self._columns(one, *NUMBERS):
            columns[name] = dice.choice([name, f"{name} * {dice.randrange(2, 5)}"])
            if dice.random() < 0.3:
                columns[f"is{self._names}"] = f"{name} >= {dice.randrange(60)}"
        self._add(one.transform(None, None, **columns), one)

    def _merge(self) -> None:
        one = self._some()
        alike = [other for other in self._histories if other.columns == one.columns and other is not one]
        if alike:
            others = self._dice.sample(alike, min(len(alike), self._dice.randrange(1, 3)))
            self._add(flows.merge(one, *others), one, *others)

    def _collapse(self) -> None:
        one, dice = self._some(), self._dice
        keys = self._columns(one, *KEYS)
        if len(self._states) == STATES_MAX or not keys:
            return
        window_s = dice.choice(WINDOWS_S)
        if window_s is not None:
            keys = [name for name in keys if name not in ("start", "end")]
        by = dice.sample(keys, min(len(keys), dice.choice([1, 1, 2])))
        if not by:
            return
        late_s = dice.choice([None, self._late_s, self._late_s, self._late_s * 0.7])
        keys_max = 1_000 if window_s or dice.random() < 0.8 else 3
        rules = {f"c{self._names}_{n}": self._rule(one) for n in range(dice.randrange(1, 4))}
        made = one.collapse(by, window_s=window_s, late_s=late_s, keys_max=keys_max, **rules)
        self._add(made, one)

    def _rule(self, one: History) -> Any:
        numbers = self._columns(one, *NUMBERS)
        any_of = [*self._columns(one, *KEYS), *numbers, "time"]
        rule = self._dice.choice([count, total, mean, lowest, highest, latest, first])
        if rule is count:
            return count(self._dice.choice([None, *any_of]))
        if rule in (total, mean):
            return rule(self._dice.choice(numbers)) if numbers else count()
        return rule(self._dice.choice(any_of))

    def _expand(self) -> None:
        fit = [one for one in self._states if len(self._sources[id(one)]) == 1]
        if fit:
            one = self._dice.choice(fit)
            self._add(one.expand(), one)
