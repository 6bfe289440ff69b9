"""A flow graph that a Python program makes: the one place where tidings runs a file that it is given.

The file is one that the user has named in a command or call of their own, and runs with their rights. No node
and no peer can name one.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from traceback import extract_tb

from tidings.errors import FlowError, TidingsError
from tidings.pipeline.flow.graph import Graph


def graph_of_program(path: Path) -> Graph:
    """Run the file and return the graph that it makes; FlowError names the line that fails.

    FlowError, too, if there is not exactly one graph.
    """
    if not path.is_file():
        raise FlowError(str(path), "there is no such file")
    try:
        values = runpy.run_path(str(path), run_name="flow").values()
    except Exception as error:
        problem = str(error) if isinstance(error, TidingsError) else f"{type(error).__name__}: {error}"
        raise FlowError(_place(path, error), problem) from error
    found = list({id(value): value for value in values if isinstance(value, Graph)}.values())
    if len(found) != 1:
        raise FlowError(str(path), f"must make one graph, and has {len(found)}; use tidings.flows.graph")
    return found[0]


def _place(path: Path, error: Exception) -> str:
    """Return the file with its last line that was run, or that has no valid syntax."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f"{path}, line {lines[-1]}" if lines else str(path)
