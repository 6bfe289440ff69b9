"""Trouble that lasts: logged when it begins and when it has passed, and counted in between.

A disk that stays full fails thousands of commits. One line says what is wrong; the metrics say how often.
"""

from __future__ import annotations

from tidings.node import logs

QUIET_S = 30.0
"""After so long without a failure the trouble has passed, if something has succeeded since."""
PROBLEMS_MAX = 16
"""Different problems that are logged before one trouble has passed."""


class Lasting:
    """One sort of trouble; `event` is logged for each different problem, `passed` at its end."""

    def __init__(self, event: str, passed: str) -> None:
        self._event = event
        self._passed = passed
        self._told: set[str] = set()
        self._failures = 0
        self._last = 0.0
        self._has_succeeded = False

    def fail(self, problem: str, now: float) -> None:
        """Something has failed; it is logged unless it was, and has not passed since."""
        self._failures += 1
        self._last, self._has_succeeded = now, False
        if problem not in self._told and len(self._told) < PROBLEMS_MAX:
            self._told.add(problem)
            logs.error(self._event, problem=problem)

    def succeed(self) -> None:
        """The same has succeeded."""
        self._has_succeeded = True

    def look(self, now: float) -> None:
        """See whether it has passed; called now and then."""
        if self._failures and self._has_succeeded and now - self._last >= QUIET_S:
            logs.info(self._passed, failures=self._failures)
            self._told.clear()
            self._failures = 0
