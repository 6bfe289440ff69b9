"""Calls that take too long for the loop: run in a thread by the driver, and answered where the broker is.

A service of the broker does no I/O itself. It says what is to be run, and gets a reply:

    broker.offload(lambda: folder.read(…)).then(answer, asked.fail)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tidings.errors import InternalError, TidingsError
from tidings.replies import Deferred

Pool = Literal["io", "compute", "password"]
"""Which threads run a call: those that wait for disks, that compute, or that check passwords.

One that computes keeps the interpreter from the loop half of the time: of these one runs at a time.
"""


class BlockingCall(Deferred[Any]):
    """A call whose outcome is that of `run`, which the driver calls once, in a thread."""

    __slots__ = ("pool", "run")

    def __init__(self, run: Callable[[], Any], pool: Pool) -> None:
        super().__init__()
        self.run = run
        self.pool = pool

    def conclude(self, error: BaseException | None, result: Any = None) -> None:
        """Reply with what `run` has returned or raised; called where the broker is."""
        if error is None or isinstance(error, TidingsError):
            self.take(result, error)
        else:
            self.fail(InternalError(f"a call in a thread failed: {type(error).__name__}: {error}"))
