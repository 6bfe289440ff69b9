"""No secret shows: not in what is printed, raised or logged of any object here."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from cli.commands import run_command
from security.places import NOW, SECRET, cheap, made

from tidings.errors import TidingsError
from tidings.protocol.access import Denied, LoginCredentials, PeerInfo
from tidings.security.authenticator import PasswordCheck, UserAuthenticator
from tidings.security.certificates import Authority
from tidings.security.directory import SecurityDirectory
from tidings.security.provision import Admin, report_on
from tidings.security.users import read_users


@pytest.fixture
def home(tmp_path: Path) -> SecurityDirectory:
    return made(tmp_path / "security")


def hidden(home: SecurityDirectory) -> list[str]:
    """All that must not be seen: secrets, keys, and what is kept of them."""
    users = home.load_users()
    kept = str(users["admin"].password).split(":")
    keys = [
        line for file in (home.key, home.ca_key) for line in file.read_text().splitlines() if "-" not in line
    ]
    token = (home.path / "device.token").read_text().strip()
    return [SECRET, token, users["device"].tokens[0].digest, kept[-1], *keys]


def assert_hidden(home: SecurityDirectory, text: str) -> None:
    assert not [secret for secret in hidden(home) if secret in text]


def test_nothing_shows_in_what_objects_say_of_themselves(home: SecurityDirectory) -> None:
    users, rules = home.load()
    authenticator = UserAuthenticator(users, rules)
    claim = LoginCredentials(PeerInfo("", "10.0.0.9"), "admin", SECRET)
    check = authenticator.admit(claim, 0.0)
    assert isinstance(check, PasswordCheck)
    authority = Authority.read(home.ca.read_text(), home.ca_key.read_text(), "ca.pem")
    things = [
        *(users, rules, authenticator, claim, check, check.attempt, home, authority, authority.pem),
        *(Admin("admin", cheap(), SECRET), report_on(home, NOW)),
    ]
    for thing in things:
        assert_hidden(home, f"{thing!r} {thing!s}")
    assert_hidden(home, msgspec.json.encode(report_on(home, NOW)).decode())


def test_nothing_shows_in_what_is_raised(home: SecurityDirectory) -> None:
    token = (home.path / "device.token").read_text().strip()
    authenticator = UserAuthenticator(*home.load())
    for user, secret in (("zoe", SECRET), ("device", SECRET), ("admin", token), ("zoe", token)):
        claim = LoginCredentials(PeerInfo("", "10.0.0.9"), user, secret)
        with pytest.raises(Denied) as caught:
            authenticator.conclude(authenticator.admit(claim, 0.0), False, 0.0)  # type: ignore[arg-type]
        shown = "".join(traceback.format_exception(caught.value))
        assert_hidden(home, f"{shown}{caught.value!r}{caught.value.args}")


@pytest.mark.parametrize(
    "break_line",
    [
        lambda line: line.replace("password", "pasword"),
        lambda line: line.replace("token", ""),
        lambda line: f"{line} {SECRET}",
        lambda line: line.replace("scrypt:", "").replace("sha256:", ""),
        lambda line: line.partition(" ")[2],
        lambda line: f"{line}\n{line}",
        lambda line: line[:-3],
        str.upper,
    ],
)
def test_nothing_shows_of_a_line_that_is_broken(
    home: SecurityDirectory, break_line: Callable[[str], str]
) -> None:
    refused = 0
    for line in home.users.read_text().splitlines()[1:]:
        shown = ""
        try:
            read_users(break_line(line), "users")
        except TidingsError as error:
            shown = f"{error} {error!r} {error.__cause__} {error.args}"
            refused += 1
        assert_hidden(home, shown)
        assert line.split()[-1] not in shown
    assert refused


def commands(home: SecurityDirectory, tmp_path: Path) -> Iterator[list[str]]:
    at = ["--security", str(home.path)]
    yield ["security", "check", str(home.path)]
    yield ["security", "check", str(home.path), "--json"]
    yield ["user", "list", *at]
    yield ["user", "list", "--json", *at]
    yield ["user", "add", "ada", *at]
    yield ["user", "add", "ada", *at]
    yield ["user", "password", "admin", *at]
    yield ["user", "token", "device", "--label", "b", "--to", str(tmp_path / "b.token"), *at]
    yield ["security", "certificate", "bob", "--from", str(home.path), "--to", str(tmp_path / "bob")]
    yield ["security", "node", "attic", "--from", str(home.path), "--to", str(tmp_path / "attic")]
    yield ["security", "renew", str(home.path)]
    yield ["user", "revoke", "device", "first", *at]
    yield ["user", "remove", "admin", *at]
    yield ["security", "init", str(tmp_path / "more"), "--host", "10.0.0.7"]


def test_nothing_shows_in_what_commands_print(home: SecurityDirectory, tmp_path: Path) -> None:
    before, shown = hidden(home), ""
    for arguments in commands(home, tmp_path):
        code, output, errors = run_command(*arguments, environment={"TIDINGS_PASSWORD": SECRET})
        assert code in (0, 2)
        shown += output + errors
    new = [path.read_text().strip() for path in tmp_path.rglob("*.token")]
    assert len(new) == 3
    assert not [secret for secret in (*before, *new) if secret in shown]


def test_what_is_random_comes_from_the_system() -> None:
    assert UserAuthenticator.__init__.__defaults__ == (os.urandom,)
