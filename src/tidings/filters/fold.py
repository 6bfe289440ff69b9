"""One walk over the tree of a filter, which every back end shares.

A back end is a `Fold`: its result for a condition (`C`) and for a value (`V`), with one method for each kind
of node. The fold distinguishes the kinds and writes out abbreviations; a method gets the parts of its node
and walks on by `condition` and `value`, so that a back end may go through operands in its own order, or leave
some out. The rule kept: mypy reports a kind of node that the walk has no case for,
and a back end that lacks a method for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from tidings.event.values import Value
from tidings.filters import tree
from tidings.filters.tree import Condition, Expression

C = TypeVar("C")
V = TypeVar("V")


class Fold(ABC, Generic[C, V]):
    """Translation of conditions and values by a back end."""

    def condition(self, node: Condition) -> C:
        """Translate a condition."""
        if type(node) is tree.Between:  # as others would be tried before it, and many filters have several
            return self.between(node.operand, node.low, node.high)
        match node:
            case tree.Compare(operator, left, right):
                if type(left) is tree.Name and type(right) is tree.Literal:
                    return self.compared_with(operator, left.name, right.value)
                return self.compared(operator, left, right)
            case tree.And(operands):
                return self.all_of(operands)
            case tree.Or(operands):
                return self.any_of(operands)
            case tree.Between(operand, low, high):
                return self.between(operand, low, high)
            case tree.In(name, values):
                return self.among(name, values)
            case tree.FunctionCall():
                return self.holds(node)
            case tree.Not(operand):
                return self.opposite(operand)
            case tree.IsNull(name):
                return self.is_null(name)
            case tree.Name(name):
                return self.is_true(name)
            case tree.Literal(value):
                return self.always(value is True)

    def value(self, node: Expression) -> V:
        """Translate an expression."""
        match node:
            case tree.Name(name):
                return self.named(name)
            case tree.Literal(value):
                return self.constant(value)
            case tree.Arithmetic(operator, left, right):
                return self.calculated(operator, left, right)
            case tree.Negative(operand):
                return self.negative(operand)
            case tree.FunctionCall():
                return self.called(node)

    # Conditions

    @abstractmethod
    def all_of(self, operands: tuple[Condition, ...]) -> C:
        """Operands joined by AND."""

    @abstractmethod
    def any_of(self, operands: tuple[Condition, ...]) -> C:
        """Operands joined by OR."""

    @abstractmethod
    def opposite(self, operand: Condition) -> C:
        """`NOT operand`."""

    @abstractmethod
    def compared_with(self, operator: str, name: str, constant: Value) -> C:
        """`name operator constant`: what most conditions are."""

    @abstractmethod
    def compared(self, operator: str, left: Expression, right: Expression) -> C:
        """`left operator right`, any other comparison."""

    def between(self, operand: Expression, low: Expression, high: Expression) -> C:
        """`operand BETWEEN low AND high`: two comparisons, unless a back end has its own word for it."""
        return self.all_of(tree.ends_of(operand, low, high))

    @abstractmethod
    def among(self, name: str, values: tuple[Value, ...]) -> C:
        """`name IN (values…)`: equalities joined by OR, so with several kinds it is true or unknown."""

    @abstractmethod
    def is_null(self, name: str) -> C:
        """`name IS NULL`."""

    @abstractmethod
    def always(self, answer: bool) -> C:
        """TRUE or FALSE."""

    @abstractmethod
    def is_true(self, name: str) -> C:
        """An attribute that is a condition itself: unknown unless it is a boolean."""

    @abstractmethod
    def holds(self, call: tree.FunctionCall) -> C:
        """A function that is a condition."""

    # Values

    @abstractmethod
    def named(self, name: str) -> V:
        """An attribute or header field."""

    @abstractmethod
    def constant(self, value: Value) -> V:
        """A constant."""

    @abstractmethod
    def calculated(self, operator: str, left: Expression, right: Expression) -> V:
        """`left operator right` with + - * /."""

    @abstractmethod
    def negative(self, operand: Expression) -> V:
        """`-operand`."""

    @abstractmethod
    def called(self, call: tree.FunctionCall) -> V:
        """A function that gives a number."""
