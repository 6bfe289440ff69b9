"""Connections of the driver and the executors of a query to its nodes.

Each machine connects by itself, when it has a request, with the present content of its own files: Spark
carries only the names of those files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidings.client import blocking
from tidings.errors import Disconnected, NoAnswer, TidingsError, UserError
from tidings.pipeline.offsets import NodeExtent
from tidings.pipeline.options import NodeReach, label_of, option_error, reach_of

CONNECT_S_MAX = 20.0
"""Longest wait of a task, or of the planning of a query, for a node."""
ANSWER_S_MAX = 60.0
"""Longest wait for a reply, also while the connection is restored."""


def connect(
    options: Mapping[str, str] | NodeReach, node: str | None = None, timeout_s: float | None = None
) -> blocking.Bus:
    """Return a bus to a node, to be entered with `with`; without a name, to the only one in the options.

    `timeout_s` is for connecting, CONNECT_S_MAX unless it is given.
    """
    reach = options if isinstance(options, NodeReach) else reach_of(options)
    if node is None:
        if len(reach.nodes) != 1:
            raise option_error("node", f"it must be one node, and not {len(reach.nodes)}")
        node = reach.nodes[0]
    return blocking.connect(
        node,
        user=reach.user,
        password=_file(reach.password_file),
        token=_file(reach.token_file),
        ca=reach.ca,
        cert=reach.cert,
        key=reach.key,
        timeout_s=CONNECT_S_MAX if timeout_s is None else timeout_s,
    )


def _file(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def standing_of(bus: blocking.Bus) -> NodeExtent:
    """Return the current extent of a node's log."""
    status = bus.log.status(timeout_s=ANSWER_S_MAX)
    return NodeExtent(status["node"], status["first"], status["end"])


@contextmanager
def naming_node(node: str, *known: type[TidingsError]) -> Iterator[None]:
    """Add the node's name to errors in the block, as they are seen elsewhere; known ones stay as they are."""
    try:
        yield
    except known:
        raise
    except (Disconnected, NoAnswer) as error:
        away = f"node {label_of(node)} (option 'node') can't be reached: {error}"
        raise type(error)(away) from None
    except TidingsError as error:
        raise UserError(f"node {label_of(node)}: {error}") from None
