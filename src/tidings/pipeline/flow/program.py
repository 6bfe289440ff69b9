"""A flow graph that a Python program makes: the one place where tidings runs a file that it is given.

The file is one that the user has named in a command or call of their own, and runs with their rights. No node
and no peer can name one.
"""

from __future__ import annotations

import runpy
from pathlib import Path

from tidings.errors import FlowError
from tidings.pipeline.flow.graph import Graph


def graph_of_program(path: Path) -> Graph:
    """Run the file and return the graph that it makes; FlowError if there is not exactly one."""
    if not path.is_file():
        raise FlowError(str(path), "there is no such file")
    values = runpy.run_path(str(path), run_name="flow").values()
    found = list({id(value): value for value in values if isinstance(value, Graph)}.values())
    if len(found) != 1:
        raise FlowError(str(path), f"must make one graph, and has {len(found)}; use tidings.flows.graph")
    return found[0]
