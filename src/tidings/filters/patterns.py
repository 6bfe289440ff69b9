"""Conditions on the text of a string: LIKE and regular expressions.

Whatever the pattern and the text, no test backtracks. A LIKE pattern is cut at its `%` into runs of fixed
length; the first and the last have their place, and each one between is searched from left to right, once,
where the one before it ended: the leftmost place is always as good as any later one. Regular expressions are
RE2's, whose time is linear in the text.

LIKE is that of JMS and SQL-92: `_` is one code point, `%` any run of them, empty and with newlines too; the
case counts, and the pattern is for the whole string. The ESCAPE character may stand before `_`, `%` and
itself only: before anything else, or at the end, SQL-92 has an error, and so have we (some brokers take the
next character as it is, but a filter that means something other than its writer thought is worse).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from itertools import groupby
from operator import eq
from typing import Any, NamedTuple

from tidings.errors import MissingExtra
from tidings.filters.intervals import Intervals, points, prefixed

PATTERN_LENGTH_MAX = 1_000
"""Code points in a pattern of LIKE or MATCHES."""
PATTERNS_KEPT = 64
"""Patterns of LIKE of which it is remembered how they are cut."""
REGEX_MEMORY_MAX = 1 << 18
"""Bytes that RE2 may use for one compiled expression; a counted repetition is refused if it needs more."""

REGEX_SIGNS = frozenset("\\^$.[]()|*+?{}")
REGEX_REPEATS = frozenset("*+?{")
REGEX_MAYBES = frozenset("*?{")

Holds = Callable[[str], bool]
Symbol = str | None
"""One place of a pattern: a character, or None for `_`."""


class Needed(NamedTuple):
    """Literal that is in every string that a pattern matches; empty if there is none."""

    text: str
    at_end: bool = False
    """Whether it is at the end."""
    is_all: bool = False
    """Whether the pattern matches all strings that contain it so."""


def prepare_like(pattern: str, escape: str | None = None) -> Holds:
    """Return a test whether a whole string is like the pattern.

    Takes time linear in text and pattern, except for runs with `_` between two `%`: these take one step of
    (length of the run) bits for each character of the text.
    """
    runs = _runs(pattern, escape)
    if len(runs) == 1:
        return _only(runs[0])
    first, last = _Run(runs[0]), _Run(runs[-1])
    middle = [_Run(symbols) for symbols in runs[1:-1] if symbols]

    def holds(text: str) -> bool:
        at, end = first.length, len(text) - last.length
        if at > end or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        for run in middle:
            at = run.find_end(text, at, end)
            if at < 0:
                return False
        return True

    return holds


def implied_by_like(pattern: str, escape: str | None = None) -> tuple[Intervals, bool]:
    """Return the strings with the literal head of the pattern; exact for `abc` and `abc%`."""
    head, whole = like_head(pattern, escape)
    if whole:
        return points([head]), True
    runs = _runs(pattern, escape)
    return prefixed(head), len(head) == len(runs[0]) and not any(runs[1:])


def like_head(pattern: str, escape: str | None = None) -> tuple[str, bool]:
    """Return the text before the pattern's first wildcard, and whether it has no wildcard at all."""
    runs = _runs(pattern, escape)
    head: list[str] = []
    for symbol in runs[0]:
        if symbol is None:
            break
        head.append(symbol)
    return "".join(head), len(runs) == 1 and len(head) == len(runs[0])


def needed_by_like(pattern: str, escape: str | None = None) -> Needed:
    """Return the longest literal of the pattern; of two the one at the end, which has a fixed place."""
    runs = _runs(pattern, escape)
    pieces = [_pieces(run) for run in runs]
    end = pieces[-1][-1][1] if runs[-1] and runs[-1][-1] is not None else ""
    longest = max((text for run in pieces for _, text in run), key=len, default="")
    if end and len(end) >= len(longest):
        return Needed(
            end, at_end=True, is_all=len(runs) > 1 and not any(runs[:-1]) and end == _text(runs[-1])
        )
    inner = [run for run in runs[1:-1] if run]
    is_all = len(runs) > 2 and not runs[0] and not runs[-1] and len(inner) == 1
    return Needed(longest, is_all=is_all and longest == _text(inner[0]))


def _text(symbols: list[Symbol]) -> str | None:
    """The run as text, if it has no `_`."""
    return None if None in symbols else "".join(filter(None, symbols))


@lru_cache(maxsize=PATTERNS_KEPT)
def _runs(pattern: str, escape: str | None) -> list[list[Symbol]]:
    """Cut the pattern at each `%`: one run if there is none, an empty one for each end that is a `%`.

    Those of a pattern are asked for several times, one soon after the other; the lists must not be changed.
    """
    check_length(pattern)
    if escape is not None and (len(escape) != 1 or escape in "%_"):
        raise ValueError(f"ESCAPE takes one character that is not % or _, not {escape!r}")
    runs: list[list[Symbol]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            runs[-1].append(_escaped(next(characters, ""), escape))
        elif character == "%":
            runs.append([])
        else:
            runs[-1].append(None if character == "_" else character)
    return runs


def check_length(pattern: str) -> None:
    """Refuse a pattern that is too long, whatever it is for."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise ValueError(f"a pattern of {len(pattern)} characters is too long: at most {PATTERN_LENGTH_MAX}")


def _escaped(character: str, escape: str) -> str:
    if not character:
        raise ValueError(f"the pattern ends with its escape character {escape!r}")
    if character not in ("%", "_", escape):
        raise ValueError(f"{escape!r} escapes only %, _ and itself, not {character!r}")
    return character


def _only(symbols: list[Symbol]) -> Holds:
    """The test of a pattern without `%`."""
    run = _Run(symbols)
    if run.is_literal:
        return partial(eq, run.anchor)
    return lambda text: len(text) == run.length and run.stands_at(text, 0)


class _Run:
    """A part of a LIKE pattern of fixed length: characters, and places where any character will do."""

    def __init__(self, symbols: list[Symbol]) -> None:
        self.length = len(symbols)
        self.pieces = _pieces(symbols)
        self.anchor_at, self.anchor = max(self.pieces, key=lambda piece: len(piece[1]), default=(0, ""))
        self.is_literal = len(self.anchor) == self.length
        self._symbols = symbols

    def stands_at(self, text: str, at: int) -> bool:
        """Whether the run stands there; the text has room for it."""
        if self.is_literal:
            return text.startswith(self.anchor, at)
        return all(text.startswith(piece, at + offset) for offset, piece in self.pieces)

    def find_end(self, text: str, start: int, end: int) -> int:
        """Return the end of the leftmost occurrence between start and end, or -1."""
        anchored = text.find(self.anchor, start + self.anchor_at, end)
        begin = anchored - self.anchor_at
        if anchored < 0 or begin + self.length > end:
            return -1
        if self.stands_at(text, begin):
            return begin + self.length
        return self._shift_and(text, begin + 1, end)

    def _shift_and(self, text: str, start: int, end: int) -> int:
        """Do it bit-parallel (Baeza-Yates and Gonnet): bit i is set while the first i + 1 symbols fit."""
        masks, gaps = self._masks
        found, state = 1 << (self.length - 1), 0
        for at in range(start, end):
            state = (state << 1 | 1) & masks.get(text[at], gaps)
            if state & found:
                return at + 1
        return -1

    @cached_property  # made for the first text that needs it: most runs are found without
    def _masks(self) -> tuple[dict[str, int], int]:
        """Return for each character the places it fits as bits, and those that any character fits."""
        gaps = sum(1 << place for place, symbol in enumerate(self._symbols) if symbol is None)
        masks: dict[str, int] = {}
        for place, symbol in enumerate(self._symbols):
            if symbol is not None:
                masks[symbol] = masks.get(symbol, gaps) | 1 << place
        return masks, gaps


def _pieces(symbols: list[Symbol]) -> list[tuple[int, str]]:
    """The literal parts of a run, each with its offset."""
    if None not in symbols:
        return [(0, "".join(filter(None, symbols)))] if symbols else []
    pieces: list[tuple[int, str]] = []
    at = 0
    for is_gap, group in groupby(symbols, key=lambda symbol: symbol is None):
        part = list(group)
        if not is_gap:
            pieces.append((at, "".join(filter(None, part))))
        at += len(part)
    return pieces


def prepare_matches(pattern: str) -> Holds:
    """Return a test whether the regular expression is found anywhere in a string, as with Elvin and POSIX.

    `^` and `$` are the ends of the string. The syntax is RE2's: no look-around, no back references. Without
    google-re2 this raises MissingExtra.
    """
    search = _compile(pattern).search
    # RE2 works on UTF-8; given bytes, it need not compute where the match lies in the string.
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None


def implied_by_matches(pattern: str) -> tuple[Intervals, bool]:
    """The strings with the literal head of a `^` expression; exact for `^abc` and `^abc$`."""
    head, rest = _regex_head(pattern)
    if rest == "$":
        return points([head]), True
    return prefixed(head), rest == ""


def needed_by_matches(pattern: str) -> Needed:
    """Return the longest run of plain characters before the first group, class or count.

    The part behind these is ignored, and a `|` anywhere gives up: it may leave the run out.
    """
    runs, at = [""], 0
    while at < len(pattern) and "|" not in pattern:
        escaped = pattern[at] == "\\"
        character = pattern[at + escaped : at + escaped + 1]
        if escaped and not _is_mark(character):
            break
        if escaped or character not in REGEX_SIGNS:
            runs[-1] += character
        elif character in "([{":
            break
        else:
            runs.append("")
        at += 1 + escaped
        if pattern[at : at + 1] in REGEX_MAYBES:
            runs[-1] = runs[-1][:-1]  # the last character may be absent
    return Needed(max(runs, key=len))


def _compile(pattern: str) -> Any:
    try:
        import re2
    except ImportError as error:
        raise MissingExtra("regular expressions (MATCHES)", "node") from error
    check_length(pattern)
    options = re2.Options()
    options.max_mem = REGEX_MEMORY_MAX
    options.never_capture = True
    options.log_errors = False  # it would write to stderr by itself
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"not a regular expression: {reason}") from None
    except UnicodeEncodeError:
        raise ValueError("not a regular expression: it has half a surrogate pair") from None


def _regex_head(pattern: str) -> tuple[str, str | None]:
    """Return the literal characters after a leading `^`, and the rest; ("", None) if nothing is certain.

    A `|` anywhere gives up: it may have the `^` in one branch only.
    """
    if not pattern.startswith("^") or "|" in pattern:
        return "", None
    head, at = "", 1
    while at < len(pattern):
        escaped = pattern[at] == "\\"
        character = pattern[at + escaped : at + escaped + 1]
        if not (_is_mark(character) if escaped else character not in REGEX_SIGNS):
            break
        head += character
        at += 1 + escaped
    if pattern[at : at + 1] in REGEX_REPEATS:
        head = head[:-1]  # the last character may be absent
    return head, pattern[at:]


def _is_mark(character: str) -> bool:
    """Whether a backslash before the character gives just the character."""
    return character.isascii() and character.isprintable() and not character.isalnum()
