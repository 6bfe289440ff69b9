from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from security.test_users import NAMES

from tidings import Filter
from tidings.errors import ConfigError, NotAllowed
from tidings.protocol.access import ACTIONS, Principal, Rule
from tidings.security.provision import allowance
from tidings.security.rules import RULES_MAX, read_rules

USERS = ("admin", "device", "*")


def read(text: str, users: tuple[str, ...] = USERS) -> dict[str, tuple[Rule, ...]]:
    return read_rules(text, "access.toml", users)


def test_each_entry_allows_its_users_its_actions_and_nothing_else() -> None:
    rules = read(
        """
[[allow]]
users = ["admin"]
actions = ["manage", "publish"]
[[allow]]
users = ["device"]
actions = ["publish", "put"]
where = "type = 'air.pm10'"
[[allow]]
users = ["device"]
actions = ["put"]
queues = ["jobs", "out-*"]
"""
    )
    pm10 = Filter("type = 'air.pm10'")
    assert rules == {
        "admin": (Rule("publish"), Rule("manage")),
        "device": (
            Rule("publish", pm10),
            Rule("put", pm10),
            Rule("put", queue="jobs"),
            Rule("put", queue="out-*"),
        ),
    }


@pytest.mark.parametrize("text", ["", "# nothing\n", "allow = []\n"])
def test_an_empty_file_allows_nothing(text: str) -> None:
    assert read(text) == {}


def test_everyone_is_every_user_there_is() -> None:
    rules = read('[[allow]]\neveryone = true\nactions = ["subscribe"]\n')
    assert rules == dict.fromkeys(USERS, (Rule("subscribe"),))


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
def test_a_name_in_a_rule_is_that_name_and_no_pattern(names: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    rules = read(allowance(chosen, ACTIONS), tuple(names))
    assert set(rules) == set(chosen)


def test_a_star_in_the_users_of_a_rule_is_a_user_of_that_name() -> None:
    assert set(read('[[allow]]\nusers = ["*"]\nactions = ["get"]\n')) == {"*"}
    with pytest.raises(ConfigError, match=r"there is no user 'ad\*'"):
        read('[[allow]]\nusers = ["ad*"]\nactions = ["get"]\n')


MISTAKES = [
    ("allow = 3", "access.toml: allow: each entry begins with [[allow]]"),
    ("allow = [3]", "access.toml, allow[1]: each entry begins with [[allow]]"),
    ("[allow]\nusers = ['admin']", "access.toml: allow: each entry begins with [[allow]]"),
    ("[[alow]]\nusers = ['admin']", "access.toml: alow: the file has [[allow]] entries and nothing else"),
    ("[[allow]", "access.toml: is not TOML: "),
    ("[[allow]]", "access.toml, allow[1] (line 1): users: is missing"),
    ("[[allow]]\nuser = ['admin']", "user: there is no such key; there are users, everyone, actions,"),
    ("[[allow]]\nuser = ['admin']", "did you mean 'users'?"),
    ("[[allow]]\nusers = []", "users: is a list of names of users, and not an empty one"),
    ("[[allow]]\nusers = 'admin'", "users: is a list of names of users, and not an empty one"),
    ("[[allow]]\nusers = ['']", "users: is a list of names of users, and not an empty one"),
    ("[[allow]]\nusers = [1]", "users: is a list of names of users, and not an empty one"),
    ("[[allow]]\neveryone = false", "everyone: is true, or is left out"),
    ("[[allow]]\neveryone = true\nusers = ['admin']", "users: stands beside everyone = true"),
    ("[[allow]]\nusers = ['admin']", "actions: is missing: some of publish, subscribe, put, get, manage"),
    ("[[allow]]\nusers = ['admin']\nactions = []", "actions: is a list of some of publish, subscribe,"),
    (
        "[[allow]]\nusers = ['admin']\nactions = ['pubish']",
        "actions: there is no 'pubish'; there are publish,",
    ),
    ("[[allow]]\nusers = ['admin']\nactions = ['pubish']", "did you mean 'publish'?"),
    (
        "[[allow]]\nusers = ['devise']\nactions = ['get']",
        "users: there is no user 'devise'; did you mean 'device'?",
    ),
    ("[[allow]]\nusers = ['admin']\nactions = ['get']\nwhere = 'a >'", "where: is no filter: line 1, column"),
    ("[[allow]]\nusers = ['admin']\nactions = ['get']\nwhere = ''", "where: is a filter, such as"),
    ("[[allow]]\nusers = ['admin']\nactions = ['get']\nwhere = 3", "where: is a filter, such as"),
    (
        "[[allow]]\nusers = ['admin']\nactions = ['get', 'manage']\nwhere = 'a = 1'",
        "where: goes with publish, subscribe, put, get, not with manage: make two entries",
    ),
    (
        "[[allow]]\nusers = ['admin']\nactions = ['put', 'publish']\nqueues = ['jobs']",
        "queues: goes with put, get, manage, not with publish: make two entries",
    ),
    ("[[allow]]\nusers = ['admin']\nactions = ['subscribe']\nqueues = ['jobs']", "not with subscribe"),
    ("[[allow]]\nusers = ['admin']\nactions = ['get']\nqueues = []", "queues: is a list of names of queues"),
]


@pytest.mark.parametrize(("text", "problem"), MISTAKES)
def test_a_file_with_a_mistake_is_refused_with_the_entry_and_the_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert problem in str(caught.value)


def test_an_entry_is_named_by_its_number_and_its_line() -> None:
    good = '[[allow]]\nusers = ["admin"]\nactions = ["get"]\n\n'
    with pytest.raises(ConfigError) as caught:
        read(f'# who may\n{good}{good}[[allow]]\nusers = ["admin"]\nactions = ["fly"]\n')
    assert caught.value.place == "access.toml, allow[3] (line 10)"
    assert caught.value.key == "actions"


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    told = "access.toml"
    try:
        read(text)
    except ConfigError as error:
        told = str(error)
    assert told.startswith("access.toml")


def test_a_user_has_a_bounded_number_of_rules() -> None:
    queues = ", ".join(f'"q{number}"' for number in range(RULES_MAX + 1))
    with pytest.raises(ConfigError, match="more than 1000 rules"):
        read(f'[[allow]]\nusers = ["admin"]\nactions = ["get"]\nqueues = [{queues}]\n')


def test_who_has_no_rule_may_do_nothing() -> None:
    principal = Principal("ada", rules=read("").get("ada", ()))
    for action in ACTIONS:
        with pytest.raises(NotAllowed):
            principal.grant(action)
