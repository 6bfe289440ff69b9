"""`tidings security`, on directories of the test's own."""

from __future__ import annotations

import json
import re
import shlex
import stat
from pathlib import Path

import pytest
from cli.commands import run_command

from tidings.security.certificates import describe
from tidings.security.directory import SecurityDirectory

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = "a password of mine"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIDINGS_SECURITY", "TIDINGS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def security(*arguments: str, password: str | None = PASSWORD) -> tuple[int, str, str]:
    return run_command("security", *arguments, environment={"TIDINGS_PASSWORD": password})


def init(*options: str) -> str:
    code, output, errors = security(
        "init", "sec", "--name", "kitchen", "--host", "10.0.0.7", "--host", "kitchen.example", *options
    )
    assert (code, errors) == (0, "")
    return output


def test_a_new_directory_comes_with_the_lines_to_use() -> None:
    output = init()
    assert output.startswith(
        "made sec: node kitchen, reached as 10.0.0.7, kitchen.example, localhost, 127.0.0.1, ::1, until 20"
    )
    for line in (
        "tidings node --name kitchen --dir data --security sec --host 0.0.0.0",
        "sec/ca.pem sec/device.token",
        "export TIDINGS_NODE=tidings+tls://10.0.0.7:7300",
        "export TIDINGS_CA=ca.pem",
        "export TIDINGS_TOKEN_FILE=device.token",
        'tidings subscribe "value > 40"',
        "tidings publish air.pm10 value=41.2",
    ):
        assert f"\n  {line}\n" in output
    users, _ = SecurityDirectory("sec").load()
    assert users["admin"].password is not None
    assert users["admin"].password.is_right(PASSWORD)
    assert not Path("sec/admin.password").exists()


def test_where_nobody_can_be_asked_a_password_is_made_up_and_written_down() -> None:
    code, output, _ = security("init", "sec", "--host", "10.0.0.7", "--admin", "root", password=None)
    assert code == 0
    assert "The password of root was made up: it is in sec/admin.password" in output
    file = Path("sec/admin.password")
    made_up = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made_up not in output
    users, _ = SecurityDirectory("sec").load()
    assert users["root"].password is not None
    assert users["root"].password.is_right(made_up)


def test_at_a_terminal_the_password_is_asked_for_twice_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.cli.user.has_terminal", lambda: True)
    code, output, errors = run_command(
        "security", "init", "sec", "--host", "10.0.0.7", lines=f"{PASSWORD}\n{PASSWORD}\n"
    )
    assert (code, errors.count("Password of admin")) == (0, 1)
    assert PASSWORD not in output + errors
    users, _ = SecurityDirectory("sec").load()
    assert users["admin"].password is not None
    assert users["admin"].password.is_right(PASSWORD)


def test_without_a_name_the_node_is_called_like_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "attic.example")
    _, output, _ = security("init", "sec")
    assert output.startswith("made sec: node attic, reached as attic.example, localhost")


def test_a_directory_that_is_there_is_not_written_over() -> None:
    init()
    assert security("init", "sec") == (2, "", "tidings: sec: exists already, and is not overwritten\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--host", "not a host"), "'not a host' is neither the name of a host nor an IP address"),
        (("--host", "0.0.0.0"), "name those under which others reach it"),
        (("--name", "a/b", "--host", "a"), "'a/b' is no name of a node"),
        (("--admin", "a b", "--host", "a"), "a user's name has no blanks"),
        (("--password-file", "nowhere", "--host", "a"), "nowhere: can't be read: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_made(options: tuple[str, ...], problem: str) -> None:
    code, output, errors = security("init", "sec", *options)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert problem in errors
    assert not Path("sec").exists()


def test_a_second_node_is_made_and_each_is_told_of_the_other() -> None:
    init()
    code, output, errors = security("node", "attic", "--host", "10.0.0.8", "--from", "sec", "--to", "sec2")
    assert (code, errors) == (0, "")
    assert output.startswith("made sec2: node attic, reached as 10.0.0.8, localhost")
    assert '--peers "kitchen=tidings+tls://10.0.0.7:7300"' in output
    assert '--peers "attic=tidings+tls://10.0.0.8:7300"' in output
    for directory in ("sec", "sec2"):
        assert security("check", directory)[0] == 0
    code, _, errors = security("node", "admin", "--from", "sec", "--to", "sec3")
    assert (code, errors) == (2, "tidings: there is a user 'admin' already\n")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    _, output, _ = security("init", "sec", "--host", "2001:db8::1")
    assert "export TIDINGS_NODE=tidings+tls://[2001:db8::1]:7300\n" in output


def test_a_client_gets_a_certificate_and_is_told_that_it_has_no_rules() -> None:
    init()
    code, output, errors = security("certificate", "ada", "--from", "sec", "--to", "adas")
    assert code == 0
    assert "  export TIDINGS_CERT=adas/client.pem\n" in output
    assert errors == "no rule allows ada anything yet: add one to sec/access.toml\n"
    assert describe(Path("adas/client.pem").read_text(), "").name == "ada"


def test_a_certificate_is_renewed_with_the_hosts_that_are_given() -> None:
    init()
    assert security("renew", "sec")[1].startswith(
        "renewed kitchen, reached as 10.0.0.7, kitchen.example, local"
    )
    assert security("renew", "sec", "--host", "b.example")[1].startswith(
        "renewed kitchen, reached as b.example, "
    )
    Path("sec/ca.key").unlink()
    code, _, errors = security("renew", "sec")
    assert code == 2
    assert "ca.key: is not there: bring it from where it is kept" in errors


def test_a_check_tells_everything_but_secrets() -> None:
    init()
    with Path("sec/access.toml").open("a") as file:
        file.write("[[allow]]\nusers = ['device']\nactions = ['manage']\nqueues = ['own-*']\n")
    code, output, errors = security("check", "sec")
    assert (code, errors) == (0, "")
    assert "admin may publish, subscribe, manage, block, keep\n  put *\n  get *\n  manage *\n" in output
    assert "device may publish, subscribe, put, get\n  manage own-*\n" in output
    assert output.endswith("sec is in order\n")
    report = json.loads(security("check", "sec", "--json")[1])
    assert [user["user"] for user in report["users"]] == ["admin", "device"]
    assert report["node"]["hosts"][0] == "10.0.0.7"


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("users", "admin pasword x\n", "sec/users, line 1: the second word is one of password,"),
        (
            "access.toml",
            "[[allow]]\nusers = ['admn']\nactions = ['get']\n",
            "no user 'admn'; did you mean 'admin'?",
        ),
        ("node.pem", "", "sec/node.pem: is no certificate"),
        ("node.key", "", "sec/node.key: is no key"),
    ],
)
def test_a_check_ends_at_the_first_thing_that_is_wrong(file: str, text: str, problem: str) -> None:
    init()
    (Path("sec") / file).write_text(text)
    code, output, errors = security("check", "sec")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert problem in errors


def test_a_directory_that_is_not_there_is_told_how_to_make() -> None:
    assert security("check", "nowhere") == (
        2,
        "",
        "tidings: nowhere: can't be read: No such file or directory; 'tidings security init' makes one\n",
    )


def test_the_commands_of_the_document_can_be_typed_one_after_the_other(tmp_path: Path) -> None:
    """The blocks of shell in `docs/security.md`, as far as they change or read a security directory."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    mine = [words[1:] for words in commands if words[:2] in (["tidings", "security"], ["tidings", "user"])]
    assert {tuple(words[:2]) for words in mine} == {
        *(("security", name) for name in ("init", "node", "certificate", "renew", "check")),
        *(("user", name) for name in ("add", "list", "remove", "password", "token", "revoke")),
    }
    for words in mine:
        code, _, errors = run_command(
            *words, environment={"TIDINGS_SECURITY": "sec", "TIDINGS_PASSWORD": PASSWORD}
        )
        assert code == 0, f"{words}: {errors}"


def test_each_command_says_as_json_what_it_made() -> None:
    def told(*arguments: str) -> dict[str, object]:
        code, output, _ = security(*arguments, "--json")
        assert code == 0
        found: dict[str, object] = json.loads(output)
        return found

    made = json.loads(init("--json"))
    assert (made["made"], made["node"]["name"], made["password_file"]) == ("sec", "kitchen", None)
    sibling = told("node", "attic", "--from", "sec", "--to", "there", "--host", "10.0.0.8")
    assert (sibling["made"], sibling["sibling"]) == ("there", "kitchen")
    client = told("certificate", "ada", "--from", "sec", "--to", "hers")
    assert client == {
        "user": "ada",
        "ca": "hers/ca.pem",
        "cert": "hers/client.pem",
        "key": "hers/client.key",
    }
    assert told("renew", "sec")["name"] == "kitchen"
