"""Templates, terms and JSON: other ways to write the same filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tidings import Event, Filter
from tidings.errors import FilterError


def test_a_template_leaves_unset_fields_open() -> None:
    template = Filter.template({"color": "blue", "size": None}, type="job")
    assert template == Filter("color = 'blue' AND type = 'job'")
    assert template.matches(Event("job", color="blue", size="L"))
    assert not template.matches(Event("job", color="red"))
    assert Filter.template() == Filter("")


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (int, [-5, 2.5, 2**63 - 1], ["5", True]),
        (float, [1, 0.0], [b"1"]),
        (str, ["", "a"], [1]),
        (bool, [True, False], [1, "TRUE"]),
        (datetime, [datetime(1960, 1, 1, tzinfo=UTC)], [5]),
        (bytes, [b"", b"a"], ["a"]),
        (object, [1, "a", True, float("nan")], []),
    ],
)
def test_a_type_in_a_template_stands_for_any_value_of_it(
    kind: type, taken: list[Any], refused: list[Any]
) -> None:
    template = Filter.template(x=kind)
    assert all(template.matches(Event("t", x=value)) for value in taken)
    assert not any(template.matches(Event("t", x=value)) for value in refused)
    assert not template.matches(Event("t"))


def test_an_event_is_an_example_of_what_it_says() -> None:
    example = Event("job", {"color": "blue"}, priority=7, subject="s")
    template = Filter.template(example)
    assert template == Filter("type = 'job' AND color = 'blue' AND subject = 's' AND priority = 7")
    assert template.matches(example.evolve(time=datetime(2000, 1, 1, tzinfo=UTC), size=1))
    assert not template.matches(example.evolve(priority=4))


def test_terms_are_those_of_siena() -> None:
    terms = [("a", "=", 1), ("b", "any"), ("c", ">*", "x"), ("d", "*<", "y"), ("e", "*", "z"), ("f", "!=", 2)]
    text = "STARTS_WITH(c, 'x') AND ENDS_WITH(d, 'y') AND CONTAINS(e, 'z') AND f <> 2"
    assert Filter.from_terms(terms) == Filter(f"a = 1 AND b IS NOT NULL AND {text}")
    assert Filter.from_terms([("x", "in", [2, 1])]) == Filter("x IN (1, 2)")
    assert Filter.from_terms([]) == Filter("")


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 AND b > 'x' OR NOT (c IS NULL OR d IN (1, 2))",
        "x = TIMESTAMP '2026-01-01T00:00:00.000001+00:00' AND y = X'00ff'",
        "a < b AND n + 1 = 2",
        "STARTS_WITH(a, 'x') AND a NOT LIKE '%z'",
        "TRUE",
        "done AND n BETWEEN 1 AND 2",
    ],
)
def test_json_says_the_same(text: str) -> None:
    assert Filter.from_json(Filter(text).to_json()).simplify() == Filter(text).simplify()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("[1, 2", "not JSON"),
        ("[]", "$: expected"),
        ('{"and": [{"name": "a", "op": "~", "value": 1}]}', "$.and[0]: there is no operator '~'"),
        ('{"or": [{"and": 3}]}', "$.or[0]: expected"),
        ('{"name": "a", "op": "="}', "$: the operator = takes a value"),
        ('{"name": "a", "op": "any", "value": 1}', "$: the operator any takes no value"),
        ('{"name": 3, "op": "=", "value": 1}', "$: a name is text"),
        ('{"name": "a", "op": "=", "value": {"$time": "noon"}}', "$.value: "),
        ('{"and": [{"name": "a", "op": "=", "value": {"b": 1}}]}', "$.and[0]: dict is not a value"),
        ('{"name": "a", "op": "in", "value": [1, [2]]}', "$[1]: list is not a value"),
        ('{"name": "a", "op": "between", "value": [1]}', "$: between takes two values"),
        ('{"or": [{"text": "a = = 1"}]}', "$.or[0].text: line 1, column 5: expected a name"),
        ('{"and": [{"text": "a) OR (b"}, {"text": "c"}]}', "found )"),
        ('{"not": ' * 200 + "{}" + "}" * 200, "nested more than 100 deep"),
        ('{"not": ' * 20_000, "not JSON"),
    ],
)
def test_a_mistake_in_json_is_named_with_its_place(document: str, says: str) -> None:
    with pytest.raises(FilterError) as caught:
        Filter.from_json(document)
    assert says in str(caught.value)


def test_mistakes_in_terms_and_templates_are_named() -> None:
    for make, says in (
        (lambda: Filter.from_terms([("a",)]), "$[0]: a term is"),
        (lambda: Filter.from_terms([("a", "=", 1), ("b", 5, 1)]), "$[1]: there is no operator 5"),
        (lambda: Filter.template({"a": 1}, a=2), "a is given twice"),
        (lambda: Filter.template(a=dict), "$.a: dict is no type of value"),
        (lambda: Filter.template(a={"b": object()}), "$.a: dict is not a value"),
        (lambda: Filter.from_terms([5]), "$[0]: a term is"),  # type: ignore[list-item]
    ):
        with pytest.raises(FilterError) as caught:
            make()
        assert says in str(caught.value)
