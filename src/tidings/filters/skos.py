"""Taxonomies in RDF: SKOS concepts, and the observable properties of SOSA, as the terms of a taxonomy.

A concept becomes a term by its IRI. Its notations and its labels, in all languages, are synonyms of that, so
a filter may name any of them and takes events that have any of them. Which concept is narrower or broader is
said in SKOS, or as a subclass. Labels that no term can be, and those that several concepts share, are left
out, and reported: they could not be distinguished in an event.

rdflib reads the file; it is imported when the first one is read. The rule kept: nothing is fetched, so a
JSON-LD file must have its context in itself.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tidings.errors import MissingExtra

FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".jsonld": "json-ld", ".nt": "nt"}
"""Forms of RDF that are read, by the end of a file's name."""
CONCEPTS_MAX = 100_000
"""Concepts in a file."""
LEFT_OUT_MAX = 1_000
"""Labels that were left out and are reported one by one."""

SKOS = "http://www.w3.org/2004/02/skos/core#"
SOSA = "http://www.w3.org/ns/sosa/"
SSN = "http://www.w3.org/ns/ssn/"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"

_KINDS = (f"{SKOS}Concept", f"{SOSA}ObservableProperty", f"{SSN}Property")
_LABELS = (f"{SKOS}notation", f"{SKOS}prefLabel", f"{SKOS}altLabel", f"{SKOS}hiddenLabel", f"{_RDFS}label")
_NARROWER = (f"{SKOS}narrower", f"{SKOS}narrowerTransitive")
_BROADER = (f"{SKOS}broader", f"{SKOS}broaderTransitive", f"{_RDFS}subClassOf")
_SAME = f"{SKOS}exactMatch"

Statement = tuple[str, str, str]
"""Subject, predicate, object."""


class ReadTaxonomy(NamedTuple):
    """The terms of a file in RDF, in the form of a taxonomy's own files, and the labels left out."""

    terms: dict[str, dict[str, list[str]]]
    left_out: tuple[str, ...]


def read_rdf(data: bytes, form: str, problem_of: Callable[[str], str]) -> ReadTaxonomy:
    """Read a file in RDF; ValueError, with the line where there is one, if it is none.

    `problem_of` returns why a text can be no term, or nothing.
    """
    try:
        import rdflib
    except ModuleNotFoundError as error:
        raise MissingExtra("a taxonomy in RDF", "concepts") from error
    if form == "json-ld":
        _check_contexts(json.loads(data), "$")
    graph = rdflib.Graph(bind_namespaces="none")
    try:
        # Of JSON-LD it warns that it uses a class of its own that it has deprecated.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            graph.parse(data=data, format=form)
    except Exception as error:  # rdflib has errors of many kinds for what it can't parse
        raise ValueError(_first_line(error)) from None
    named = [(str(s), str(p), o) for s, p, o in graph if isinstance(s, rdflib.URIRef)]
    texts = sorted((s, p, str(o)) for s, p, o in named if isinstance(o, rdflib.Literal) and p in _LABELS)
    links = sorted((s, p, str(o)) for s, p, o in named if isinstance(o, rdflib.URIRef))
    return _terms_of(texts, links, problem_of)


def _terms_of(
    texts: list[Statement], links: list[Statement], problem_of: Callable[[str], str]
) -> ReadTaxonomy:
    """Return the terms that concepts with these labels and links are."""
    concepts = dict.fromkeys(_concepts(texts, links))
    if len(concepts) > CONCEPTS_MAX:
        raise ValueError(f"has more than {CONCEPTS_MAX} concepts")
    labels = [(concept, text) for concept, _, text in _by_kind(texts) if concept in concepts]
    shared = _shared(labels)
    for concept in concepts:
        if problem := problem_of(concept):
            raise ValueError(f"<{concept[:80]}>: {problem}")
    terms: dict[str, dict[str, list[str]]] = {concept: {} for concept in concepts}
    left_out: list[str] = []
    for concept, text in dict.fromkeys(labels):
        if text == concept:
            continue
        if problem := problem_of(text) or ("several concepts have it" if text in shared else ""):
            left_out.append(f"{text[:80]!r} of {concept}: {problem}")
        else:
            terms[concept].setdefault("synonyms", []).append(text)
    for broad, key, narrow in _relations(links):
        if broad in terms and narrow in terms and broad != narrow:
            terms[broad].setdefault(key, []).append(narrow)
        elif broad == narrow and key == "narrower" and broad in terms:
            raise ValueError(f"a term can't be narrower than itself: {broad} > {narrow}")
    return ReadTaxonomy(terms, tuple(left_out[:LEFT_OUT_MAX]))


def _concepts(texts: Iterable[Statement], links: Iterable[Statement]) -> Iterator[str]:
    """Yield the concepts: what has a type of theirs, or is labelled and linked as one."""
    for subject, predicate, other in links:
        if predicate == f"{_RDF}type" and other in _KINDS:
            yield subject
        elif predicate in (*_NARROWER, *_BROADER[:2]):
            yield from (subject, other)
    for subject, predicate, _ in texts:
        if predicate.startswith(SKOS):
            yield subject


def _by_kind(texts: list[Statement]) -> list[Statement]:
    """Return the labels of each concept with notations first, then those that are preferred."""
    return sorted(texts, key=lambda text: (text[0], _LABELS.index(text[1]), text[2]))


def _shared(labels: list[tuple[str, str]]) -> set[str]:
    """Return the texts that several concepts have."""
    owners: dict[str, str] = {}
    return {text for concept, text in labels if owners.setdefault(text, concept) != concept}


def _relations(links: Iterable[Statement]) -> Iterator[Statement]:
    """Yield (broader, "narrower", narrower) and (one, "synonyms", other)."""
    for subject, predicate, other in links:
        if predicate in _NARROWER:
            yield subject, "narrower", other
        elif predicate in _BROADER:
            yield other, "narrower", subject
        elif predicate == _SAME:
            yield subject, "synonyms", other


def _check_contexts(part: Any, place: str, depth: int = 0) -> None:
    """Refuse a context that would have to be fetched."""
    if depth > 100:
        raise ValueError(f"{place[:60]}…: nested too deeply")
    members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in members:
        here = f"{place}[{key}]" if isinstance(key, int) else f"{place}.{key}"
        fetched = value if isinstance(value, list) else [value]
        if key in ("@context", "@import") and any(isinstance(one, str) for one in fetched):
            raise ValueError(f"{here}: a context is not fetched; write it into the file")
        _check_contexts(value, here, depth + 1)


def _first_line(error: Exception) -> str:
    """Return what a parser has against a file, in one line, with the place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__
