"""`tidings user`, on a security directory of the test's own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import run_command
from node.peers import SOURCE
from security.places import SECRET, made

from tidings.protocol.access import Denied, LoginCredentials, PeerInfo, Principal
from tidings.security.authenticator import UserAuthenticator
from tidings.security.directory import SecurityDirectory
from tidings.security.known_nodes import read_known, remember
from tidings.security.passwords import hash_token, is_token

PASSWORD = "a password of mine"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecurityDirectory:
    monkeypatch.setenv("TIDINGS_SECURITY", str(tmp_path / "security"))
    monkeypatch.delenv("TIDINGS_PASSWORD", raising=False)
    monkeypatch.chdir(tmp_path)
    return made(tmp_path / "security")


def user(*arguments: str, password: str | None = None, lines: str = "") -> tuple[int, str, str]:
    environment = {} if password is None else {"TIDINGS_PASSWORD": password}
    return run_command("user", *arguments, lines=lines, environment=environment)


def lets_in(home: SecurityDirectory, name: str, secret: str) -> bool:
    authenticator = UserAuthenticator(*home.load())
    try:
        answer = authenticator.admit(LoginCredentials(PeerInfo("", "10.0.0.9"), name, secret), 0.0)
        return isinstance(answer, Principal) or authenticator.conclude(answer, answer.run(), 0.0).user == name
    except Denied:
        return False


def test_a_user_is_added_with_a_password_from_the_environment(home: SecurityDirectory) -> None:
    code, output, errors = user("add", "ada", password=PASSWORD)
    assert (code, output) == (0, "added ada\n")
    assert errors == f"no rule allows ada anything yet: add one to {home.access}\n"
    assert lets_in(home, "ada", PASSWORD)


def test_a_user_is_added_with_a_password_from_a_file(home: SecurityDirectory, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o644)
    code, _, errors = user("add", "ada", "--password-file", str(file))
    assert (code, errors) == (2, f"tidings: {file}: others may use it (mode 644); chmod 600 {file}\n")
    file.chmod(0o600)
    assert user("add", "ada", "--password-file", str(file))[0] == 0
    assert lets_in(home, "ada", PASSWORD)


def test_a_user_is_added_with_a_password_from_the_terminal(
    home: SecurityDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.cli.user.has_terminal", lambda: True)
    code, output, errors = user("add", "ada", lines=f"{PASSWORD}\n{PASSWORD}\n")
    assert code == 0
    assert PASSWORD not in output + errors
    assert lets_in(home, "ada", PASSWORD)


@pytest.mark.usefixtures("home")
def test_where_nobody_can_be_asked_it_is_said_what_to_use() -> None:
    problem = "no terminal to ask for a password at; use --password-file FILE, or TIDINGS_PASSWORD"
    assert user("add", "ada") == (2, "", f"tidings: {problem}\n")


def test_users_who_come_by_certificate_need_no_password(home: SecurityDirectory) -> None:
    user("add", "ada", "--certificate")
    user("add", "attic", "--node")
    users = home.load_users()
    assert (users["ada"].has_certificate, users["ada"].is_node) == (True, False)
    assert users["attic"].is_node


def test_another_password_takes_the_place_of_the_old_one(home: SecurityDirectory) -> None:
    assert user("password", "admin", password=PASSWORD)[:2] == (0, "admin has a new password\n")
    assert lets_in(home, "admin", PASSWORD)
    assert not lets_in(home, "admin", SECRET)


def test_a_token_is_printed_once_and_alone(home: SecurityDirectory) -> None:
    code, output, errors = user("token", "device", "--label", "second", "--until", "2999-12-31")
    assert (code, errors) == (0, "token 'second' of device is good until 2999-12-31\n")
    token = output.removesuffix("\n")
    assert is_token(token)
    assert lets_in(home, "device", token)
    assert token not in home.users.read_text()


def test_a_token_is_written_to_a_file_that_only_its_owner_may_read(home: SecurityDirectory) -> None:
    code, output, errors = user("token", "ada", "--to", "ada.token")
    assert (code, output) == (0, "")
    assert errors.startswith("token 'first' of the new user ada is good\nno rule allows ada anything yet")
    file = Path("ada.token")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert home.load_users()["ada"].tokens[0].digest == hash_token(file.read_text().strip())
    code, _, errors = user("token", "bob", "--to", "ada.token")
    assert (code, errors) == (2, "tidings: ada.token: exists already, and is not overwritten\n")
    assert "bob" not in home.load_users()


def test_a_revoked_token_lets_nobody_in_and_the_rules_stay_whole(home: SecurityDirectory) -> None:
    token = (home.path / "device.token").read_text().strip()
    assert lets_in(home, "device", token)
    assert user("revoke", "device", "first") == (
        0,
        "revoked 'first' of device, who is let in by nothing now\n",
        "",
    )
    assert not lets_in(home, "device", token)
    assert user("token", "device")[0] == 0
    assert not home.load_users()["device"].is_locked


def test_a_user_whom_rules_name_is_locked_and_any_other_is_removed(home: SecurityDirectory) -> None:
    user("add", "ada", password=PASSWORD)
    assert user("remove", "ada") == (0, "removed ada\n", "")
    code, output, errors = user("remove", "admin")
    assert (code, errors) == (0, "")
    assert output == (
        "admin is locked, and let in by nothing; the name stays because of "
        f"{home.access}, allow[1] (line 3)\n"
    )
    assert not lets_in(home, "admin", SECRET)
    assert list(home.load_users()) == ["admin", "device"]


def test_a_node_that_is_removed_is_dialled_no_more_after_the_next_start(home: SecurityDirectory) -> None:
    remember(home, "attic", ("tidings+tls://10.0.0.9:7300",))
    remember(home, "shed", ())
    user("add", "attic", "--node")
    assert user("remove", "attic") == (0, "removed attic\n", "")
    assert read_known(home) == {"shed": ()}


def test_rules_that_are_broken_do_not_keep_a_user_from_being_locked(home: SecurityDirectory) -> None:
    home.access.write_text("[[allow]\n")
    code, output, errors = user("remove", "admin")
    assert (code, output) == (
        0,
        f"admin is locked, and let in by nothing; the name stays because of {home.access}\n",
    )
    assert errors.startswith("but a running node keeps to the old users until this is mended: ")


def test_a_user_who_was_locked_by_hand_stays_so_and_that_is_told(home: SecurityDirectory) -> None:
    with home.users.open("a") as file:
        file.write("admin locked\n")
    _, _, errors = user("password", "admin", password=PASSWORD)
    assert errors == f"but admin is locked: remove the line 'admin locked' from {home.users}\n"


def test_a_list_shows_by_what_each_user_comes_in(home: SecurityDirectory) -> None:
    with home.users.open("a") as file:
        file.write(
            f"device token old sha256:{'ab' * 32} until:2020-01-31\nada certificate\nattic node\nbob locked\n"
        )
    code, output, _ = user("list")
    assert code == 0
    rows = [line.split() for line in output.splitlines()]
    assert rows == [
        ["user", "comes", "in", "by", "tokens", "rules"],
        ["admin", "password", "8"],
        ["device", "token", "first,", "old", "expired", "2020-01-31", "4"],
        ["ada", "certificate", "0"],
        ["attic", "certificate", "(node)", "0"],
        ["bob", "nothing", "(locked)", "0"],
    ]
    told = [json.loads(line) for line in user("list", "--json")[1].splitlines()]
    assert told[1]["tokens"][1] == {"label": "old", "until": "2020-01-31", "is_good": False}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "admin"), "there is a user 'admin' already; 'tidings user password' changes the password"),
        (("add", "a b"), "a user's name has no blanks, and none of / # : @"),
        (
            ("add", "ada", "--node", "--password-file", "x"),
            "a password does not go with --certificate or --node",
        ),
        (("password", "admn"), "there is no user 'admn'; did you mean 'admin'?"),
        (("remove", "devise"), "there is no user 'devise'; did you mean 'device'?"),
        (
            ("revoke", "device", "frist"),
            "'device' has no token 'frist'; there are first; did you mean 'first'?",
        ),
        (("revoke", "nobody", "first"), "there is no user 'nobody'"),
        (("token", "device"), "'device' has a token 'first' already: revoke it, or use another label"),
        (("token", "device", "--label", "a:b"), "a token's label has no blanks, and none of / # : @"),
        (
            ("token", "device", "--label", "b", "--until", "soon"),
            "--until soon: a day is written as 2027-01-31",
        ),
        (
            ("token", "device", "--label", "b", "--until", "2020-01-01"),
            "--until 2020-01-01: that day is over",
        ),
        (
            ("list", "--security", "nowhere"),
            "nowhere: can't be read: No such file or directory; 'tidings security",
        ),
    ],
)
def test_a_mistake_is_one_line_that_helps(arguments: tuple[str, ...], problem: str) -> None:
    code, output, errors = user(*arguments, password=PASSWORD)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"tidings: {problem}")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("password", ["short", "tdg_" + "x" * 43, "two\nlines here"])
def test_a_password_that_is_not_taken_is_not_shown(password: str) -> None:
    code, output, errors = user("add", "ada", password=password)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert password not in errors


def test_without_a_directory_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDINGS_SECURITY", raising=False)
    assert user("list") == (
        2,
        "",
        "tidings: no security directory; give --security DIR or set TIDINGS_SECURITY\n",
    )


@pytest.mark.parametrize("command", ["add", "password", "token"])
def test_no_command_takes_a_secret_as_an_argument(command: str) -> None:
    help_text = run_command("user", command, "--help")[1]
    options = {word for word in help_text.split() if word.startswith("--")}
    assert not options & {"--password", "--token", "--secret"}


def test_a_command_shows_no_secret_to_those_who_list_processes(home: SecurityDirectory) -> None:
    """A real process: its arguments are what others see of it."""
    result = subprocess.run(
        [sys.executable, "-c", "from tidings.cli import main; main()", "user", "add", "ada"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TIDINGS_PASSWORD": PASSWORD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert PASSWORD not in result.stdout + result.stderr
    assert lets_in(home, "ada", PASSWORD)


def test_each_command_says_as_json_what_it_did(home: SecurityDirectory) -> None:
    def told(*arguments: str) -> dict[str, object]:
        code, output, _ = user(*arguments, "--json", password=PASSWORD)
        assert code == 0
        found: dict[str, object] = json.loads(output)
        return found

    assert told("add", "ada") == {"added": "ada"}
    assert told("password", "ada") == {"changed": "ada"}
    made = told("token", "ada", "--label", "lab", "--until", "2099-01-31")
    assert lets_in(home, "ada", str(made.pop("token")))
    assert made == {"user": "ada", "label": "lab", "until": "2099-01-31", "is_new_user": False}
    assert told("token", "ada", "--label", "second", "--to", "file")["file"] == "file"
    assert told("revoke", "ada", "lab") == {"user": "ada", "revoked": "lab", "is_last": False}
    assert told("remove", "ada") == {"removed": "ada", "locked": False}
