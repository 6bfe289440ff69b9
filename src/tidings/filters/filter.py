"""The filter: one condition on events, written once and understood everywhere.

It is made from SQL text, a template, a list of terms or JSON, which all become the same tree. What is derived
from the tree, the test, the normal form, the text, is made when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidings.errors import FilterError, MissingExtra
from tidings.event.model import Event
from tidings.filters import forms
from tidings.filters.build import join
from tidings.filters.evaluate import Test, condition_test
from tidings.filters.normal import Normal, condition_of, normal_form
from tidings.filters.parser import NESTING_MAX, parse
from tidings.filters.relations import covers, overlaps, simplify, unite
from tidings.filters.taxonomy import Taxonomy
from tidings.filters.text import write
from tidings.filters.tree import And, Condition, Or, depth_of, negated, size_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


class Filter:
    """A condition on events, in SQL: `Filter("type = 'air.pm10' AND value > :limit", limit=40)`.

    Values are bound by name, never pasted into the text. The empty text matches everything. A mistake raises
    FilterError with its line and column. With a taxonomy, IS_A knows its narrower terms and synonyms, which
    are written out, so that the filter means the same elsewhere. A filter never changes.
    """

    __slots__ = ("_condition", "_normal", "_test", "_text", "exact")

    _condition: Condition
    _normal: Normal | None
    _test: Test | None
    _text: str | None
    exact: bool
    """False for a merged filter that takes more than the filters it was made of."""

    def __init__(self, text: str = "", /, *, taxonomy: Taxonomy | None = None, **parameters: Any) -> None:
        if not isinstance(text, str):
            raise FilterError(f"a filter is text, not {type(text).__name__}")
        self._set(parse(text, parameters, taxonomy))

    def _set(self, condition: Condition, normal: Normal | None = None, exact: bool = True) -> None:
        object.__setattr__(self, "_condition", condition)
        object.__setattr__(self, "_normal", normal)
        object.__setattr__(self, "_test", None)
        object.__setattr__(self, "_text", None)
        object.__setattr__(self, "exact", exact)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a filter never changes")

    # Other ways to write one

    @classmethod
    def template(cls, example: Event | Mapping[str, Any] | None = None, /, **fields: Any) -> Filter:
        """A filter by example: each given field must be equal, the others are open.

        A type stands for any value of that type: `Filter.template(color="blue", number=int)`. Of an event,
        its type, attributes and those header fields that were set count, not its time.
        """
        text, parameters = forms.from_template(example, fields)
        return cls(text, **parameters)

    @classmethod
    def from_terms(cls, terms: Iterable[tuple[Any, ...]]) -> Filter:
        """A conjunction of SIENA's terms (name, operator, value): `[("price", ">", 10), ("id", "any")]`.

        Operators: any = != < <= > >= prefix (>*) suffix (*<) contains (*).
        """
        text, parameters = forms.from_terms(terms)
        return cls(text, **parameters)

    @classmethod
    def from_json(cls, document: str | bytes | Mapping[str, Any]) -> Filter:
        """A filter from the JSON that `to_json` writes; docs/filters.md has the form."""
        text, parameters = forms.from_json(document)
        return cls(text, **parameters)

    def to_json(self) -> dict[str, Any]:
        """The filter as JSON values: terms under "and", "or" and "not"; what is no term, as its text."""
        return forms.to_json(self._condition)

    @staticmethod
    def from_spark(filters: Any, *, nan: bool = True) -> tuple[Filter, list[Any]]:
        """A filter that takes all that Spark's conditions take, and those that Spark must still apply itself.

        `filters` are those of `DataSourceReader.pushFilters`, all of which hold. What can't be told as a
        filter is only in the list; what is told with room to spare, as comparisons with floats are, is in
        both, and `exact` is False then. To Spark NaN is above all numbers, to filters it compares with
        nothing, so `value > 40` of a float becomes `value IS NOT NULL`; with `nan=False` it is translated,
        and rows with NaN may be lost. One Column is read as a filter too, whole and with a filter's rules,
        where it is made of columns, constants and what filters have; else FilterError says what is not.
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
        """The filter as a Spark Column: true, false, or NULL for unknown. `df.where(f.to_spark(df))`.

        Header fields and attributes are the columns of their names, as the source gives them. With `columns`,
        a DataFrame or its schema, types are known beforehand and an attribute that is no column is unknown;
        without, every name must be a column. `attributes` names the map column of sealed files, where an
        attribute is looked for that has no column, or none of its kind. What Spark has no equal for is
        tested in its Python workers, or raises FilterError with `python=False`.
        """
        with _needs_spark():
            from tidings.pipeline.columns import to_column
        return to_column(self._condition, columns, attributes, python)

    @classmethod
    def _of(cls, condition: Condition, normal: Normal | None = None, exact: bool = True) -> Filter:
        made = cls.__new__(cls)
        made._set(condition, normal, exact)
        return made

    # What it does

    def matches(self, event: Event) -> bool:
        """Whether the condition is true for the event: not false, not unknown."""
        return self.test(event) is True

    @property
    def test(self) -> Test:
        """The condition as a function of an event, with the answers True, False and None for unknown."""
        made = self._test
        if made is None:
            made = condition_test(self._condition)
            object.__setattr__(self, "_test", made)
        return made

    @property
    def condition(self) -> Condition:
        """The tree."""
        return self._condition

    @property
    def normal(self) -> Normal:
        """The alternatives of which one must hold, each with its constraints and residues."""
        made = self._normal
        if made is None:
            made = normal_form(self._condition)
            object.__setattr__(self, "_normal", made)
        return made

    def covers(self, other: Filter) -> bool:
        """Whether every event the other matches is matched here; may say no when unsure."""
        return self == other or covers(self.normal, other.normal)

    def overlaps(self, other: Filter) -> bool:
        """Whether some event may match both; may say yes when unsure."""
        return overlaps(self.normal, other.normal)

    def merge(self, other: Filter) -> Filter:
        """A filter that covers both; its `exact` tells whether it matches nothing more."""
        united, exact = unite(self.normal, other.normal)
        return Filter._of(condition_of(united), united, exact and self.exact and other.exact)

    def simplify(self) -> Filter:
        """A filter that matches the same events, told more shortly where the normal form allows it."""
        simpler = condition_of(simplify(self.normal))
        if size_of(simpler) > size_of(self._condition):
            return self
        return Filter._of(simpler, None, self.exact)

    def __and__(self, other: Filter) -> Filter:
        return self._joined(And, other)

    def __or__(self, other: Filter) -> Filter:
        return self._joined(Or, other)

    def __invert__(self) -> Filter:
        return Filter._of(negated(self._condition), None, self.exact)

    def _joined(self, joint: type[And | Or], other: Filter) -> Filter:
        parts: list[Condition] = []
        for filter in (self, other):
            join(parts, joint, filter._condition, 0)
        condition = joint(tuple(parts))
        if depth_of(condition) > NESTING_MAX:
            raise FilterError(f"joined filters are nested more than {NESTING_MAX} deep")
        return Filter._of(condition, None, self.exact and other.exact)

    # What it is

    def __str__(self) -> str:
        made = self._text
        if made is None:
            made = write(self._condition)
            object.__setattr__(self, "_text", made)
        return made

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._condition == other._condition

    def __hash__(self) -> int:
        return hash(self._condition)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter._of, (self._condition, None, self.exact)


@contextmanager
def _needs_spark() -> Iterator[None]:
    """For importing, when it is asked for, what lies above this layer and needs PySpark."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidings"):
            raise
        raise MissingExtra("a filter in Spark", "spark") from error
