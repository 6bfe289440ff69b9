"""Budgets: amounts in units that users name, and accounts between which they move.

    100 given to the group, 30 and 20 passed on: the group holds 50, its members 30 and 20

An amount is never made or lost: at each step, and for each unit,

    given = spent + refunded + held + written off

where `given` is what the group got from outside, `refunded` what went back there, `held` what it and its
members have, and `written off` what those had who were lost. Amounts are kept as whole millionths, since sums
of floats would not add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from msgspec import Struct, field

from tidings.errors import BudgetExceeded, UserError

MICRO = 1_000_000
"""Parts of a unit in which amounts are kept."""
AMOUNT_MAX = 10**12
"""Units in an amount."""
UNITS_MAX = 16
"""Units in a budget."""
UNIT_LENGTH_MAX = 64

Amounts = dict[str, int]
"""Millionths by unit."""


def amounts_of(given: Any, what: str = "budget") -> Amounts:
    """Return amounts as they are kept; UserError for what is negative, no number, or too much."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or len(given) > UNITS_MAX:
        raise UserError(f"{what} has amounts by unit, at most {UNITS_MAX}: {{'usd': 5}}")
    amounts: Amounts = {}
    value: Any
    for unit, value in given.items():
        if not isinstance(unit, str) or not 0 < len(unit) <= UNIT_LENGTH_MAX or not unit.isidentifier():
            raise UserError(f"{what}: a unit is a name, such as usd or tokens, not {unit!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise UserError(f"{what}[{unit!r}] is a number, not {value!r}")
        if not 0 <= value <= AMOUNT_MAX:
            raise UserError(f"{what}[{unit!r}] is from 0 to {AMOUNT_MAX:,}, not {value!r}")
        amounts[unit] = round(value * MICRO)
    return amounts


def shown(amounts: Mapping[str, int]) -> dict[str, float]:
    """Return amounts as users give them."""
    return {unit: _plain(value) for unit, value in sorted(amounts.items())}


def _plain(value: int) -> float:
    return value // MICRO if value % MICRO == 0 else value / MICRO


def add(amounts: Amounts, others: Mapping[str, int], sign: int = 1) -> None:
    """Add amounts to others, in place."""
    for unit, value in others.items():
        amounts[unit] = amounts.get(unit, 0) + sign * value


def total(all_amounts: Iterable[Mapping[str, int]]) -> Amounts:
    """Return the sum."""
    summed: Amounts = {}
    for amounts in all_amounts:
        add(summed, amounts)
    return summed


class Account(Struct):
    """What one holder was given, and what became of it; the rest is with its children."""

    given: Amounts = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)
    refunded: Amounts = field(default_factory=dict)
    written_off: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)

    def check(self, amounts: Mapping[str, int], who: str) -> None:
        """Raise BudgetExceeded for more than is held."""
        for unit, value in amounts.items():
            held = self.held.get(unit, 0)
            if value > held:
                raise BudgetExceeded(
                    who, f"has {_plain(held):g} {unit} left, which is less than {_plain(value):g}"
                )

    def fund(self, amounts: Mapping[str, int]) -> None:
        """Get an amount from outside."""
        add(self.given, amounts)
        add(self.held, amounts)

    def spend(self, amounts: Mapping[str, int]) -> None:
        """Spend an amount that is held."""
        add(self.held, amounts, -1)
        add(self.spent, amounts)

    def pass_on(self, amounts: Mapping[str, int], child: Account) -> None:
        """Give an amount that is held to a child."""
        add(self.held, amounts, -1)
        child.fund(amounts)

    def refund(self, amounts: Mapping[str, int]) -> None:
        """Return an amount that is held."""
        add(self.held, amounts, -1)
        add(self.refunded, amounts)

    def give_back(self, parent: Account | None) -> Amounts:
        """Return all that is held to a parent, or to outside; how much that was."""
        amounts = _nonzero(self.held)
        self.refund(amounts)
        if parent is not None:
            add(parent.held, amounts)
        return amounts

    def lose(self, amounts: Mapping[str, int]) -> None:
        """Give up an amount that is held."""
        add(self.held, amounts, -1)
        add(self.written_off, amounts)

    def write_off(self) -> Amounts:
        """Give up all that is held, as its holder is lost; how much that was."""
        amounts = _nonzero(self.held)
        self.lose(amounts)
        return amounts

    @property
    def is_sound(self) -> bool:
        """Whether nothing is negative."""
        kinds = self.given, self.spent, self.refunded, self.written_off, self.held
        return all(value >= 0 for amounts in kinds for value in amounts.values())

    @property
    def is_conserved(self) -> bool:
        """Whether nothing was made or lost, for the account of a whole group."""
        kinds = self.spent, self.refunded, self.held, self.written_off
        return _nonzero(self.given) == _nonzero(total(kinds))


def _nonzero(amounts: Mapping[str, int]) -> Amounts:
    return {unit: value for unit, value in amounts.items() if value}
