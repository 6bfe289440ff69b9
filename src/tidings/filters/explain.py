"""Why an event does not match a filter: the conditions that are not true, with the values that they read.

AND is taken apart, since each condition that fails keeps the event out. Of an OR of joined conditions only
the alternative that comes nearest is explained, as a list of all would hide it. Everything else is one
condition, whose outcome and text come from `evaluate.py` and `text.py`: so an explanation says that an event
matches exactly when the filter does.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal as OneOf

from msgspec import Struct

from tidings.event.model import Event
from tidings.event.values import Value
from tidings.filters.evaluate import Tests, condition_test
from tidings.filters.text import write, write_literal, write_name
from tidings.filters.tree import And, Condition, Or, names_in, parts_of

TEXT_MAX = 200
"""Characters of a condition, or of a value, that an explanation shows."""
TYPE_WEIGHT = 2
"""Weight of a condition on the type: an event of another type is further away than one with another value."""

_tests = Tests()


class Reason(Struct, frozen=True):
    """A condition that is not true of an event, with the values of the names in it; None if absent."""

    condition: str
    outcome: OneOf["false", "unknown"]
    values: dict[str, Value | None]

    def __str__(self) -> str:
        """The condition, its outcome and the values: `value > 40 is false: value is 12`."""
        read = ", ".join(f"{write_name(name)} is {_shown(value)}" for name, value in self.values.items())
        return f"{_short(self.condition)} is {self.outcome}" + (f": {read}" if read else "")


class Explanation(Struct, frozen=True):
    """Why an event does not match; `distance` grows with the number of conditions that are not true."""

    reasons: tuple[Reason, ...] = ()
    distance: int = 0

    @property
    def matches(self) -> bool:
        """Whether the event matches."""
        return not self.reasons

    def __str__(self) -> str:
        """The reasons, or `matches`."""
        return "; ".join(map(str, self.reasons)) or "matches"


def explain(condition: Condition, event: Event) -> Explanation:
    """Return why an event does not meet a condition."""
    match condition:
        case And(operands):
            parts = [explain(operand, event) for operand in operands]
            reasons = tuple(reason for part in parts for reason in part.reasons)
            return Explanation(reasons, sum(part.distance for part in parts))
        case Or(operands) if any(map(parts_of, operands)):
            return min((explain(operand, event) for operand in operands), key=attrgetter("distance"))
    return _explain_simple(condition, event)


def _explain_simple(condition: Condition, event: Event) -> Explanation:
    """Return the same for a condition that is not taken apart."""
    answer = condition_test(condition)(event)
    if answer:
        return Explanation()
    values = {name: _tests.named(name)(event) for name in sorted(names_in(condition))}
    reason = Reason(write(condition), "unknown" if answer is None else "false", values)
    return Explanation((reason,), TYPE_WEIGHT if "type" in values else 1)


def _shown(value: Value | None) -> str:
    return "absent" if value is None else _short(write_literal(value))


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
