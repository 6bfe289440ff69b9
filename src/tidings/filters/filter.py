"""The filter: one condition on events, the same in every part of the system.

It is made from SQL text, a template, a list of terms or JSON, which all become the same tree. Test, normal
form and text are derived from the tree on first use and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidings.errors import FilterError, MissingExtra
from tidings.event.model import Event
from tidings.filters import forms
from tidings.filters.evaluate import EventTest, condition_test
from tidings.filters.normal import Normal, condition_of, normal_form
from tidings.filters.notes import HEADER_VALUES, KnownValues, Note, notes_of
from tidings.filters.parser import NESTING_MAX, parse
from tidings.filters.relations import covers, overlaps, simplify, unite
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.text import write
from tidings.filters.tree import And, Condition, Or, depth_of, join, negated, size_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from tidings.filters.explain import Explanation


class Filter:
    """A condition on events, in SQL: `Filter("type = 'air.pm10' AND value > :limit", limit=40)`.

    Values are bound by name, never pasted into the text. The empty text matches everything. A syntax error
    raises FilterError with its line and column. With a taxonomy, IS_A is expanded to the narrower terms and
    synonyms, so that the filter means the same at every node. A filter is immutable.
    """

    __slots__ = ("_hash", "_normal", "_source", "_test", "_text", "condition", "exact")

    condition: Condition
    """Tree of the condition."""
    _hash: int | None
    _normal: Normal | None
    _source: str  # only set if it has double quotes, which the tree does not show
    _test: EventTest | None
    _text: str | None
    exact: bool
    """False for a merged filter that matches more than the filters it was made of."""

    def __init__(self, text: str = "", /, *, taxonomy: Taxonomy | None = None, **parameters: Any) -> None:
        if not isinstance(text, str):
            raise FilterError(f"a filter is text, not {type(text).__name__}")
        self._set(parse(text, parameters, taxonomy))
        if '"' in text:
            object.__setattr__(self, "_source", text)

    def _set(self, condition: Condition, normal: Normal | None = None, exact: bool = True) -> None:
        object.__setattr__(self, "condition", condition)
        object.__setattr__(self, "_hash", None)
        object.__setattr__(self, "_normal", normal)
        object.__setattr__(self, "_test", None)
        object.__setattr__(self, "_text", None)
        object.__setattr__(self, "exact", exact)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a filter never changes")

    # Other ways to write one

    @classmethod
    def template(cls, example: Event | Mapping[str, Any] | None = None, /, **fields: Any) -> Filter:
        """Make a filter by example: each given field must be equal, the others are open.

        A type stands for any value of that type: `Filter.template(color="blue", number=int)`. An event
        contributes its type, its attributes and the header fields that are set, but not its time.
        """
        text, parameters = forms.from_template(example, fields)
        return cls(text, **parameters)

    @classmethod
    def from_terms(cls, terms: Iterable[tuple[Any, ...]]) -> Filter:
        """Make a conjunction of SIENA's terms (name, operator, value): `[("price", ">", 10), ("id", "any")]`.

        Operators: any = != < <= > >= prefix (>*) suffix (*<) contains (*).
        """
        text, parameters = forms.from_terms(terms)
        return cls(text, **parameters)

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any]) -> Filter:
        """Make a filter from the JSON that `to_json` returns; docs/filters.md documents the form."""
        text, parameters = forms.from_json(document)
        return cls(text, **parameters)

    def to_json(self) -> dict[str, Any]:
        """Return the filter as JSON values: terms under "and", "or" and "not", other conditions as text."""
        return forms.to_json(self.condition)

    @staticmethod
    def from_spark(filters: Any, *, nan: bool = True) -> tuple[Filter, list[Any]]:
        """Return a filter that covers Spark's conditions, and the conditions that Spark must still apply.

        `filters` are those of `DataSourceReader.pushFilters`, a conjunction. A condition that no filter can
        express is only in the list; one that the filter covers but does not equal, such as a comparison with
        floats, is in both, and then `exact` is False. In Spark NaN is above all numbers, in filters it
        compares with nothing, so `value > 40` of a float becomes `value IS NOT NULL`; with `nan=False` it is
        translated, and rows with NaN may be lost. A single Column of columns, constants and the operators of
        filters is translated whole, with the filter's rules; any other raises FilterError, naming the part.
        """
        with _needs_spark():
            from tidings.pipeline.predicates import from_spark
        return from_spark(filters, nan)

    def to_spark(
        self,
        columns: DataFrame | StructType | str | Mapping[str, DataType | str] | None = None,
        *,
        attributes: str | None = None,
        python: bool = True,
    ) -> Column:
        """Return the filter as a Spark Column: true, false, or NULL for unknown. `df.where(f.to_spark(df))`.

        Header fields and attributes are the columns of their names, as the source returns them. With
        `columns`, a DataFrame or its schema, types are known beforehand and an attribute without a column is
        unknown; without it, every name must be a column. `attributes` names the map column of sealed files,
        which holds attributes that have no column, or none of their kind. A condition without an equal in
        Spark is tested in its Python workers, or raises FilterError with `python=False`.
        """
        with _needs_spark():
            from tidings.pipeline.columns import to_column
        return to_column(self.condition, columns, attributes, python)

    @classmethod
    def _of(cls, condition: Condition, normal: Normal | None = None, exact: bool = True) -> Filter:
        made = cls.__new__(cls)
        made._set(condition, normal, exact)
        return made

    @classmethod
    def from_normal(cls, normal: Normal) -> Filter:
        """Return the filter that has this normal form."""
        return cls._of(condition_of(normal), normal)

    # Matching and comparing

    def matches(self, event: Event) -> bool:
        """Whether the condition is true for the event: not false, not unknown."""
        return self.test(event) is True

    def explain(self, event: Event) -> Explanation:
        """Return why the event does not match: the conditions that are not true, with the values they read.

        `str()` of it reads `value > 40 is false: value is 12`, or `matches`.
        """
        from tidings.filters.explain import explain  # on demand: matching does without

        return explain(self.condition, event)

    @property
    def test(self) -> EventTest:
        """Condition as a function of an event, which returns True, False, or None for unknown."""
        made = self._test
        if made is None:
            made = condition_test(self.condition)
            object.__setattr__(self, "_test", made)
        return made

    @property
    def normal(self) -> Normal:
        """Alternatives of which one must hold, each with its constraints and residues."""
        made = self._normal
        if made is None:
            made = normal_form(self.condition)
            object.__setattr__(self, "_normal", made)
        return made

    @property
    def notes(self) -> tuple[Note, ...]:
        """Probable mistakes, such as a condition that is true for no event; computed at each call.

        A note has the `condition`, the `problem` and, where there is one, a `hint`; `str` joins them.
        """
        return self.notes_with(HEADER_VALUES)

    def notes_with(self, known: Mapping[str, KnownValues]) -> tuple[Note, ...]:
        """Return the notes where it is known which values attributes and header fields can have."""
        return notes_of(self.condition, getattr(self, "_source", ""), known)

    def covers(self, other: Filter) -> bool:
        """Whether this filter matches every event that the other matches; False if undecided."""
        return self == other or covers(self.normal, other.normal)

    def overlaps(self, other: Filter) -> bool:
        """Whether some event may match both; True if undecided."""
        return overlaps(self.normal, other.normal)

    def merge(self, other: Filter) -> Filter:
        """Return a filter that covers both; its `exact` says whether it matches nothing more."""
        united, exact = unite(self.normal, other.normal)
        return Filter._of(condition_of(united), united, exact and self.exact and other.exact)

    def simplify(self) -> Filter:
        """Return a filter that matches the same events, shorter where the normal form allows it."""
        simpler = condition_of(simplify(self.normal))
        if size_of(simpler) > size_of(self.condition):
            return self
        return Filter._of(simpler, None, self.exact)

    def __and__(self, other: Filter) -> Filter:
        return self._joined(And, other)

    def __or__(self, other: Filter) -> Filter:
        return self._joined(Or, other)

    def __invert__(self) -> Filter:
        return Filter._of(negated(self.condition), None, self.exact)

    def _joined(self, joint: type[And | Or], other: Filter) -> Filter:
        parts: list[Condition] = []
        for filter in (self, other):
            join(parts, joint, filter.condition, 0)
        condition = joint(tuple(parts))
        if depth_of(condition) > NESTING_MAX:
            raise FilterError(f"joined filters are nested more than {NESTING_MAX} deep")
        return Filter._of(condition, None, self.exact and other.exact)

    # Identity and text

    def __str__(self) -> str:
        made = self._text
        if made is None:
            made = write(self.condition)
            object.__setattr__(self, "_text", made)
        return made

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.condition == other.condition

    def __hash__(self) -> int:
        made = self._hash
        if made is None:
            made = hash(self.condition)
            object.__setattr__(self, "_hash", made)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter._of, (self.condition, None, self.exact)


@contextmanager
def _needs_spark() -> Iterator[None]:
    """Guard a late import from a higher layer that needs PySpark: raises MissingExtra without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidings"):
            raise
        raise MissingExtra("a filter in Spark", "spark") from error
