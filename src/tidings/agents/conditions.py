"""Conditions of groups: when a group has reached what it was made for.

    any_of()                                   one member has its result
    all_of()                                   all members have
    at_least(2)                                two of them
    any_of("hotel", all_of("train", "bus"))    members by name, and conditions of them
    seen("type = 'found' AND price < 100", 3)  three events of the group that match
    any_of() & seen("type = 'checked'")        both; | is either

A condition is *met*, *open* or *impossible*: no member is left that could still meet it. While members may
still be added, nothing about all members is decided. A condition is data: the home node evaluates it, and
keeps it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tidings.errors import UserError
from tidings.filters import Filter

Verdict = Literal["met", "open", "impossible"]
Outcome = Literal["running", "done", "failed"]
"""Of a member, as far as conditions go: whether it still may have a result, has one, or never will."""
PARTS_MAX = 1_000
"""Parts of a condition, nested ones included."""
DEPTH_MAX = 16


class Facts:
    """What a condition is evaluated against: outcomes, whether more may come, and counts of `seen`."""

    def __init__(self, *, is_sealed: bool, counts: Mapping[str, int]) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.named: defaultdict[str, Counter[Outcome]] = defaultdict(Counter)
        self.is_sealed = is_sealed
        self.counts = counts

    def count(self, name: str, outcome: Outcome, times: int = 1) -> None:
        """Count the outcome of a member of that name."""
        self.outcomes[outcome] += times
        self.named[name][outcome] += times

    def change(self, name: str, before: Outcome, outcome: Outcome) -> None:
        """A member of that name has another outcome than before."""
        self.count(name, before, -1)
        self.count(name, outcome)


class Condition(Struct, frozen=True, tag_field="is"):
    """The base of conditions."""

    def verdict(self, facts: Facts) -> Verdict:  # noqa: ARG002
        """Evaluate it."""
        raise AssertionError("each kind has its own")

    def filters(self) -> frozenset[str]:
        """The filters of events that it counts."""
        return frozenset()

    def __and__(self, other: Condition) -> Condition:
        return all_of(self, other)

    def __or__(self, other: Condition) -> Condition:
        return any_of(self, other)


class AtLeast(Condition, frozen=True, tag="at_least"):
    """So many of the parts; of all members, if there are no parts. None: all of them."""

    count: int | None
    parts: tuple[AtLeast | SeenEvents | MemberDone, ...] = ()

    def verdict(self, facts: Facts) -> Verdict:
        """Compare how many are met, and how many still can be."""
        if self.parts:
            verdicts = Counter(part.verdict(facts) for part in self.parts)
            met, undecided, more = verdicts["met"], verdicts["open"], False
            failed = verdicts["impossible"]
        else:
            outcomes = facts.outcomes
            met, undecided, more = outcomes["done"], outcomes["running"], not facts.is_sealed
            failed = outcomes["failed"]
        if self.count is None:
            if failed:
                return "impossible"
            return "open" if undecided or more else "met"  # nobody was started: there is nothing to wait for
        if met >= self.count:
            return "met"
        return "open" if more or met + undecided >= self.count else "impossible"

    def filters(self) -> frozenset[str]:
        """Those of its parts."""
        return frozenset().union(*(part.filters() for part in self.parts))


class MemberDone(Condition, frozen=True, tag="member"):
    """The member of a name has its result; one of them, if several have the name."""

    name: str

    def verdict(self, facts: Facts) -> Verdict:
        """Look at those of its name: one that is not there may come, until the group is sealed."""
        outcomes: Mapping[Outcome, int] = facts.named.get(self.name, {})
        if outcomes.get("done"):
            return "met"
        return "open" if outcomes.get("running") or not facts.is_sealed else "impossible"


class SeenEvents(Condition, frozen=True, tag="seen"):
    """So many events of the group match a filter."""

    where: str
    count: int = 1

    def verdict(self, facts: Facts) -> Verdict:
        """Compare the count; events may always come while anybody runs or may be added."""
        if facts.counts.get(self.where, 0) >= self.count:
            return "met"
        return "open" if facts.outcomes["running"] or not facts.is_sealed else "impossible"

    def filters(self) -> frozenset[str]:
        """Its own."""
        return frozenset((self.where,))


AnyCondition = AtLeast | MemberDone | SeenEvents
Part = Condition | str


def all_of(*parts: Part) -> AtLeast:
    """Return the condition that all of these hold: conditions or names; without any, all members are done."""
    return AtLeast(None, _parts(parts))


def any_of(*parts: Part) -> AtLeast:
    """Return the condition that one of these holds; without any, that one member is done."""
    return AtLeast(1, _parts(parts))


def at_least(count: int, *parts: Part) -> AtLeast:
    """Return the condition that so many of these hold; without any, that so many members are done."""
    _check_count("at_least", count)
    if parts and count > len(parts):
        raise UserError(f"at_least({count}) of {len(parts)} can never be met")
    return AtLeast(count, _parts(parts))


def seen(where: str | Filter, count: int = 1) -> SeenEvents:
    """Return the condition that so many events of the group match a filter."""
    _check_count("seen", count)
    return SeenEvents(str(Filter(where) if isinstance(where, str) else where), count)


def _check_count(what: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError(f"{what} takes a number from 1 on, not {count!r}")


def _parts(parts: tuple[Part, ...]) -> tuple[Any, ...]:
    return tuple(MemberDone(part) if isinstance(part, str) else part for part in parts)


def check_condition(condition: AnyCondition) -> AnyCondition:
    """Check what comes from a client: sizes, numbers and filters; return it."""
    left = [(condition, 1)]
    looked = 0
    while left:
        one, depth = left.pop()
        looked += 1
        if looked > PARTS_MAX or depth > DEPTH_MAX:
            raise UserError(f"a condition has at most {PARTS_MAX} parts, nested {DEPTH_MAX} deep")
        if isinstance(one, AtLeast):
            if one.count is not None and (one.count < 1 or (one.parts and one.count > len(one.parts))):
                raise UserError(f"at_least({one.count}) of {len(one.parts)} can never be met")
            left += [(part, depth + 1) for part in one.parts]
        elif isinstance(one, SeenEvents):
            Filter(one.where)
            if one.count < 1:
                raise UserError(f"seen takes a number from 1 on, not {one.count}")
    return condition


def text_of(condition: AnyCondition) -> str:
    """Return a condition as it is written."""
    if isinstance(condition, MemberDone):
        return repr(condition.name)
    if isinstance(condition, SeenEvents):
        more = f", {condition.count}" if condition.count > 1 else ""
        return f"seen({condition.where!r}{more})"
    parts = ", ".join(map(text_of, condition.parts))
    if condition.count is None:
        return f"all_of({parts})"
    if condition.count == 1:
        return f"any_of({parts})"
    return f"at_least({condition.count}{', ' if parts else ''}{parts})"


def decode_condition(data: Any) -> AnyCondition:
    """Return the condition that a client has sent; UserError if it is none."""
    try:
        return check_condition(msgspec.convert(data, AnyCondition))
    except (msgspec.ValidationError, RecursionError) as error:
        raise UserError(f"condition: {error}") from None
