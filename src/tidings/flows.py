"""Information flow graphs: `history("trades", columns=…).select("volume > 1000").collapse(by="symbol", …)`.

A graph joins histories and states; docs/flows.md explains its edges and rules. Making and checking one
needs no Spark; running it does.
"""

from __future__ import annotations

from tidings.pipeline.flow.building import (
    History,
    State,
    count,
    first,
    graph,
    highest,
    history,
    join,
    latest,
    lowest,
    mean,
    merge,
    total,
)
from tidings.pipeline.flow.graph import FlowNode, FlowSource, Graph
from tidings.pipeline.flow.reading import load

__all__ = [
    "FlowNode",
    "FlowSource",
    "Graph",
    "History",
    "State",
    "count",
    "first",
    "graph",
    "highest",
    "history",
    "join",
    "latest",
    "load",
    "lowest",
    "mean",
    "merge",
    "total",
]
