"""How tests are spread over the workers of pytest-xdist: `python -m pytest -n 2 -p tests.spreading`.

The tests of one file go to one worker, so that what the file prepares is prepared once, and those of
`tests/pipeline` all go to the same one: each worker that ran some of them would start a Spark of its own.
`--dist loadgroup` would be the usual way, but pytest 9.2 has other ids than pytest-xdist 3.8 writes its
groups into, and without a word no group is kept together (pytest-dev/pytest-xdist, issue 1386).
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TOGETHER = "tests/pipeline/"
"""Where the tests lie that share one Spark."""


class FilesTogether(LoadScopeScheduling):
    """Hands out whole files, those with most tests first; the folder with Spark counts as one file."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return TOGETHER if file.startswith(TOGETHER) else file


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    """Called by pytest-xdist once, in the process that starts the workers."""
    return FilesTogether(config, log)
