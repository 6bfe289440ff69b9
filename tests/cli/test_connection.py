"""Commands at a node with security: how they say who they are."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from node.peers import ANSWER_S_MAX, SOURCE, Start
from node.secured import PASSWORD, TOKEN, Secured
from typer.main import get_command
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.errors import TidingsError

PROMPT = "Password of ada: "
OPTIONS = {"--user", "--password-file", "--token-file", "--ca", "--cert", "--key"}


class Elsewhere:
    """A node with security, and commands that go there."""

    def __init__(self, secured: Secured, address: str) -> None:
        self.secured = secured
        self.address = address
        self.password = self._keep("password", PASSWORD)
        self.token = self._keep("token", TOKEN)

    def _keep(self, name: str, text: str) -> str:
        file = self.secured.home / name
        file.write_text(text + "\n")
        return str(file)

    def __call__(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Exit code, and all that was printed."""
        known = {"TIDINGS_NODE": self.address, "TIDINGS_CA": str(self.secured.ca), "COLUMNS": "120"}
        result = CliRunner(env=known | environment).invoke(app, [*arguments])
        assert result.exception is None or isinstance(result.exception, TidingsError | SystemExit)
        said = f"tidings: {result.exception}" if isinstance(result.exception, TidingsError) else ""
        return 2 if said else result.exit_code, result.output + said


@pytest.fixture(scope="module")
def elsewhere(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    return Elsewhere(secured, start_shared("--port", "0", "--security", str(secured.path)).address())


def test_every_command_that_connects_can_say_who_it_is() -> None:
    def connecting(group: object, path: str = "tidings") -> Iterator[tuple[str, set[str]]]:
        for name, command in getattr(group, "commands", {}).items():
            yield from connecting(command, f"{path} {name}")
            if any(one.opts == ["--node"] and one.metavar == "ADDRESS" for one in command.params):
                yield f"{path} {name}", {flag for one in command.params for flag in one.opts}

    missing = {name: OPTIONS - flags for name, flags in connecting(get_command(app))}
    assert len(missing) >= 15
    assert not any(missing.values()), missing


def test_commands_go_to_a_node_with_tls(elsewhere: Elsewhere) -> None:
    who = ("--user", "ada", "--password-file", elsewhere.password)
    assert elsewhere("publish", "air.pm10", "value=41.5", *who) == (0, "published 1\n")
    assert elsewhere("queue", "create", "jobs", *who) == (0, "queue jobs is ready\n")
    assert elsewhere("queue", "put", "jobs", "job", "n=7", *who)[0] == 0
    assert "n=7" in elsewhere("queue", "get", "jobs", *who)[1]
    assert "jobs" in elsewhere("queue", "list", *who)[1]
    assert elsewhere("queue", "dead", *who)[0] == 0
    assert elsewhere("queue", "delete", "jobs", "--yes", *who)[0] == 0
    assert "published" in elsewhere("top", "--once", "--every", "0.01", *who)[1]


def test_a_subscription_goes_there_too(elsewhere: Elsewhere) -> None:
    who = {"TIDINGS_USER": "ada", "TIDINGS_PASSWORD_FILE": elsewhere.password}
    reader = subprocess.Popen(
        [sys.executable, "-c", "from tidings.cli import main; main()", "subscribe", "--count", "1"],
        env={**os.environ, **who, "PYTHONPATH": str(SOURCE), "TIDINGS_NODE": elsewhere.address}
        | {"TIDINGS_CA": str(elsewhere.secured.ca)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stderr is not None
    assert reader.stderr.readline() == f"subscribed at {elsewhere.address}; Ctrl-C ends\n"
    assert elsewhere("publish", "air.pm10", "value=41.5", TIDINGS_TOKEN=TOKEN)[0] == 0
    output, _ = reader.communicate(timeout=ANSWER_S_MAX)
    assert "air.pm10 value=41.5" in output


def test_who_it_is_may_be_told_in_all_the_ways_there_are(elsewhere: Elsewhere) -> None:
    bob = elsewhere.secured.client("bob")
    certificate = {"TIDINGS_CERT": str(bob["cert"]), "TIDINGS_KEY": str(bob["key"])}
    user_in_address = elsewhere.address.replace("://", "://ada@")
    for options, environment in [
        (("--token-file", elsewhere.token), {}),
        ((), {"TIDINGS_TOKEN_FILE": elsewhere.token}),
        ((), {"TIDINGS_TOKEN": TOKEN}),
        (("--cert", str(bob["cert"]), "--key", str(bob["key"])), {}),
        ((), certificate),
        ((), {"TIDINGS_USER": "ada", "TIDINGS_PASSWORD_FILE": elsewhere.password}),
        (("--node", user_in_address, "--password-file", elsewhere.password), {}),
    ]:
        assert elsewhere("publish", "a", *options, **environment) == (0, "published 1\n")


def test_what_goes_wrong_is_one_line_without_a_secret(elsewhere: Elsewhere) -> None:
    nobody = elsewhere("publish", "a")
    assert nobody[0] == 2
    assert "requires a login" in nobody[1]
    wrong = elsewhere("publish", "a", "--user", "bob", "--password-file", elsewhere.password)
    assert wrong == (2, "tidings: user or secret is wrong\n")
    code, said = elsewhere("queue", "create", "x", "--token-file", elsewhere.token)
    assert (code, said) == (2, "tidings: 'device' may not manage queue 'x'\n")
    code, said = elsewhere("publish", "a", "--token-file", str(Path("/none")))
    assert (code, said) == (2, "tidings: /none: the token can't be read: No such file or directory\n")
    code, said = elsewhere("publish", "a", "--node", f"tidings+tls://ada:{PASSWORD}@127.0.0.1")
    assert code == 2
    assert PASSWORD not in said


def test_without_tls_an_option_that_says_who_it_is_is_refused_and_a_variable_has_no_effect(
    elsewhere: Elsewhere, start: Start
) -> None:
    plain = start("--port", "0").address()
    variables = {"TIDINGS_NODE": plain, "TIDINGS_TOKEN": TOKEN, "TIDINGS_USER": "ada"}
    assert elsewhere("publish", "a", **variables) == (0, "published 1\n")
    for option in OPTIONS:
        assert elsewhere("publish", "a", option, "bob", **variables) == (
            2,
            f"tidings: {option} needs TLS: {plain}; use tidings+tls://HOST:PORT, or leave it out\n",
        )
    assert elsewhere("ping", plain, "--user", "bob")[0] == 2


def test_a_password_is_asked_for_at_a_terminal_and_not_shown(elsewhere: Elsewhere) -> None:
    ours, theirs = pty.openpty()
    command = "from tidings.cli import main; main()"
    asking = subprocess.Popen(
        [sys.executable, "-c", command, "publish", "a", "--user", "ada", "--node", elsewhere.address],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TIDINGS_CA": str(elsewhere.secured.ca)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    os.close(theirs)
    assert asking.stderr is not None
    assert asking.stderr.read(len(PROMPT)) == PROMPT  # its last blank comes when nothing is shown any more
    os.write(ours, PASSWORD.encode() + b"\n")
    output, errors = asking.communicate(timeout=ANSWER_S_MAX)
    os.close(ours)
    assert output == "published 1\n", errors
    assert PASSWORD not in output + errors


def test_what_the_command_makes_is_all_that_a_node_and_its_clients_need(start: Start, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["security", "init", str(tmp_path / "made"), "--host", "127.0.0.1"])
    assert made.exit_code == 0, made.output
    address = start("--port", "0", "--security", str(tmp_path / "made")).address()
    token = ["--token-file", str(tmp_path / "made" / "device.token")]
    command = ["publish", "a", "--node", address, "--ca", str(tmp_path / "made" / "ca.pem"), *token]
    assert CliRunner().invoke(app, command).output == "published 1\n"


def test_a_host_that_is_not_known_is_reported_as_such() -> None:
    result = CliRunner().invoke(app, ["top", "--once", "--node", "no-such-host.invalid:7300"])
    assert result.exit_code == 2
    assert result.stderr.startswith("tidings: unknown host: no-such-host.invalid (")


def test_host_and_port_are_an_address_and_by_tls_for_who_says_who_it_is(elsewhere: Elsewhere) -> None:
    bare = elsewhere.address.removeprefix("tidings+tls://")
    code, said = elsewhere("publish", "a", "--node", bare, "--token-file", elsewhere.token)
    assert (code, said) == (0, "published 1\n")
