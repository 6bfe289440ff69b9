from __future__ import annotations

import os
from base64 import b64encode
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from security.places import CHEAP, SECRET, cheap

from tidings.security.passwords import (
    MEMORY_MAX,
    Cost,
    Token,
    hash_token,
    is_token,
    make_password,
    make_token,
    password_problem,
    read_password,
    read_token_hash,
)


def test_the_right_password_is_right_and_no_other_is() -> None:
    kept = make_password("Grüße 🐦", os.urandom, CHEAP)
    assert kept.is_right("Grüße 🐦")
    assert not any(kept.is_right(other) for other in ("", "Grüße", "Grüße 🐦 ", "\ud800"))


def test_a_new_password_costs_what_is_recommended() -> None:
    assert make_password(SECRET, os.urandom).cost == Cost(1 << 14, 8, 1)


@given(st.text(max_size=40), st.binary(min_size=16, max_size=16))
def test_what_is_kept_of_a_password_comes_back_from_its_text(secret: str, salt: bytes) -> None:
    kept = make_password(secret, lambda _: salt, CHEAP)
    again = read_password(str(kept))
    assert again == kept
    assert again is not None
    assert again.is_right(secret)


def test_the_same_password_is_kept_differently_each_time() -> None:
    assert str(cheap()) != str(cheap())
    assert cheap().key != cheap().key


SALT, HASH = b64encode(bytes(16)).decode(), b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET,
        f"scrypt:16384:8:1:{SALT}",
        f"scrypt:16384:8:1:{SALT}:{HASH}:more",
        f"bcrypt:16384:8:1:{SALT}:{HASH}",
        f"scrypt:16384:8:1:{SALT}:{HASH[:-4]}",
        f"scrypt:16384:8:1:{b64encode(bytes(8)).decode()}:{HASH}",
        f"scrypt:16384:8:1:{b64encode(bytes(80)).decode()}:{HASH}",
        f"scrypt:16384:8:1:{SALT}:!{HASH[1:]}",
        f"scrypt:16383:8:1:{SALT}:{HASH}",
        f"scrypt:512:8:1:{SALT}:{HASH}",
        f"scrypt:1073741824:8:1:{SALT}:{HASH}",
        f"scrypt:131072:8:1:{SALT}:{HASH}",
        f"scrypt:16384:1024:1:{SALT}:{HASH}",
        f"scrypt:16384:8:1000:{SALT}:{HASH}",
        f"scrypt:16384:8:16:{SALT}:{HASH}",
        f"scrypt:16384:0:1:{SALT}:{HASH}",
        f"scrypt:-16384:8:1:{SALT}:{HASH}",
        f"scrypt:1_6384:8:1:{SALT}:{HASH}",
        f"scrypt:١٦٣٨٤:8:1:{SALT}:{HASH}",
    ],
)
def test_what_can_not_be_kept_of_a_password_is_refused(text: str) -> None:
    assert read_password(text) is None


@given(st.integers(1, 1 << 24), st.integers(1, 1 << 10), st.integers(1, 1 << 10))
def test_no_line_can_ask_for_more_memory_than_the_limit(n: int, r: int, p: int) -> None:
    kept = read_password(f"scrypt:{n}:{r}:{p}:{SALT}:{HASH}")
    assert kept is None or 128 * n * r <= MEMORY_MAX


def test_the_dearest_cost_that_is_bearable_can_be_paid() -> None:
    assert Cost(1 << 16, 8, 1).is_bearable
    assert make_password(SECRET, os.urandom, Cost(1 << 16, 8, 1)).is_right(SECRET)


@pytest.mark.parametrize(
    ("password", "problem"),
    [
        ("short", "at least 8"),
        ("x" * 1_001, "at most 1000"),
        ("two\nlines of text", "one line"),
        ("tdg_" + "x" * 43, "looks like a token"),
        ("with blanks is fine", None),
    ],
)
def test_a_password_that_is_not_taken_is_told_why(password: str, problem: str | None) -> None:
    told = password_problem(password)
    assert (told is None) if problem is None else (told is not None and problem in told)


@given(st.binary(min_size=32, max_size=32))
def test_a_token_is_known_by_its_form(data: bytes) -> None:
    token = make_token(lambda _: data)
    assert len(token) == 47
    assert is_token(token)
    assert read_token_hash(f"sha256:{hash_token(token)}") == hash_token(token)


@pytest.mark.parametrize(
    "text", ["", "tdg_", "tdg_" + "x" * 42, "tdg_" + "x" * 44, "tdg_" + "ü" * 43, SECRET]
)
def test_all_else_is_no_token(text: str) -> None:
    assert not is_token(text)


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "0" * 63, "sha256:" + "G" * 64, "md5:" + "0" * 64]
)
def test_all_else_is_no_hash_of_a_token(text: str) -> None:
    assert read_token_hash(text) is None


def test_a_token_is_good_up_to_the_end_of_its_last_day_in_utc() -> None:
    token = Token("a", "0" * 64, date(2027, 1, 31))
    assert token.is_good(datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    assert not token.is_good(datetime(2027, 2, 1, tzinfo=UTC).timestamp())
    assert Token("a", "0" * 64).is_good(1e10)
