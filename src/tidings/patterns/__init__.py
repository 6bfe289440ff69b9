"""Patterns: sequences of events in time, per key. `docs/patterns.md` defines what they mean.

A `Pattern` is written as text or put together from steps; both become the same tree, which is written out
into *alternatives*, plain sequences of steps. `KeyRuns` finds their matches in the events of one key, without
I/O: the service of a node, a batch and a stream in Spark all drive that one class.
"""

from tidings.patterns.pattern import Pattern, step
from tidings.patterns.runs import KeyRuns, Row, RunOutcome

__all__ = ["KeyRuns", "Pattern", "Row", "RunOutcome", "step"]
