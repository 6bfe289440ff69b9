"""Joining at the inviting node: what becomes of its security directory, whatever is asked and killed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from security.places import NOW, made

from tidings.errors import ConfigError, Refused, TidingsError, UserError
from tidings.security.certificates import check_issuer, describe, make_key, make_request
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.invitation import InvitationLine, fingerprint
from tidings.security.inviting import Listening
from tidings.security.joining import CLOCK_S_MAX, Admission, Asked, admit, invite, revoke
from tidings.security.known_nodes import forget, read_known
from tidings.security.provision import report_on

WALL = NOW.timestamp()
YEAR_S = 365 * 86_400.0
THERE = Listening("10.0.0.7", 7300)
KEY = make_key()
ASKED = Asked("shed", make_request("shed", KEY), WALL, "tidings+tls://10.0.0.8:7300")


@pytest.fixture
def home(tmp_path: Path) -> SecurityDirectory:
    return made(tmp_path / "security")


def invited(home: SecurityDirectory, name: str = "shed", *hosts: str) -> InvitationLine:
    return invite(home, name, hosts, 3_600.0, THERE, WALL, os.urandom)


def joined(
    home: SecurityDirectory, line: InvitationLine, asked: Asked = ASKED, wall: float = WALL
) -> Admission:
    return admit(home, line.id, asked, THERE, wall)


def refused(home: SecurityDirectory, line: InvitationLine, asked: Asked = ASKED, wall: float = WALL) -> str:
    """The reason of a refusal, after which nothing has changed."""
    before = contents(home)
    with pytest.raises((Refused, UserError)) as caught:
        joined(home, line, asked, wall)
    assert contents(home) == before
    return str(caught.value)


def contents(home: SecurityDirectory) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in home.path.iterdir()}


def check_taken_in(home: SecurityDirectory, name: str = "shed") -> None:
    """The node is known as a user, with rules, and as a peer, each once."""
    report = report_on(home, NOW)
    (user,) = [one for one in report.users if one.user == name]
    assert user.node
    assert user.rules == ["publish", "subscribe", "put", "get"]
    assert home.access.read_text().count(f'"{name}"') == 1
    assert read_known(home)[name] == ("tidings+tls://10.0.0.8:7300",)
    assert [one.state for one in home.load_invitations().values()] == ["used"]
    assert [file.name for file in home.path.iterdir() if file.name.startswith(".")] == []


# Inviting


def test_an_invitation_names_the_node_where_it_is_and_its_authority(home: SecurityDirectory) -> None:
    line = invited(home)
    assert (line.node, line.name, line.addresses) == ("kitchen", "shed", ["tidings+tls://10.0.0.7:7300"])
    assert line.authority == fingerprint(home.ca.read_text())
    assert line.until == WALL + 3_600


def test_the_secret_is_kept_nowhere_and_the_file_is_its_owners(home: SecurityDirectory) -> None:
    line = invited(home)
    assert not any(line.secret.encode() in content for content in contents(home).values())
    assert home.invitations.stat().st_mode & 0o777 == 0o600


def test_a_node_that_listens_everywhere_is_reached_as_its_certificate_says(tmp_path: Path) -> None:
    home = made(tmp_path / "security", "kitchen", "10.0.0.7", "kitchen.example", "*.lan")
    line = invite(home, "shed", (), 60.0, Listening("0.0.0.0", 7301), WALL, os.urandom)
    assert line.addresses == ["tidings+tls://10.0.0.7:7301", "tidings+tls://kitchen.example:7301"]


def test_an_address_of_ipv6_is_written_in_brackets(home: SecurityDirectory) -> None:
    line = invite(home, "shed", (), 60.0, Listening("fd00::7", 7300), WALL, os.urandom)
    assert line.addresses == ["tidings+tls://[fd00::7]:7300"]


def test_a_node_that_nobody_else_can_reach_says_what_to_do(tmp_path: Path) -> None:
    home = made(tmp_path / "security", "kitchen", "localhost")
    with pytest.raises(UserError, match=r"name one: tidings security renew .* --host HOST"):
        invite(home, "shed", (), 60.0, Listening("0.0.0.0", 7300), WALL, os.urandom)
    with pytest.raises(UserError, match="start it with --port"):
        invite(home, "shed", (), 60.0, None, WALL, os.urandom)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("kitchen", "'kitchen' is the name of this node itself"),
        ("device", "there is a user 'device' already"),
        ("attic", "there is a node 'attic' already.*tidings user remove attic"),
        ("a/b", "'a/b' is no name of a node"),
        ("", "no name of a node"),
    ],
)
def test_a_name_that_is_taken_or_none_is_refused(home: SecurityDirectory, name: str, problem: str) -> None:
    with edited(home) as lines:
        lines.add("attic", "node")
    with pytest.raises(UserError, match=problem):
        invited(home, name)
    assert not home.invitations.exists()


@pytest.mark.parametrize(
    ("host", "problem"),
    [("10.0.0.7", "is a host of this node itself"), ("not a host", "neither"), ("a,b", "no comma|neither")],
)
def test_hosts_that_no_certificate_should_have_are_refused(
    home: SecurityDirectory, host: str, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        invited(home, "shed", host)
    assert not home.invitations.exists()


def test_without_the_key_of_the_authority_nobody_is_invited(home: SecurityDirectory) -> None:
    home.ca_key.unlink()
    with pytest.raises(ConfigError, match=r"ca\.key: is not there: bring it from where it is kept"):
        invited(home)


# Joining


def test_a_node_that_joins_gets_a_certificate_for_its_own_key_and_the_hosts_of_the_invitation(
    home: SecurityDirectory,
) -> None:
    line = invited(home, "shed", "10.0.0.8")
    admission = joined(home, line)
    told = describe(admission.certificate, "")
    assert (told.name, told.hosts) == ("shed", ["10.0.0.8", "localhost", "127.0.0.1", "::1"])
    assert not told.is_authority
    check_issuer(admission.certificate, home.ca.read_text(), "")
    assert (admission.node, admission.addresses) == ("kitchen", ["tidings+tls://10.0.0.7:7300"])
    check_taken_in(home)


def test_a_node_that_was_removed_can_be_invited_again(home: SecurityDirectory) -> None:
    joined(home, invited(home))
    with edited(home) as lines:
        lines.remove("shed", stays=True)
    assert forget(home, "shed")
    line = invited(home)
    joined(home, line, replace(ASKED, request=make_request("shed", make_key())))
    assert home.load_users()["shed"].is_node


def test_a_node_that_lost_the_answer_gets_it_again_and_nothing_else_changes(home: SecurityDirectory) -> None:
    line = invited(home)
    joined(home, line)
    before = contents(home)
    again = joined(home, line)
    assert describe(again.certificate, "").name == "shed"
    assert contents(home) == before


def test_a_used_invitation_is_of_no_use_to_another(home: SecurityDirectory) -> None:
    line = invited(home)
    joined(home, line)
    other = replace(ASKED, request=make_request("shed", make_key()))
    assert "the invitation of 'shed' was used already" in refused(home, line, other)


def test_a_node_that_was_removed_does_not_come_back_by_its_old_invitation(home: SecurityDirectory) -> None:
    line = invited(home)
    joined(home, line)
    with edited(home) as lines:
        lines.remove("shed", stays=True)
    assert "has joined, and was removed" in refused(home, line)


def test_an_expired_or_revoked_invitation_is_refused(home: SecurityDirectory) -> None:
    line = invited(home)
    assert "has expired" in refused(home, line, replace(ASKED, wall=WALL + 3_600), WALL + 3_600)
    revoke(home, "shed", WALL)
    assert "was revoked" in refused(home, line)
    with pytest.raises(UserError, match="no open invitation of 'shed': it is revoked"):
        revoke(home, "shed", WALL)
    with pytest.raises(UserError, match="no open invitation of 'attic'"):
        revoke(home, "attic", WALL)


def test_an_invitation_that_is_not_there_any_more_is_refused(home: SecurityDirectory) -> None:
    line = invited(home)
    home.invitations.unlink()
    assert "was removed; make another one" in refused(home, line)


def test_an_invitation_is_for_one_name(home: SecurityDirectory) -> None:
    line = invited(home)
    told = "the invitation is for 'shed', not for 'attic'"
    assert told in refused(home, line, replace(ASKED, name="attic"))
    assert told in refused(home, line, replace(ASKED, request=make_request("attic", KEY)))


def test_a_name_that_was_given_away_since_is_refused(home: SecurityDirectory) -> None:
    line = invited(home)
    with edited(home) as lines:
        lines.add("shed", "certificate")
    assert "there is a user 'shed' already" in refused(home, line)


@pytest.mark.parametrize("off_s", [YEAR_S, -YEAR_S, CLOCK_S_MAX + 1, float("nan"), float("inf"), 1e300])
def test_a_clock_that_is_off_is_refused_with_both_times(home: SecurityDirectory, off_s: float) -> None:
    told = refused(home, invited(home), replace(ASKED, wall=WALL + off_s))
    assert "the clocks do not agree: that of shed says" in told
    assert "that of kitchen 2026-11-15 12:00:00 UTC; set the wrong one, then join again" in told
    if off_s == YEAR_S:
        assert "that of shed says 2027-11-15 12:00:00 UTC" in told


def test_a_request_that_is_none_or_forged_is_refused(home: SecurityDirectory) -> None:
    from base64 import b64decode, b64encode

    line = invited(home)
    good = ASKED.request.splitlines()
    der = bytearray(b64decode("".join(good[1:-1])))
    der[-1] ^= 1  # in the signature
    forged = "\n".join([good[0], b64encode(bytes(der)).decode(), good[-1]])
    for request in ("", "a request", forged, ASKED.request[:100]):
        assert "the request is " in refused(home, line, replace(ASKED, request=request))


def test_a_request_with_another_kind_of_key_is_refused(home: SecurityDirectory) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

    request = make_request("shed", generate_private_key(SECP384R1()))
    assert "P-256" in refused(home, invited(home), replace(ASKED, request=request))


# Killed


def dies(work: Callable[[], object], at: int) -> bool:
    """Do something in a child that is killed when it renames a file for that time; whether it was."""
    child = os.fork()
    if not child:
        left = [at]

        def hook(event: str, _arguments: object) -> None:
            if event == "os.rename":
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(hook)
            work()
        except TidingsError:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (signal.SIGKILL, 0)
    return status == signal.SIGKILL


def test_a_node_that_is_killed_while_another_joins_goes_on_when_it_asks_again(tmp_path: Path) -> None:
    first = made(tmp_path / "security")
    line = invited(first)
    deaths = 0
    while True:
        home = SecurityDirectory(tmp_path / f"copy-{deaths}")
        shutil.copytree(first.path, home.path)
        if not dies(lambda home=home: joined(home, line), deaths + 1):  # type: ignore[misc]
            break
        deaths += 1
        report_on(home, NOW)  # it is in order at every moment
        for file in home.path.glob(".*"):
            file.unlink()  # what a killed process was writing
        joined(home, line)
        check_taken_in(home)
    assert deaths == 5  # invitations, users, access.toml, peers, invitations
