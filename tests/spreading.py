"""How tests are spread over the workers of pytest-xdist: `python -m pytest -n 4 -p tests.spreading`.

The tests of one file go to one worker, so that what the file prepares is prepared once, and all of
`tests/pipeline` go to one: each worker that ran some of them would start a Spark of its own, and what is slow
in Spark is what it does for the first time.
What takes longest is handed out first, so that no worker begins with it when the others are done.
`--dist loadgroup` would be the usual way, but pytest 9.2 has other ids than pytest-xdist 3.8 writes its
groups into, and without a word no group is kept together (pytest-dev/pytest-xdist, issue 1386).
"""

from __future__ import annotations

import pytest
from effort import IS_SOAK
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARING = "tests/pipeline/"
"""Where the files are whose tests share a Spark."""
LONGEST = (
    # In the long run two of them, one after the other: they need Spark Connect's port.
    "::test_the_declarative_project" if IS_SOAK else "::test_the_declarative_project_of_a_graph",
    "tests/pipeline/test_tutorial.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_city_node.py::test_a_query_that_is_told_to_end",
    "tests/node/test_compiled.py",
    "tests/pipeline/test_credentials.py",
    "tests/pipeline/test_demand.py::test_a_driver_that_is_killed",
)
"""Tests, by parts of their ids, that need no Spark of this process and take half a minute or more: each by
itself, and first."""


def scope_of(nodeid: str) -> str:
    """What a test is handed out with: one of the longest, all that shares a Spark, or its file."""
    for one in LONGEST:
        if one in nodeid:
            return one
    return SHARING if nodeid.startswith(SHARING) else nodeid.partition("::")[0]


class InOrder(LoadScopeScheduling):
    """Hands out whole scopes, in the order of the collected tests."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest in each worker, when it knows all tests."""
    first = [SHARING, *LONGEST]  # what shares a Spark takes longest of all
    ranks = {scope: rank for rank, scope in enumerate(first)}
    items.sort(key=lambda item: ranks.get(scope_of(item.nodeid), len(first)))


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> InOrder:
    """Called by pytest-xdist once, in the process that starts the workers."""
    config.option.loadscopereorder = False
    return InOrder(config, log)
