"""Values in one unit, as a column of Spark: the same numbers as a client's conversion and a filter's."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from tidings.errors import FilterError
from tidings.filters import Taxonomy
from tidings.filters.conversion import Conversion
from tidings.filters.units import unit_name


def in_unit(value: str, target: str, *, unit: str | None = None, taxonomy: Taxonomy | None = None) -> Column:
    """Return the column `value` converted to a unit, by the units in another column.

    Parameters
    ----------
    value : str
        Column of numbers.
    target : str
        Unit of the result, such as `'µg/m³'`; FilterError if it is none.
    unit : str, optional
        Column of the units that the numbers have; by default `unit`, or `a.unit` for `a.value`.
    taxonomy : Taxonomy, optional
        Units beside those that are known everywhere.

    Returns
    -------
    Column
        A double, NULL where the unit is not known or can't be converted to the target.

    Examples
    --------
    >>> air.withColumn("value_ug", in_unit("value", "µg/m³"))
    """
    units = (taxonomy or Taxonomy()).units
    try:
        scale, alike = units.scale(target), units.alike(target)
    except ValueError as error:
        raise FilterError(str(error)) from None
    spelled = _column(unit_name(value) if unit is None else unit)
    number = _column(value).cast("double")
    converted: Column | None = None
    for known in alike:
        holds, amount = spelled.isin(*known.spellings), _converted(number, known.scale.to(scale))
        converted = f.when(holds, amount) if converted is None else converted.when(holds, amount)
    assert converted is not None, "a unit is alike itself"
    return converted


def _column(name: str) -> Column:
    """Return the column of that name, dots included: a flattened attribute is one column."""
    return f.col(f"`{name.replace('`', '``')}`")


def _converted(number: Column, conversion: Conversion) -> Column:
    """Return the conversion as operations on doubles, in the order of `Conversion`."""
    if conversion.before:
        number = number + f.lit(conversion.before)
    if conversion.numerator != 1.0:
        number = number * f.lit(conversion.numerator)
    if conversion.denominator != 1.0:
        number = number / f.lit(conversion.denominator)
    return number + f.lit(conversion.after) if conversion.after else number
