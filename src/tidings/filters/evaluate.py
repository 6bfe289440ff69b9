"""Compilation of a tree into one function of an event, with the results True, False and None for unknown.

Each node becomes a closure over the closures of its parts: no code is generated, and nothing is looked up
again that is known beforehand. The commonest conditions, an attribute compared with a constant and a list
of alternatives, have closures of their own: this is the path of a node with a few dozen filters.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.event.model import HEADER_READERS, Event
from tidings.event.values import Value
from tidings.filters.fold import Fold
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import OPERATORS, Kind, by_kind, calculate, compare, kind_of, negate
from tidings.filters.tree import Condition, Expression, FunctionCall

EventTest = Callable[[Event], bool | None]
Read = Callable[[Event], Value | None]


class Tests(Fold[EventTest, Read]):
    """Conditions as functions of an event, and expressions as functions that return their value."""

    def all_of(self, operands: tuple[Condition, ...]) -> EventTest:
        return self._joined(operands, False)

    def any_of(self, operands: tuple[Condition, ...]) -> EventTest:
        return self._joined(operands, True)

    def _joined(self, operands: tuple[Condition, ...], decisive: bool) -> EventTest:
        """Join operands of which one that is `decisive` decides, and else one that is unknown."""
        tests = [self.condition(operand) for operand in operands]

        def decide(event: Event) -> bool | None:
            answer: bool | None = not decisive
            for test in tests:
                held = test(event)
                if held is decisive:
                    return decisive
                if held is None:
                    answer = None
            return answer

        return decide

    def opposite(self, operand: Condition) -> EventTest:
        test = self.condition(operand)
        return lambda event: None if (answer := test(event)) is None else not answer

    def compared_with(self, operator: str, name: str, constant: Value) -> EventTest:
        read, holds = self.named(name), OPERATORS[operator]
        if kind_of(constant) is Kind.NUMBER:

            def compare_number(event: Event) -> bool | None:
                value = read(event)
                if type(value) is float:
                    return holds(value, constant) if value == value else None
                return holds(value, constant) if type(value) is int else None

            return compare_number

        same = type(constant)
        return lambda event: holds(value, constant) if type(value := read(event)) is same else None

    def compared(self, operator: str, left: Expression, right: Expression) -> EventTest:
        first, second = self.value(left), self.value(right)
        return lambda event: compare(operator, first(event), second(event))

    def among(self, name: str, values: tuple[Value, ...]) -> EventTest:
        """Join equalities by OR, for which IN is short: unknown while one of them is and none is true."""
        read = self.named(name)
        members = {kind: frozenset(alike) for kind, alike in by_kind(values).items()}
        otherwise = False if len(members) == 1 else None

        def test(event: Event) -> bool | None:
            value = read(event)
            if value is None or value != value:
                return None
            found = members.get(kind_of(value))
            return None if found is None else (value in found) or otherwise

        return test

    def is_null(self, name: str) -> EventTest:
        read = self.named(name)
        return lambda event: read(event) is None

    def always(self, answer: bool) -> EventTest:
        return lambda _event: answer

    def is_true(self, name: str) -> EventTest:
        read = self.named(name)
        return lambda event: value if type(value := read(event)) is bool else None

    def holds(self, call: FunctionCall) -> EventTest:
        return self.called(call)  # type: ignore[return-value]  # the parser lets only conditions stand here

    def named(self, name: str) -> Read:
        return HEADER_READERS.get(name) or (lambda event: event.values.get(name))

    def constant(self, value: Value) -> Read:
        return lambda _event: value

    def calculated(self, operator: str, left: Expression, right: Expression) -> Read:
        first, second = self.value(left), self.value(right)
        return lambda event: calculate(operator, first(event), second(event))

    def negative(self, operand: Expression) -> Read:
        read = self.value(operand)
        return lambda event: negate(read(event))

    def called(self, call: FunctionCall) -> Read:
        test = FUNCTIONS[call.function].prepare(*call.constants)
        reads = [self.named(name) for name in call.names]
        if len(reads) == 1:
            (only,) = reads
            return lambda event: None if (value := only(event)) is None else test(value)

        def called(event: Event) -> Value | None:
            values = [read(event) for read in reads]
            return None if None in values else test(*values)

        return called


condition_test = Tests().condition
"""Return the function that says whether an event meets a condition."""
