from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from security.places import SECRET, cheap

from tidings.errors import ConfigError
from tidings.security.passwords import Password, Token
from tidings.security.users import (
    MARKS,
    Credential,
    User,
    line_of,
    name_problem,
    read_entries,
    read_users,
)

HEX = "ab" * 32
SALT = "A" * 22 + "=="
HASH = "A" * 43 + "="
# Chosen by the character: of whole names too many would be thrown away.
CHARACTERS = st.characters(exclude_categories=("C", "Z")).filter(lambda one: name_problem(one) is None)
NAMES = st.text(CHARACTERS, min_size=1, max_size=100)
PASSWORDS = st.builds(
    Password, st.just(cheap().cost), st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32)
)
TOKENS = st.builds(
    Token,
    NAMES,
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.none() | st.dates(date(1000, 1, 1)),
)
CREDENTIALS: st.SearchStrategy[Credential] = PASSWORDS | TOKENS | st.sampled_from(MARKS)


def test_a_file_says_who_there_is_and_by_what_each_comes_in() -> None:
    text = f"""
# The people
ada   password scrypt:16384:8:1:{SALT}:{HASH}   # since May
ada   token laptop sha256:{HEX} until:2027-01-31
\tbob certificate

attic node
carol locked
*     certificate
"""
    users = read_users(text, "users")
    assert list(users) == ["ada", "bob", "attic", "carol", "*"]
    assert users["ada"].password is not None
    assert users["ada"].tokens == (Token("laptop", HEX, date(2027, 1, 31)),)
    assert users["bob"] == User("bob", has_certificate=True)
    assert users["attic"] == User("attic", has_certificate=True, is_node=True)
    assert users["carol"] == User("carol", is_locked=True)


@pytest.mark.parametrize("text", ["", "\n\n", "# nobody\n", "  # nobody"])
def test_a_file_without_lines_has_no_users(text: str) -> None:
    assert read_users(text, "users") == {}


@given(st.lists(st.tuples(NAMES, CREDENTIALS), max_size=10))
def test_every_line_that_is_written_reads_as_what_it_was(lines: list[tuple[str, Credential]]) -> None:
    text = "".join(f"{line_of(*line)}\n" for line in lines)
    entries = read_entries(text, "users")
    assert [(entry.name, entry.credential) for entry in entries] == lines
    assert [str(entry) for entry in entries] == text.splitlines()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    place = "DIR/users, line "
    try:
        read_users(text, "DIR/users")
    except ConfigError as error:
        place = error.place
    assert place.startswith("DIR/users, line ")


MISTAKES = [
    ("ada", "the second word is one of password, token, certificate, node, locked"),
    ("ada passwrd x", "did you mean 'password'?"),
    (f"ada {SECRET.split()[0]}", "the second word is one of"),
    ("ada password", "is no password"),
    (f"ada password {SECRET}", "is no password"),
    (f"ada password scrypt:1073741824:8:1:{SALT}:{HASH}", "is no password"),
    ("ada token", "is no token"),
    (f"ada token laptop {SECRET.replace(' ', '')}", "the hash of the token is malformed"),
    (f"ada token laptop sha256:{HEX} until:2027-02-30", "until:YYYY-MM-DD"),
    (f"ada token laptop sha256:{HEX} until:20270131", "until:YYYY-MM-DD"),
    (f"ada token laptop sha256:{HEX} 2027-01-31", "until:YYYY-MM-DD"),
    (f"ada token a/b sha256:{HEX}", "a token's label"),
    (f"ada token laptop sha256:{HEX} until:2027-01-31 more", "is no token"),
    ("ada certificate always", "nothing stands behind 'certificate'"),
    ("a/b certificate", "a user's name has no blanks"),
    ("a:b certificate", "a user's name has no blanks"),
    ("a@b certificate", "a user's name has no blanks"),
    ("a\x00b certificate", "a user's name has no blanks"),
    ("x" * 101 + " certificate", "1 to 100 characters"),
]


@pytest.mark.parametrize(("line", "problem"), MISTAKES)
def test_a_line_that_can_not_be_is_named_and_its_words_are_not_shown(line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_users(f"# who there is\nbob certificate\n{line}\n", "DIR/users")
    assert caught.value.place == "DIR/users, line 3"
    assert problem in str(caught.value)
    for word in (SECRET, SECRET.replace(" ", ""), SECRET.split()[0], SALT, HASH, HEX):
        assert word not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([f"ada password scrypt:1024:1:1:{SALT}:{HASH}"] * 2, "the user has a password already"),
        ([f"ada token a sha256:{HEX}", f"ada token a sha256:{'cd' * 32}"], "a token of this label already"),
        ([f"ada token a sha256:{HEX}", f"bob token b sha256:{HEX}"], "this token stands in line 1 already"),
        (["ada certificate", "ada node"], "'certificate' or 'node' already"),
        (["ada locked", "ada locked"], "'locked' already"),
    ],
)
def test_what_is_said_twice_is_refused(lines: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match="line 2") as caught:
        read_users("\n".join(lines), "users")
    assert problem in str(caught.value)
