"""A tree made into one function of an event, with the answers True, False and None for unknown.

Each node becomes a closure over the closures of its parts: no code is generated, and nothing is looked up
again that is known beforehand. The commonest conditions, an attribute compared with a constant and a list
of alternatives, have closures of their own: this is the path of a node with a few dozen filters.
"""

from __future__ import annotations

from collections.abc import Callable

from tidings.event.model import HEADER_READERS, Event
from tidings.event.values import Value
from tidings.filters.arithmetic import OPERATORS, calculate, compare, negate
from tidings.filters.functions import FUNCTIONS
from tidings.filters.kinds import Kind, kind_of
from tidings.filters.tree import (
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Condition,
    Expression,
    In,
    IsNull,
    Literal,
    Name,
    Negative,
    Not,
    Or,
)

Test = Callable[[Event], bool | None]
Read = Callable[[Event], Value | None]


def condition_test(node: Condition) -> Test:
    """The function that says whether an event meets the condition."""
    match node:
        case And(operands):
            return _all_of([condition_test(operand) for operand in operands])
        case Or(operands):
            return _any_of([condition_test(operand) for operand in operands])
        case Not(operand):
            return _opposite(condition_test(operand))
        case Compare(operator, Name(name), Literal(constant)):
            return _compared_with(operator, value_reader(Name(name)), constant)
        case Compare(operator, left, right):
            return _compared(operator, value_reader(left), value_reader(right))
        case Between(operand, low, high):
            ends = Compare(">=", operand, low), Compare("<=", operand, high)
            return _all_of([condition_test(end) for end in ends])
        case In(name, values):
            return _among(value_reader(Name(name)), values)
        case IsNull(name):
            read = value_reader(Name(name))
            return lambda event: read(event) is None
        case Literal(value):
            constant = value is True
            return lambda _event: constant
        case Name():
            return _is_true(value_reader(node))
        case Call():
            return value_reader(node)  # type: ignore[return-value]  # the parser lets only conditions stand here


def value_reader(node: Expression) -> Read:
    """The function that gives the value of the expression for an event; None where there is none."""
    match node:
        case Name(name):
            return _named(name)
        case Literal(value):
            return lambda _event: value
        case Arithmetic(operator, left, right):
            first, second = value_reader(left), value_reader(right)
            return lambda event: calculate(operator, first(event), second(event))
        case Negative(operand):
            read = value_reader(operand)
            return lambda event: negate(read(event))
        case Call(function, names, constants):
            return _called(FUNCTIONS[function].prepare(*constants), [_named(name) for name in names])


def _named(name: str) -> Read:
    return HEADER_READERS.get(name) or (lambda event: event.values.get(name))


def _called(test: Callable[..., Value | None], reads: list[Read]) -> Read:
    if len(reads) == 1:
        (only,) = reads
        return lambda event: None if (value := only(event)) is None else test(value)

    def call(event: Event) -> Value | None:
        values = [read(event) for read in reads]
        return None if None in values else test(*values)

    return call


def _compared_with(operator: str, read: Read, constant: Value) -> Test:
    holds = OPERATORS[operator]
    kind = kind_of(constant)
    if kind is Kind.NUMBER:

        def compare_number(event: Event) -> bool | None:
            value = read(event)
            if type(value) is float:
                return holds(value, constant) if value == value else None
            return holds(value, constant) if type(value) is int else None

        return compare_number

    same = type(constant)
    return lambda event: holds(value, constant) if type(value := read(event)) is same else None


def _compared(operator: str, left: Read, right: Read) -> Test:
    return lambda event: compare(operator, left(event), right(event))


def _among(read: Read, values: tuple[Value, ...]) -> Test:
    """IN is short for equalities joined by OR, so it is unknown while one of them is and none is true."""
    kinds = {kind_of(value) for value in values}
    members = {kind: frozenset(value for value in values if kind_of(value) is kind) for kind in kinds}
    otherwise = False if len(kinds) == 1 else None

    def test(event: Event) -> bool | None:
        value = read(event)
        if value is None or value != value:
            return None
        found = members.get(kind_of(value))
        return None if found is None else (value in found) or otherwise

    return test


def _is_true(read: Read) -> Test:
    return lambda event: value if type(value := read(event)) is bool else None


def _opposite(test: Test) -> Test:
    return lambda event: None if (answer := test(event)) is None else not answer


def _all_of(tests: list[Test]) -> Test:
    def all_hold(event: Event) -> bool | None:
        answer: bool | None = True
        for test in tests:
            held = test(event)
            if held is False:
                return False
            if held is None:
                answer = None
        return answer

    return all_hold


def _any_of(tests: list[Test]) -> Test:
    def any_holds(event: Event) -> bool | None:
        answer: bool | None = False
        for test in tests:
            held = test(event)
            if held:
                return True
            if held is None:
                answer = None
        return answer

    return any_holds
