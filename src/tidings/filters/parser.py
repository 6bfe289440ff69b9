"""From filter text to a tree: SQL-92 conditions as JMS selectors have them, and our functions.

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = { NOT } predicate
    predicate   = value [ comparison value | [NOT] BETWEEN value AND value | [NOT] IN list
                         | [NOT] LIKE text [ESCAPE text] | IS [NOT] NULL ]
    value       = sign { (+|-|*|/) sign }
    sign        = { + | - } primary
    primary     = literal | number unit | name | :parameter | FUNCTION ( … ) | ( condition )

Plain JMS text means what JMS says; what is added was a syntax error there: functions (a name before a
parenthesis), `TIMESTAMP '…'`, `DATE '…'` and `X'…'` literals (a name before a string), units (a string behind
a number), parameters, quoted and dotted names, ordered strings, IN over any literals, `!=`.

The rule kept: time is proportional to the text. Brackets are the only recursion, and they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from tidings.errors import FilterError
from tidings.event.values import Value
from tidings.filters import measured, tree
from tidings.filters.functions import ARGUMENTS_MAX, FUNCTIONS, Function
from tidings.filters.kinds import fits, is_number
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.tokens import (
    BINDING,
    COMPARISONS,
    END,
    KEYWORDS,
    LIST_MAX,
    NAMES,
    TYPED,
    TokenReader,
    cut,
    found,
    is_name_start,
    is_word,
    place,
    plain_constant,
    unquoted,
)
from tidings.filters.tree import Condition, Expression
from tidings.filters.units import Quantity

NESTING_MAX = 50
"""Deepest nesting of brackets."""
ALTERNATIVES_MAX = 1_000
"""Conditions that one OR may join."""
CALCULATIONS_MAX = 200
"""Number of + - * / in a filter."""
EXPRESSIONS_MAX = 20
"""Regular expressions of a filter: to compile one takes milliseconds."""
QUANTITIES_MAX = 100
"""Comparisons with a unit in a filter: each becomes as many alternatives as there are units."""

CALCULATING = frozenset(BINDING)
UNIT_STARTS = frozenset(("'", ":"))
"""First characters of a unit behind a number: a string or a parameter."""
TRUE = tree.Literal(True)


def parse(text: str, parameters: Mapping[str, Any], taxonomy: Taxonomy | None = None) -> Condition:
    """Parse a filter to a tree; the empty text matches everything. Raises FilterError with the place."""
    tokens = cut(text)
    if tokens[0] is END:
        return TRUE
    parser = _Parser(tokens, parameters, taxonomy)
    try:
        condition = parser.whole()
    except tree.Trouble as trouble:
        raise _located(text, trouble) from None
    unused = parameters.keys() - parser.used
    if unused:
        raise FilterError(f"the filter has no parameter :{min(unused)}")
    return condition


def parse_expression(text: str) -> Condition | Expression:
    """Parse a value such as `price * volume`, or a condition; FilterError with the place."""
    try:
        return _Parser(cut(text), {}, None).expression()
    except tree.Trouble as trouble:
        raise _located(text, trouble) from None


def _located(text: str, trouble: tree.Trouble) -> FilterError:
    line, column = place(text, trouble.index)
    return FilterError(trouble.problem, line, column, trouble.hint)


class _Parser(TokenReader):
    """The grammar, one method for each rule."""

    def __init__(self, tokens: list[str], parameters: Mapping[str, Any], taxonomy: Taxonomy | None) -> None:
        super().__init__(tokens, parameters)
        self.taxonomy = taxonomy
        self.depth = 0
        self.calculations = 0
        self.expressions = 0
        self.quantities = 0
        self.is_negated = False  # whether an odd number of NOTs stands before what is parsed

    # Conditions

    def whole(self) -> Condition:
        condition = tree.as_condition(self.condition(), 0)
        if self.tokens[self.at] is not END:
            raise self.unexpected("AND, OR or the end")
        return condition

    def expression(self) -> Condition | Expression:
        node = self.condition()
        if self.tokens[self.at] is not END:
            raise self.unexpected("an operator or the end")
        assert isinstance(node, Condition | Expression)
        return node

    def condition(self) -> tree.TreeNode:
        return self.joined(tree.Or, "OR", self.conjunction)

    def conjunction(self) -> tree.TreeNode:
        return self.joined(tree.And, "AND", lambda: self.plain() or self.negation())

    def joined(
        self, joint: type[tree.And | tree.Or], word: str, operand: Callable[[], tree.TreeNode]
    ) -> tree.TreeNode:
        start = self.at
        first = operand()
        if not self.take(word):
            return first
        operands: list[Condition] = []
        tree.join(operands, joint, first, start)
        while True:
            start = self.at
            tree.join(operands, joint, operand(), start)
            if joint is tree.Or and len(operands) > ALTERNATIVES_MAX:
                raise tree.Trouble(
                    start, f"more than {ALTERNATIVES_MAX} alternatives", "use IN or several filters"
                )
            if not self.take(word):
                return joint(tuple(operands))

    def negation(self) -> tree.TreeNode:
        if not is_word(self.tokens[self.at], "NOT"):
            return self.predicate()
        negative = False
        while self.take("NOT"):
            negative = not negative
        start = self.at
        self.is_negated ^= negative
        condition = tree.as_condition(self.predicate(), start)
        self.is_negated ^= negative
        return tree.negated(condition) if negative else condition

    def plain(self) -> Condition | None:
        """Parse `name operator constant` or `name BETWEEN constant AND constant` in one step.

        Most filters have little else, and a million of them may be waiting. None for anything else.
        """
        tokens, at = self.tokens, self.at
        name = NAMES.get(tokens[at])
        if name is None:
            return None
        operator = tokens[at + 1]
        constant = plain_constant(tokens[at + 2])
        if constant is None:
            return None
        if operator in COMPARISONS:
            if tokens[at + 3] in CALCULATING or tokens[at + 3][:1] in UNIT_STARTS:
                return None
            self.at = at + 3
            return tree.Compare("<>" if operator == "!=" else operator, name, tree.Literal(constant))
        if not ((operator == "BETWEEN" or is_word(operator, "BETWEEN")) and is_word(tokens[at + 3], "AND")):
            return None
        high = plain_constant(tokens[at + 4])
        if high is None or type(high) is not type(constant):
            return None
        if tokens[at + 5] in CALCULATING or tokens[at + 5][:1] in UNIT_STARTS:
            return None
        self.at = at + 5
        return tree.Between(name, tree.Literal(constant), tree.Literal(high))

    def predicate(self) -> tree.TreeNode:
        start = self.at
        left = self.value()
        token = self.tokens[self.at]
        if token in COMPARISONS:
            self.at += 1
            right_start = self.at
            right = self.value()
            if isinstance(left, tree.Measured) or isinstance(right, tree.Measured):
                return self.measured(*measured.compared(token, left, right), start)
            return tree.comparison(
                token, tree.as_value(left, start), tree.as_value(right, right_start), right_start
            )
        word = token.upper() if len(token) <= 7 else ""
        if word == "IS":
            return self.null_test(left, start)
        if word == "NOT" and self.tokens[self.at + 1].upper() in ("BETWEEN", "IN", "LIKE"):
            self.at += 1
            self.is_negated = not self.is_negated
            condition = tree.negated(self.membership(left, start))
            self.is_negated = not self.is_negated
            return condition
        if word in ("BETWEEN", "IN", "LIKE"):
            return self.membership(left, start)
        return left

    def membership(self, left: tree.TreeNode, start: int) -> Condition:
        word = self.tokens[self.at].upper()
        self.at += 1
        if word == "BETWEEN":
            return self.between(left, start)
        name = self.name_of(left, start, word)
        return self.in_list(name) if word == "IN" else self.like(name)

    def between(self, left: tree.TreeNode, left_start: int) -> Condition:
        start = self.at
        first = self.value()
        if not self.take("AND"):
            raise self.unexpected("AND between the two ends of BETWEEN")
        middle = self.at
        last = self.value()
        if isinstance(first, tree.Measured) or isinstance(last, tree.Measured):
            return self.measured(left, *measured.between(first, last, middle), left_start)
        operand = tree.as_value(left, left_start)
        low, high = tree.as_value(first, start), tree.as_value(last, middle)
        ends = tree.comparison(">=", operand, low, start), tree.comparison("<=", operand, high, middle)
        return tree.And(ends) if isinstance(operand, tree.Literal) else tree.Between(operand, low, high)

    def in_list(self, name: str) -> Condition:
        start = self.at
        if self.tokens[start].startswith(":"):
            values = self.list_parameter()
        else:
            values = self.bracketed_list()
        if not values:
            raise tree.Trouble(start, "an IN list needs at least one value")
        if len(values) > LIST_MAX:
            raise tree.Trouble(start, f"an IN list of more than {LIST_MAX} values")
        return tree.membership(name, values)

    def bracketed_list(self) -> list[Value]:
        if not self.take("("):
            raise self.unexpected("( before the values of IN")
        if self.tokens[self.at] == ")":
            return []
        values = [self.constant()]
        while self.take(","):
            values.append(self.constant())
        self.close(", or )")
        return values

    def like(self, name: str) -> Condition:
        start = self.at
        pattern = self.text("a pattern as a string")
        constants = (pattern, self.text("one character as a string")) if self.take("ESCAPE") else (pattern,)
        return self.call(FUNCTIONS["LIKE"], (name,), constants, start)

    def null_test(self, left: tree.TreeNode, start: int) -> Condition:
        name = self.name_of(left, start, "IS NULL")
        self.at += 1
        negative = self.take("NOT")
        if not self.take("NULL"):
            raise self.unexpected("NULL" if negative else "NULL or NOT NULL")
        return tree.Not(tree.IsNull(name)) if negative else tree.IsNull(name)

    # Values

    def value(self, least: int = 0) -> tree.TreeNode:
        """Parse a primary, or a calculation whose operators bind at least so tightly."""
        start = self.at
        left = self.sign() if self.tokens[start] in ("+", "-") else self.primary()
        while (binding := BINDING.get(self.tokens[self.at], -1)) >= least:
            operator = self.tokens[self.at]
            self.calculations += 1
            if self.calculations > CALCULATIONS_MAX:
                raise tree.Trouble(self.at, f"more than {CALCULATIONS_MAX} calculations")
            self.at += 1
            right_start = self.at
            right = tree.as_number(self.value(binding + 1), right_start)
            left = tree.arithmetic(operator, tree.as_number(left, start), right)
        return left

    def sign(self) -> tree.TreeNode:
        negative = False
        while (token := self.tokens[self.at]) in ("+", "-"):
            negative ^= token == "-"
            self.at += 1
        if token[:1].isdigit() or token[:1] == "." != token:
            return self.amount(self.number(-1 if negative else 1))
        start = self.at
        operand = tree.as_number(self.primary(), start)
        if isinstance(operand, tree.Literal):
            return tree.Literal(self.folded(operand.value, negative))
        return tree.signed(operand, negative)

    def folded(self, value: Any, negative: bool) -> Value:
        folded: Value = -value if negative else value
        return folded if fits(folded) else float(folded)  # type: ignore[arg-type]

    def primary(self) -> tree.TreeNode:
        token = self.tokens[self.at]
        first = token[:1]
        if is_name_start(token):
            return self.word(token)
        if first.isdigit() or first == "." != token:
            return self.amount(self.number())
        if first == "'" != token:
            self.at += 1
            return tree.Literal(unquoted(token))
        if first == "(":
            return self.bracket()
        if first == '"' != token:
            return tree.Name(self.name())
        if first == ":" != token:
            return self.bound_value(token)
        raise self.unexpected("a name, a value or (")

    def bound_value(self, token: str) -> tree.TreeNode:
        given = self.bound(token)
        if isinstance(given, Quantity):
            self.at += 1
            return self.amount(self.checked(given.value, token), given.unit)
        return self.amount(self.parameter(token))

    # Units

    def amount(self, value: Value, unit: str = "") -> tree.TreeNode:
        """Return a constant or, if it is a number and a unit comes next or is given, a number with that."""
        if not is_number(value) or (not unit and self.tokens[self.at][:1] not in UNIT_STARTS):
            return tree.Literal(value)
        at = self.at
        unit = unit or self.text("a unit as a string")
        if self.taxonomy is None:
            raise tree.Trouble(at, "a unit needs a taxonomy", "as in Filter(text, taxonomy=Taxonomy())")
        try:
            self.taxonomy.units.scale(unit)
        except ValueError as error:
            raise tree.Trouble(at, str(error)) from None
        return tree.Measured(value, unit)

    def measured(self, left: tree.TreeNode, bounds: measured.Bounds, unit: str, start: int) -> Condition:
        """Return a comparison with a unit as alternatives, which stand in brackets of their own."""
        assert self.taxonomy is not None
        self.quantities += 1
        if self.quantities > QUANTITIES_MAX:
            raise tree.Trouble(start, f"more than {QUANTITIES_MAX} comparisons with units")
        if self.depth == NESTING_MAX:
            raise tree.Trouble(start, f"brackets nested more than {NESTING_MAX} deep")
        return measured.written_out(left, bounds, unit, self.taxonomy.units, self.is_negated, start)

    def word(self, token: str) -> tree.TreeNode:
        following = self.tokens[self.at + 1][:1]
        if following == "(" and token.upper() not in KEYWORDS:
            return self.function(token)
        if following == "'" and token.upper() in TYPED:
            return tree.Literal(self.typed(token.upper()))
        upper = token.upper() if len(token) <= 7 else ""
        if upper in ("TRUE", "FALSE"):
            self.at += 1
            return tree.Literal(upper == "TRUE")
        return tree.Name(self.name())

    def bracket(self) -> tree.TreeNode:
        if self.depth == NESTING_MAX:
            raise tree.Trouble(self.at, f"brackets nested more than {NESTING_MAX} deep")
        self.depth += 1
        self.at += 1
        node = self.condition()
        self.close(")")
        self.depth -= 1
        return node

    def function(self, token: str) -> tree.TreeNode:
        start = self.at
        function = FUNCTIONS.get(token.upper())
        if function is None or function.name == "LIKE":
            known = sorted(FUNCTIONS.keys() - {"LIKE"})
            close = get_close_matches(token.upper(), known, 1)
            hint = f"did you mean {close[0]}" if close else "there are " + ", ".join(known)
            raise tree.Trouble(start, f"there is no function {token[:40]}", hint)
        self.at += 2
        names = [self.name()]
        while len(names) < function.names[1] and self.tokens[self.at] == "," and self.is_name(self.at + 1):
            self.at += 1
            names.append(self.name())
        constants: list[Value] = []
        while self.take(","):
            constants.append(self.constant())
        self.close(f"the end of {function.usage}")
        least, most = function.constants
        if len(names) < function.names[0] or not least <= len(constants) <= most:
            raise tree.Trouble(start, f"wrong number of arguments; expected {function.usage}")
        return self.call(function, tuple(names), tuple(constants), start)

    def call(
        self, function: Function, names: tuple[str, ...], constants: tuple[Value, ...], at: int
    ) -> tree.FunctionCall:
        try:
            function.prepare(*constants)
            if function.name == "IS_A" and self.taxonomy is not None:
                terms = {term: None for given in constants for term in self.taxonomy.expand(str(given))}
                constants = tuple(terms)
                if len(constants) > ARGUMENTS_MAX:
                    raise ValueError(
                        f"the taxonomy has {len(constants)} such terms, more than {ARGUMENTS_MAX}"
                    )
            if function.name == "MATCHES":
                self.expressions += 1
                if self.expressions > EXPRESSIONS_MAX:
                    raise ValueError(f"more than {EXPRESSIONS_MAX} regular expressions")
        except ValueError as error:
            raise tree.Trouble(at, str(error)) from None
        return tree.FunctionCall(function.name, names, constants)

    def name_of(self, node: tree.TreeNode, start: int, what: str) -> str:
        if isinstance(node, tree.Name):
            return node.name
        raise tree.Trouble(start, f"{what} needs the name of an attribute on its left")

    def constant(self) -> Value:
        start = self.at
        node = self.sign() if self.tokens[start] in ("+", "-") else self.primary()
        if isinstance(node, tree.Literal):
            return node.value
        if isinstance(node, tree.Measured):
            raise tree.Trouble(start, "a number in a list has no unit", "write = and OR")
        raise self.no_constant(start, "a constant")

    def text(self, expected: str) -> str:
        start = self.at
        if self.tokens[start][:1] in ("'", ":"):
            value = self.constant()
            if isinstance(value, str):
                return value
        raise self.no_constant(start, expected)

    def no_constant(self, at: int, expected: str) -> tree.Trouble:
        token = self.tokens[at]
        hint = "a text is written in single quotes" if token[:1] == '"' else None
        return tree.Trouble(at, f"expected {expected}" + found(token), hint)
