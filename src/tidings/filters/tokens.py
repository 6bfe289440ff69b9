"""Filter text cut into tokens, and the place of each in the text.

Cutting is one call of a regular expression without alternatives that overlap, so it takes time proportional
to the text. Places are only worked out when there is something to complain about.
"""

from __future__ import annotations

import math
import re
from itertools import islice

from tidings.errors import FilterError
from tidings.event.values import INT_MAX, INT_MIN

LENGTH_MAX = 262_144
"""How many characters a filter may have."""

KEYWORDS = frozenset(("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
COMPARISONS = frozenset(("=", "<>", "!=", "<", "<=", ">", ">="))
BINDING = {"+": 0, "-": 0, "*": 1, "/": 1}
"""How tightly the operators of arithmetic bind."""
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


def cut(text: str) -> list[str]:
    """The tokens of a filter, followed by a few END marks so that looking ahead needs no care."""
    if len(text) > LENGTH_MAX:
        raise FilterError(f"the filter has {len(text)} characters, more than {LENGTH_MAX}")
    if not text.isascii():
        _refuse_surrogates(text)
    tokens: list[str] = _TOKEN.findall(text.rstrip())  # blanks at the end would be tried one by one
    tokens += (END,) * 6
    return tokens


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column, from 1, of the token of that index; of the end of the text for an END."""
    found = next(islice(_TOKEN.finditer(text.rstrip()), index, None), None)
    offset = len(text.rstrip()) if found is None else found.start(1)
    line = text.count("\n", 0, offset) + 1
    return line, offset - (text.rfind("\n", 0, offset) + 1) + 1


def number(token: str) -> int | float | None:
    """The value of a numeric token, None if it is not well formed; an integer may be one past 64 bits,
    because its minus sign is a token of its own."""
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


def fits(value: float) -> bool:
    """Whether a number may stand in a filter: 64 bits, or a finite float."""
    return INT_MIN <= value <= INT_MAX if isinstance(value, int) else math.isfinite(value)


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - (text.rfind("\n", 0, error.start) + 1) + 1
        raise FilterError(
            f"U+{ord(text[error.start]):04X} is half a surrogate pair, not a character", line, column
        ) from None
