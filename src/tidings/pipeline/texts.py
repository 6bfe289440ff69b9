"""Conditions on strings, as Spark has them.

Where a function asks for a set of strings that is told by its ends, the column is compared with these: that
is what Spark's files know statistics for. LIKE is Spark's own, with its escape character; patterns of topics
become regular expressions of Java, built from parts that mean the same there. An expression of MATCHES is
RE2's, which Java reads differently, so only the simplest are translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as sf

from tidings.filters.functions import FUNCTIONS
from tidings.filters.intervals import Intervals, Piece
from tidings.filters.topics import SLASHES, read_topic
from tidings.filters.tree import Call
from tidings.pipeline.numbers import NoEqual

PIECES_MAX = 100
"""Of how many parts a set of strings may be, to be written as comparisons: a taxonomy may make thousands."""

ESCAPE = "\\"
"""The escape character of Spark's LIKE."""


def text_condition(call: Call, text: Column) -> Column:
    """A function of one string; raises NoEqual if Spark has no equal."""
    constants = tuple(str(constant) for constant in call.constants)
    plain = _PLAIN.get(call.function)
    if plain is not None:
        return plain(text, *constants)
    implied = FUNCTIONS[call.function].implied
    assert implied is not None
    (constraint,), exact = implied(1, *constants)
    if exact:
        return _among(call.function, text, constraint.strings)
    expression = _EXPRESSIONS.get(call.function)
    if expression is None:
        raise NoEqual(call.function)
    return text.rlike(expression(*constants))


def _among(function: str, text: Column, strings: Intervals) -> Column:
    pieces = list(strings.pieces())
    if len(pieces) > PIECES_MAX:
        raise NoEqual(f"{function} with more than {PIECES_MAX} terms")
    if not pieces:
        return sf.when(text.isNotNull(), sf.lit(False))
    return reduce(or_, (_in_piece(text, piece) for piece in pieces))


def _in_piece(text: Column, piece: Piece) -> Column:
    if piece.is_point:
        return text == sf.lit(piece.low)
    ends = []
    if piece.low is not None:
        ends.append(text >= sf.lit(piece.low) if piece.low_closed else text > sf.lit(piece.low))
    if piece.high is not None:
        ends.append(text <= sf.lit(piece.high) if piece.high_closed else text < sf.lit(piece.high))
    return reduce(and_, ends) if ends else sf.when(text.isNotNull(), sf.lit(True))


# Patterns


def like_symbols(pattern: str, escape: str | None = None) -> Iterator[tuple[str, bool]]:
    """The characters of a LIKE pattern, each with whether it is a wildcard; the pattern is a good one."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            yield next(characters), False
        else:
            yield character, character in "%_"


def _like(text: Column, pattern: str, escape: str | None = None) -> Column:
    written = "".join(
        character if wild or character not in ("%", "_", ESCAPE) else ESCAPE + character
        for character, wild in like_symbols(pattern, escape)
    )
    return text.like(written)


def under_expression(pattern: str, escape: str | None = None) -> str:
    """UNDER as an expression of Java: each further name may be absent, and all below the last one present."""
    levels = ["".join(_in_level(name, escape)) for name in pattern.split(".")]
    rest = r"(?:\..*)?"
    for level in reversed(levels[1:]):
        rest = rf"(?:\.{level}{rest})?"
    return rf"(?s)\A{levels[0]}{rest}\z"


def _in_level(name: str, escape: str | None) -> Iterator[str]:
    for character, wild in like_symbols(name, escape):
        yield ("[^.]*" if character == "%" else "[^.]") if wild else literal(character)


def topic_expression(pattern: str) -> str:
    """TOPIC as an expression of Java."""
    topic = read_topic(pattern)
    separator = literal(topic.spelling.separator)
    one = f"[^{topic.spelling.separator}]*"
    levels = separator.join(one if level is None else literal(level) for level in topic.levels)
    hidden = r"(?!\$)" if topic.hides else ""
    rest = ""
    if topic.is_open:
        rest = f"{separator}.*" if topic.levels else ".*"
        if topic.spelling is SLASHES:
            rest = f"(?:{rest})?"
    return rf"(?s)\A{hidden}{levels}{rest}\z"


def literal(text: str) -> str:
    """An expression of Java for just this text."""
    return "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in text)


_PLAIN: dict[str, Callable[..., Column]] = {
    "STARTS_WITH": lambda text, part: text.startswith(sf.lit(part)),
    "ENDS_WITH": lambda text, part: text.endswith(sf.lit(part)),
    "CONTAINS": lambda text, part: text.contains(sf.lit(part)),
    "LIKE": _like,
}
_EXPRESSIONS: dict[str, Callable[..., str]] = {"TOPIC": topic_expression, "UNDER": under_expression}
