"""What takes too long for the loop: run in a thread by whoever drives the broker, then told of there.

A service of the broker does no I/O itself. It says what is to be done and how it wants to hear of the end:

    broker.send(Errand(lambda: folder.read(…), asked_answer, asked.fail))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tidings.errors import InternalError, TidingsError


class Errand(Struct, frozen=True):
    """`run` is called once, in a thread; then `done` with what it gave, or `failed`, where the broker is.

    One that `computes` keeps the interpreter from the loop half of the time: of these one runs at a time.
    """

    run: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Callable[[TidingsError], None]
    computes: bool = False

    def conclude(self, error: BaseException | None, result: Any = None) -> None:
        """It has been run; called where the broker is."""
        if error is None:
            self.done(result)
        elif isinstance(error, TidingsError):
            self.failed(error)
        else:
            self.failed(InternalError(f"an errand failed: {type(error).__name__}: {error}"))
