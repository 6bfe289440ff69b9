"""Conditions on types and terms: subtypes by dotted names, and terms of a taxonomy.

`IS_A(type, 'air')` matches `air` and every dotted subtype: `air.pm10`, `air.pm10.fine`. Relations that dots
can't express are in a taxonomy, a file agreed on elsewhere: which terms are narrower than another one, and
which mean the same. A taxonomy is applied when a filter is made, by writing the terms out, so that filters
which travel need no file at the other end.

    [air]                                   # TOML; as JSON: {"air": {"narrower": […], "synonyms": […]}, …}
    narrower = ["particles", "ozone"]
    synonyms = ["luft"]

    ["air.pm10"]                            # a name with dots is quoted
    synonyms = ["feinstaub"]

Synonyms mean the same both ways. A dotted name is narrower than the part before its dots, even if that
is not written: a filter for `air` matches `feinstaub` too. Nothing may be narrower than itself.

    [units]                                 # how sensors spell units; `units` is no term
    "mcg/m3" = "µg/m³"

A file may also be in RDF, with concepts of SKOS and observable properties of SOSA (`skos.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from operator import contains
from pathlib import Path
from typing import Any

from tidings.errors import FilterError
from tidings.filters.intervals import Intervals, points, prefixed, union_of
from tidings.filters.patterns import Holds
from tidings.filters.skos import FORMATS, read_rdf
from tidings.filters.units import Units

TAXONOMY_SIZE_MAX = 16 << 20
"""Bytes in the file of a taxonomy."""
TERMS_MAX = 500_000
"""Relations between the terms of a taxonomy, and synonyms."""
TERM_LENGTH_MAX = 255
"""Characters in a term: as in the type of an event."""


def prepare_is_a(*terms: str) -> Holds:
    """Return a test for one of the terms or a dotted subtype; time is logarithmic in their number."""
    return partial(contains, implied_by_is_a(*terms)[0])


def implied_by_is_a(*terms: str) -> tuple[Intervals, bool]:
    """Return the terms and all strings that begin with one of them and a dot: exact."""
    for term in terms:
        if problem := _problem(term):
            raise ValueError(f"{term[:40]!r} is no term: {problem}")
    return points(terms).union(union_of([prefixed(f"{term}.") for term in sorted(set(terms))])), True


class Taxonomy:
    """Terms, and which of them are narrower than others or mean the same; and units; immutable.

    Without terms it has the units that are known everywhere (`known_units.py`). Terms that mean the same form
    a group, named by the first of them in the file.
    """

    def __init__(self, content: Mapping[str, Any] | None = None, left_out: tuple[str, ...] = ()) -> None:
        """Make a taxonomy of the contents of a file; FilterError names the place of a mistake in it."""
        self.content: Mapping[str, Any] = content or {}
        """What it was made of: terms, and units."""
        self.left_out = left_out
        """Labels of a file in RDF that are no terms, each with the reason."""
        terms = dict(self.content)
        self.units = Units(_units(terms.pop("units", {})))
        """Units that values may have."""
        links = list(islice(_links(terms), TERMS_MAX + 1))
        if len(links) > TERMS_MAX:
            raise FilterError(f"$: more than {TERMS_MAX} synonyms and narrower terms")
        self._group = _groups(links)
        self._members: dict[str, list[str]] = {}
        for term, group in self._group.items():
            self._members.setdefault(group, []).append(term)
        self._narrower: dict[str, dict[str, None]] = {}  # dicts stand for sets that keep their order
        for broad, narrow in _narrower_pairs(links, self._group):
            self._narrower.setdefault(self._group[broad], {})[self._group[narrow]] = None
        try:
            TopologicalSorter(self._narrower).prepare()
        except CycleError as error:
            cycle = " > ".join(reversed(error.args[1]))
            raise FilterError(f"a term can't be narrower than itself: {cycle}") from None

    @classmethod
    def load(cls, path: Path | str) -> Taxonomy:
        """Read a .toml or .json file, or RDF; FilterError names the file and the place of a mistake in it.

        RDF is in Turtle (.ttl), RDF/XML (.rdf, .xml), JSON-LD (.jsonld) or N-Triples (.nt), and needs the
        extra `concepts`.
        """
        path = Path(path)
        try:
            data = _read(path)
            if path.suffix in FORMATS:
                return cls(*read_rdf(data, FORMATS[path.suffix], _problem))
            return cls(_parsed(data, path.suffix))
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise FilterError(f"{path}: {problem}") from None

    def expand(self, term: str) -> tuple[str, ...]:
        """Return the term itself, its synonyms, and all narrower terms; an unknown term alone."""
        found: dict[str, None] = {term: None}
        groups = {self._group[term]: None} if term in self._group else {}
        waiting = list(groups)
        while waiting:
            group = waiting.pop()
            found.update(dict.fromkeys(self._members[group]))
            fresh = [narrow for narrow in self._narrower.get(group, ()) if narrow not in groups]
            groups.update(dict.fromkeys(fresh))
            waiting += reversed(fresh)
        return tuple(found)


TaxonomyLink = tuple[str, str, str]
"""(term, "narrower" or "synonyms", other term)."""


def _read(path: Path) -> bytes:
    """Return the bytes of a file that may be a taxonomy."""
    if path.suffix not in (".toml", ".json", *FORMATS):
        raise ValueError(f"a taxonomy is a .toml or .json file, or RDF: {', '.join(FORMATS)}")
    with path.open("rb") as file:
        data = file.read(TAXONOMY_SIZE_MAX + 1)
    if len(data) > TAXONOMY_SIZE_MAX:
        raise ValueError(f"has more than {TAXONOMY_SIZE_MAX} bytes")
    return data


def _parsed(data: bytes, suffix: str) -> dict[str, Any]:
    """Parse TOML or JSON; the ValueErrors of both formats name line and column."""
    if suffix == ".toml":
        import tomllib  # here: most programs with filters read no such file

        return tomllib.loads(data.decode())
    content = json.loads(data.decode(), object_pairs_hook=_each_once)
    if not isinstance(content, dict):
        raise ValueError("$: must hold terms by name")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; one key twice is an error, as it is in TOML."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"{twice!r} stands twice in one object")
    return content


def _links(terms: Mapping[str, Any]) -> Iterator[TaxonomyLink]:
    """Yield all relations in the file, in its order, each with its place checked."""
    for term, entry in terms.items():
        place = f"$.{term}" if term.isidentifier() else f"$[{json.dumps(term, ensure_ascii=False)}]"
        _check(place, _problem(term))
        _check(place, "" if isinstance(entry, dict) else "must be a table with narrower and synonyms")
        for key, others in entry.items():
            known = key in ("narrower", "synonyms")
            _check(f"{place}.{key}", "" if known else f"no such key; a dotted name is quoted: {key!r}")
            _check(f"{place}.{key}", "" if isinstance(others, list) else "must be a list of terms")
            for number, other in enumerate(others):
                problem = _problem(other) if isinstance(other, str) else "must be a string"
                _check(f"{place}.{key}[{number}]", problem)
                yield term, key, other


def _units(table: object) -> dict[str, str]:
    """Return the table of units: a unit for each spelling."""
    if not isinstance(table, dict):
        raise FilterError("$.units: must be a table of units by their spellings")
    for spelling, unit in table.items():
        _check(f"$.units[{spelling[:40]!r}]", "" if isinstance(unit, str) else "must be a unit as a string")
    return table


def _check(place: str, problem: str) -> None:
    if problem:
        raise FilterError(f"{place}: {problem}")


def _problem(term: str) -> str:
    """Return why a term may not have this name, or nothing."""
    if len(term) > TERM_LENGTH_MAX:
        return f"it has more than {TERM_LENGTH_MAX} characters"
    return "it has an empty name between its dots" if "" in term.split(".") else ""


def _groups(links: list[TaxonomyLink]) -> dict[str, str]:
    """Return for every term named, and the parts before its dots, the first term that means the same."""
    parent: dict[str, str] = {}

    def first(term: str) -> str:
        while parent[term] != term:
            parent[term] = term = parent[parent[term]]
        return term

    for term, key, other in links:
        for name in (*_ancestors(term), term, *_ancestors(other), other):
            parent.setdefault(name, name)
        if key == "synonyms":
            parent[first(other)] = first(term)
    return {term: first(term) for term in parent}


def _narrower_pairs(links: list[TaxonomyLink], terms: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (broader, narrower), as written or by dots."""
    for term, key, other in links:
        if key == "narrower":
            yield term, other
    for term in terms:
        for ancestor in _ancestors(term):
            yield ancestor, term


def _ancestors(term: str) -> list[str]:
    """Return the terms above a term: a, a.b for a.b.c."""
    return [term[:at] for at, character in enumerate(term) if character == "."]
