"""Conversion of numbers from one unit to another.

It is a few operations on doubles, none of which changes the order of two numbers: a sum, a product and a
quotient with constants, each rounded as IEEE 754 demands. So it is the same in Python and in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from fractions import Fraction

EXACT_MAX = 1 << 53
"""Up to here all integers are doubles."""


class Conversion(Struct, frozen=True):
    """`(number + before) * numerator / denominator + after`, in doubles."""

    before: float = 0.0
    numerator: float = 1.0
    denominator: float = 1.0
    after: float = 0.0

    def __call__(self, number: float) -> float:
        """Return the converted number: infinite if it is too large for a double."""
        return (float(number) + self.before) * self.numerator / self.denominator + self.after


def conversion(factor: Fraction, offset: Fraction) -> Conversion:
    """Return `number * factor + offset` in few roundings: factors that are whole numbers are not rounded."""
    numerator, denominator = float(factor), 1.0
    if factor.numerator <= EXACT_MAX and factor.denominator <= EXACT_MAX:
        numerator, denominator = float(factor.numerator), float(factor.denominator)
    before = offset / factor
    if before.denominator < offset.denominator:  # (°F - 32) * 5 / 9, rather than °F * 5 / 9 - 17.7…
        return Conversion(float(before), numerator, denominator)
    return Conversion(0.0, numerator, denominator, float(offset))
