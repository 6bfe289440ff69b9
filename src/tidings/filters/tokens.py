"""Tokens of filter text, and reading them as names, constants and parameters.

Cutting is one call of a regular expression without alternatives that overlap, so it takes time proportional
to the text. Places are only computed for an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, pairwise
from typing import Any

from tidings.errors import FilterError
from tidings.event.values import INT_MAX, JMS_ALIASES, Value
from tidings.filters.kinds import fits, plain, read_bytes, read_time
from tidings.filters.tree import Name, Trouble

LENGTH_MAX = 262_144
"""Characters of a filter."""

KEYWORDS = frozenset(("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
COMPARISONS = frozenset(("=", "<>", "!=", "<", "<=", ">", ">="))
BINDING = {"+": 0, "-": 0, "*": 1, "/": 1}
"""Precedence of the operators of arithmetic."""
END = ""
"""The token after the last one."""

NAME = r"(?!\d)[\w$]++(?:\.[\w$]++)*+"
"""A name that needs no quotes: as in JMS, and dotted as flattened attributes are."""

_TOKEN = re.compile(
    rf"""\s*+(
        {NAME}
      | \.?\d[\d.]*+(?:[eE][+-]\d[\w.$]*+|[\w.$]*+)   # numbers are taken greedily and judged later: 1st
      | <>|<=|>=|!=|=>|=<|==|&&|\|\||<|>|=             # some are only there to be explained
      | '[^']*+'(?:'[^']*+')*+                          # 'text', with '' for a quote
      | "[^"]*+"(?:"[^"]*+")*+                          # "any name"
      | :[^\W\d]\w*+
      | \S
    )""",
    re.VERBOSE,
)
_INTEGER = re.compile(
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0(?P<octal>[0-7]+)|(?P<decimal>0|[1-9]\d*))[lL]?\Z", re.ASCII
)
_FLOAT = re.compile(r"(?P<number>(?:\d+\.\d*|\.\d+|\d+(?=[eEfFdD]))(?:[eE][+-]?\d+)?)[fFdD]?\Z", re.ASCII)
_INTEGER_DIGITS_MAX = 22  # of 2**63 in octal
_PLAIN_DIGITS_MAX = 18  # surely within 64 bits

MISTAKES = {
    "=>": "did you mean >=",
    "=<": "did you mean <=",
    "==": "did you mean =",
    "&&": "did you mean AND",
    "||": "did you mean OR",
    "!": "did you mean NOT or <>",
    "~": "did you mean LIKE or MATCHES",
    "'": "a string starts here and has no end",
    '"': "a quoted name starts here and has no end",
    ";": "a filter is one condition, without an end mark",
    ":": "a parameter is a colon and a name, like :limit",
}
"""Tokens that no filter has, and what was probably meant."""

LIST_MAX = 10_000
"""Values of an IN list."""
NAMES_KEPT_MAX = 10_000
"""Names that are cached, so that they need not be checked again."""
NAME_KEPT_LENGTH_MAX = 100

_SPELLINGS = {jms: name for jms, name in JMS_ALIASES.items() if name not in ("time", "delivery")}
# JMSTimestamp (milliseconds) and JMSDeliveryMode (two words only) have values of their own, so they stay.
NAMES: dict[str, Name] = {}
"""Tokens that are names, with their nodes."""
TYPED: dict[str, Callable[[str], Value]] = {"TIMESTAMP": read_time, "DATE": read_time, "X": read_bytes}
"""Words that make the string after them a literal of another kind."""
_NAME = re.compile(NAME)


def cut(text: str) -> list[str]:
    """Return the tokens of a filter, followed by a few END marks so that looking ahead needs no care."""
    if len(text) > LENGTH_MAX:
        raise FilterError(f"the filter has {len(text)} characters, more than {LENGTH_MAX}")
    if not text.isascii():
        _refuse_surrogates(text)
    tokens: list[str] = _TOKEN.findall(text.rstrip())  # blanks at the end would be tried one by one
    tokens += (END,) * 6
    return tokens


def needs_taxonomy(text: str) -> bool:
    """Whether a filter or pattern may mean something else with a taxonomy: it has IS_A, or a unit."""
    tokens = _TOKEN.findall(text[:LENGTH_MAX])
    if any(is_word(token, "IS_A") for token in tokens):
        return True
    return any(after[:1] in ("'", ":") and number(one) is not None for one, after in pairwise(tokens))


def place(text: str, index: int) -> tuple[int, int]:
    """Return line and column, from 1, of the token of that index; of the end of the text for an END."""
    found = next(islice(_TOKEN.finditer(text.rstrip()), index, None), None)
    offset = len(text.rstrip()) if found is None else found.start(1)
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def number(token: str) -> int | float | None:
    """Return the value of a numeric token, None if it is not well formed.

    An integer may be one past 64 bits, because its minus sign is a token of its own.
    """
    if token.isdigit():
        if token[0] != "0" and len(token) <= _PLAIN_DIGITS_MAX and token.isascii():
            return int(token)
    elif "." in token and "_" not in token and token.isascii():
        try:
            return float(token)
        except ValueError:
            pass  # it has a suffix, or is no number at all
    if found := _INTEGER.match(token):
        digits, base = next((found[name], base) for name, base in _BASES if found[name])
        return int(digits, base) if len(digits.lstrip("0")) <= _INTEGER_DIGITS_MAX else INT_MAX + 2
    if found := _FLOAT.match(token):
        return float(found["number"])
    return None


_BASES = (("hex", 16), ("octal", 8), ("decimal", 10))


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - (text.rfind("\n", 0, error.start) + 1) + 1
        raise FilterError(
            f"U+{ord(text[error.start]):04X} is half a surrogate pair, not a character", line, column
        ) from None


# Reading


class TokenReader:
    """One pass over the tokens; `at` is the index of the next one."""

    def __init__(self, tokens: list[str], parameters: Mapping[str, Any]) -> None:
        self.tokens = tokens
        self.at = 0
        self.parameters = parameters
        self.used: set[str] = set()

    def take(self, word: str) -> bool:
        """Step over the word if it comes next."""
        token = self.tokens[self.at]
        if token != word and not is_word(token, word):
            return False
        self.at += 1
        return True

    def close(self, expected: str) -> None:
        """Step over the closing bracket, which must come next."""
        if not self.take(")"):
            raise self.unexpected(expected)

    def is_name(self, index: int) -> bool:
        """Whether the token of that index can be the name of an attribute."""
        token = self.tokens[index]
        named = is_name_start(token) or token[:1] == '"' != token
        return named and token.upper() not in KEYWORDS

    def name(self) -> str:
        """Read the name that comes next."""
        token = self.tokens[self.at]
        if not self.is_name(self.at):
            raise self.unexpected("a name")
        self.at += 1
        name = token if token[0] != '"' else token[1:-1].replace('""', '"')
        if not name:
            raise Trouble(self.at - 1, "a name needs at least one character")
        name = _SPELLINGS.get(name, name)
        if token[0] != '"' and len(token) <= NAME_KEPT_LENGTH_MAX:
            if len(NAMES) >= NAMES_KEPT_MAX:
                NAMES.clear()
            NAMES[token] = Name(name)
        return name

    def list_parameter(self) -> list[Value]:
        """Return the values of the parameter that comes next, which must be given as a list."""
        token = self.tokens[self.at]
        given = self.bound(token)
        if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
            raise Trouble(self.at, f"{token} must be given as a list", "or write IN (:a, :b)")
        values = [self.checked(item, token) for item in islice(given, LIST_MAX + 1)]
        self.at += 1
        return values

    def number(self, sign: int = 1) -> int | float:
        """Read the number that comes next, with the sign that came before."""
        token = self.tokens[self.at]
        value = number(token)
        if value is None:
            raise Trouble(self.at, f"{short(token)} is not a number")
        if not fits(sign * value):
            what = "floating-point number" if isinstance(value, float) else "64-bit integer"
            raise Trouble(self.at, f"{short(token)} is too large for a {what}")
        self.at += 1
        return sign * value

    def parameter(self, token: str) -> Value:
        """Return the value bound to the parameter that comes next."""
        value = self.checked(self.bound(token), token)
        self.at += 1
        return value

    def bound(self, token: str) -> Any:
        """Return the value given for a parameter."""
        if token[1:] not in self.parameters:
            raise Trouble(self.at, f"no value was given for the parameter {token}")
        self.used.add(token[1:])
        return self.parameters[token[1:]]

    def checked(self, value: Any, token: str) -> Value:
        """Return a bound value as a filter has it."""
        try:
            return plain(value)
        except ValueError as error:
            raise Trouble(self.at, f"{token} can't be used: {error}") from None

    def typed(self, word: str) -> Value:
        """Read the value of TIMESTAMP '…', DATE '…' or X'…'."""
        text = unquoted(self.tokens[self.at + 1])
        try:
            value = TYPED[word](text)
        except ValueError as error:
            raise Trouble(self.at + 1, f"not a {word} literal: {short(str(error), 100)}") from None
        self.at += 2
        return value

    def unexpected(self, expected: str) -> Trouble:
        """Return the error that something else was expected than what comes next."""
        token = self.tokens[self.at]
        hint = MISTAKES.get(token)
        if token.upper() == "NULL":
            hint = "write IS NULL, or IS NOT NULL"
        elif token.upper() in KEYWORDS:
            hint = f'{token.upper()} is a reserved word; an attribute of that name is written "{token}"'
        return Trouble(self.at, f"expected {expected}" + found(token), hint)


def is_name_start(token: str) -> bool:
    """Whether the token is a name that stands without quotes, or a word."""
    return _NAME.match(token) is not None


def plain_constant(token: str) -> int | float | str | None:
    """Return the constant of a token that is an unsigned number or a string and nothing else, or None."""
    if token[:1].isdigit():
        value = number(token)
        return None if value is None or value > INT_MAX else value
    return unquoted(token) if token[:1] == "'" != token else None


def is_word(token: str, word: str) -> bool:
    """Whether the token is that keyword, in whatever case."""
    return token == word or (len(token) == len(word) and token.upper() == word)


def unquoted(token: str) -> str:
    """Return the text of a string token."""
    return token[1:-1].replace("''", "'")


def found(token: str) -> str:
    """Return the part of an error text that says what was found."""
    return ", found the end" if token is END else f", found {short(token)}"


def short(text: str, most: int = 40) -> str:
    """Return the text, cut if it is long."""
    return text if len(text) <= most else text[: most - 10] + "…"
