"""Taxonomies in RDF: SKOS and SOSA, in several forms and languages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tidings import Event, Filter
from tidings.errors import FilterError, MissingExtra
from tidings.filters import Taxonomy, skos

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix sosa: <http://www.w3.org/ns/sosa/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix air: <http://air.example/> .

air:quality a skos:Concept ; skos:prefLabel "air quality"@en, "Luftgüte"@de ; skos:narrower air:dust .
air:dust a skos:Concept ;
    skos:notation "air.pm10" ;
    skos:prefLabel "particulate matter"@en, "Feinstaub"@de, "particules en suspension"@fr ;
    skos:altLabel "PM10" .
air:ozone a sosa:ObservableProperty ; rdfs:label "ozone"@en, "Ozon"@de ; skos:broader air:quality .
air:ground a rdfs:Class .
"""
XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="http://air.example/quality">
    <skos:prefLabel xml:lang="de">Luftgüte</skos:prefLabel>
    <skos:narrower rdf:resource="http://air.example/dust"/>
  </skos:Concept>
  <skos:Concept rdf:about="http://air.example/dust">
    <skos:prefLabel xml:lang="de">Feinstaub</skos:prefLabel>
  </skos:Concept>
</rdf:RDF>
"""
JSON_LD = {
    "@context": {"skos": "http://www.w3.org/2004/02/skos/core#", "@base": "http://air.example/"},
    "@graph": [
        {
            "@id": "quality",
            "@type": "skos:Concept",
            "skos:prefLabel": {"@value": "Luftgüte", "@language": "de"},
            "skos:narrower": {"@id": "dust"},
        },
        {"@id": "dust", "@type": "skos:Concept", "skos:prefLabel": "Feinstaub"},
    ],
}


def load(folder: Path, name: str, text: str) -> Taxonomy:
    (folder / name).write_text(text)
    return Taxonomy.load(folder / name)


def test_a_filter_takes_a_concept_in_every_language(tmp_path: Path) -> None:
    taxonomy = load(tmp_path, "air.ttl", TURTLE)
    dust = ["air.pm10", "Feinstaub", "particulate matter", "particules en suspension", "PM10"]
    for name in (*dust, "http://air.example/dust"):
        wanted = Filter("IS_A(property, :name)", taxonomy=taxonomy, name=name)
        for property in (*dust, "http://air.example/dust", "air.pm10.fine"):
            assert wanted.matches(Event("reading", property=property))
        assert not wanted.matches(Event("reading", property="Ozon"))
    air = Filter("IS_A(property, 'Luftgüte')", taxonomy=taxonomy)
    assert all(air.matches(Event("reading", property=one)) for one in (*dust, "Ozon", "ozone", "air quality"))
    assert not air.matches(Event("reading", property="http://air.example/ground"))
    assert taxonomy.left_out == ()


@pytest.mark.parametrize(("name", "text"), [("air.rdf", XML), ("air.jsonld", json.dumps(JSON_LD))])
def test_other_forms_of_rdf_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    assert set(load(tmp_path, name, text).expand("Luftgüte")) == {
        "Luftgüte",
        "http://air.example/quality",
        "http://air.example/dust",
        "Feinstaub",
    }


def test_a_taxonomy_of_rdf_can_be_written_as_its_own_content(tmp_path: Path) -> None:
    taxonomy = load(tmp_path, "air.ttl", TURTLE)
    again = Taxonomy(json.loads(json.dumps(taxonomy.content)))
    assert again.expand("Luftgüte") == taxonomy.expand("Luftgüte")


def test_a_label_that_can_be_no_term_or_means_two_things_is_left_out_and_reported(tmp_path: Path) -> None:
    text = TURTLE + 'air:dust skos:altLabel "etc.", "smog" . air:ozone skos:altLabel "smog" .'
    taxonomy = load(tmp_path, "air.ttl", text)
    assert taxonomy.left_out == (
        "'etc.' of http://air.example/dust: it has an empty name between its dots",
        "'smog' of http://air.example/dust: several concepts have it",
        "'smog' of http://air.example/ozone: several concepts have it",
    )
    assert taxonomy.expand("smog") == ("smog",)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "a.ttl",
            TURTLE + "air:dust skos:narrower air:quality .",
            "a term can't be narrower than itself: http://air.example/",
        ),
        (
            "a.ttl",
            TURTLE + "air:dust skos:broader air:dust .",
            "a term can't be narrower than itself: http://air.example/dust > http://air.example/dust",
        ),
        ("a.ttl", "@prefix a: <http://a/> .\na:b a:c ;;; [", "at line 2"),
        ("a.rdf", "<a><b></a>", "mismatched tag"),
        ("a.jsonld", '{"@graph": [}', "Expecting value: line 1 column 13"),
        (
            "a.jsonld",
            '{"@graph": [{"@context": "http://x.example/c"}]}',
            "$.@graph[0].@context: a context is not fetched",
        ),
        ("a.jsonld", '{"@context": [{}, "http://x.example/c"]}', "$.@context: a context is not fetched"),
        ("a.jsonld", '{"a": ' * 150 + "1" + "}" * 150, "nested too deeply"),
        ("a.txt", "", "a taxonomy is a .toml or .json file, or RDF: .ttl, .rdf, .xml, .jsonld, .nt"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(FilterError) as raised:
        load(tmp_path, name, text)
    assert str(raised.value).startswith(f"{tmp_path / name}: ")
    assert problem in str(raised.value)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skos, "CONCEPTS_MAX", 2)
    with pytest.raises(FilterError, match="has more than 2 concepts"):
        load(tmp_path, "a.ttl", TURTLE)
    monkeypatch.setattr("tidings.filters.taxonomy.TERMS_MAX", 3)
    with pytest.raises(FilterError, match="more than 3 synonyms and narrower terms"):
        Taxonomy({"a": {"narrower": ["b", "c"], "synonyms": ["d", "e"]}})
    monkeypatch.setattr("tidings.filters.taxonomy.TAXONOMY_SIZE_MAX", 10)
    with pytest.raises(FilterError, match="has more than 10 bytes"):
        load(tmp_path, "a.ttl", TURTLE)


def test_an_iri_that_can_be_no_term_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FilterError, match=r"<http://a\.\.b/c>: it has an empty name between its dots"):
        load(tmp_path, "a.ttl", '<http://a..b/c> <http://www.w3.org/2004/02/skos/core#prefLabel> "x" .')


def test_without_rdflib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtra, match=r"tidings\[concepts\]"):
        load(tmp_path, "air.ttl", TURTLE)


def test_the_document_shows_the_example() -> None:
    root = Path(__file__).parents[2]
    shown = (root / "docs" / "concepts.md").read_text().partition("```turtle\n")[2].partition("```")[0]
    assert shown == (root / "examples" / "air_quality.ttl").read_text()
