"""Invitations: the line, the file, and who is let in by them."""

from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidings.errors import ConfigError, UserError
from tidings.protocol.access import Denied, LoginCredentials, PeerInfo, Principal
from tidings.security import authenticator as limits
from tidings.security.authenticator import UserAuthenticator
from tidings.security.invitation import PREFIX, InvitationLine, read_line
from tidings.security.invitations import (
    FOR_S,
    FOR_S_MAX,
    INVITED,
    KEPT_S,
    OPEN_MAX,
    Invitation,
    as_text,
    check_new,
    read_invitations,
)
from tidings.security.passwords import hash_token, make_token

SECRET = make_token(os.urandom)
WALL = 1_800_000_000.0
LINE = InvitationLine(
    "kitchen", ["tidings+tls://10.0.0.7:7300"], b"\x07" * 32, "0123456789abcdef", SECRET, "shed", int(WALL)
)
OPEN = Invitation("0123456789abcdef", "shed", hash_token(SECRET), int(WALL + FOR_S), ("shed",))


# The line


def test_a_line_is_read_as_it_was_written_whatever_blanks_are_around_it() -> None:
    assert read_line(str(LINE)) == LINE
    assert read_line(f"  {LINE}\n") == LINE


def test_a_line_is_one_word_that_no_shell_changes() -> None:
    assert set(str(LINE)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def test_a_line_that_was_cut_anywhere_is_refused_and_not_shown() -> None:
    text = str(LINE)
    for size in range(len(text)):
        with pytest.raises(ConfigError) as caught:
            read_line(text[:size])
        assert "copy the whole line" in str(caught.value)
        assert size < 20 or text[4:size] not in str(caught.value)


def test_a_line_that_was_cut_says_how_much_of_it_is_there() -> None:
    text = str(LINE)
    with pytest.raises(ConfigError, match=f"it has 100 of {len(text)} characters"):
        read_line(text[:100])


@given(st.integers(len(PREFIX), len(str(LINE)) - 1), st.sampled_from("AZaz09_-"))
def test_a_line_with_another_character_is_refused_or_reads_the_same(place: int, character: str) -> None:
    text = str(LINE)
    changed = text[:place] + character + text[place + 1 :]
    try:
        found = read_line(changed)
    except ConfigError:
        return
    assert found == LINE  # the last character has bits that stand for nothing


@pytest.mark.parametrize("text", ["", "shed", "tdg_" + "a" * 43, PREFIX + "!" * 50, str(LINE) + "AAAA"])
def test_what_is_no_line_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_line(text)


def test_a_line_with_an_address_without_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="another version"):
        read_line(str(replace(LINE, addresses=["tidings://10.0.0.7:7300"])))


def test_neither_a_line_nor_an_invitation_shows_its_secret() -> None:
    for thing in (LINE, OPEN):
        assert SECRET not in repr(thing)
        assert hash_token(SECRET) not in repr(thing)
    assert SECRET not in str(OPEN)


# The file


def test_invitations_are_read_as_they_were_written() -> None:
    key = "ab" * 32
    all_of_them = [
        OPEN,
        replace(OPEN, id="1" * 16, name="attic", hosts=("attic", "10.0.0.9"), state="used", key=key),
        replace(OPEN, id="2" * 16, state="joining", key=key),
        replace(OPEN, id="3" * 16, state="revoked", hosts=()),
    ]
    assert list(read_invitations(as_text(all_of_them, WALL), "invitations").values()) == all_of_them


def test_an_invitation_is_forgotten_a_day_after_it_has_expired() -> None:
    assert str(OPEN) in as_text([OPEN], OPEN.until + KEPT_S - 1)
    assert str(OPEN) not in as_text([OPEN], OPEN.until + KEPT_S)


@pytest.mark.parametrize(
    "line",
    [
        str(OPEN).replace("open", "opened"),
        str(OPEN).replace("open", "used:ab"),
        str(OPEN).replace("sha256", "md5"),
        str(OPEN).replace("until:", "until:x"),
        f"{OPEN}\n{OPEN}",
        "shed",
    ],
)
def test_a_line_that_is_no_invitation_is_refused_with_its_number_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError, match="invitations, line ") as caught:
        read_invitations(f"# a comment\n\n{line}\n", "invitations")
    assert OPEN.digest not in str(caught.value)


def test_a_second_invitation_of_a_name_is_refused_until_the_first_is_over() -> None:
    with pytest.raises(UserError, match=r"tidings security invitations --revoke shed"):
        check_new({OPEN.id: OPEN}, "shed", FOR_S, WALL)
    check_new({OPEN.id: OPEN}, "attic", FOR_S, WALL)
    check_new({OPEN.id: OPEN}, "shed", FOR_S, OPEN.until)
    check_new({OPEN.id: replace(OPEN, state="revoked")}, "shed", FOR_S, WALL)


@pytest.mark.parametrize("for_s", [0.0, -1.0, FOR_S_MAX + 1, float("nan"), float("inf")])
def test_an_invitation_for_no_time_or_too_long_is_refused(for_s: float) -> None:
    with pytest.raises(UserError, match="at most"):
        check_new({}, "shed", for_s, WALL)


def test_so_many_invitations_may_be_open_and_no_more() -> None:
    many = {f"{n:016x}": replace(OPEN, id=f"{n:016x}", name=f"n{n}") for n in range(OPEN_MAX)}
    with pytest.raises(UserError, match="as many as may be"):
        check_new(many, "shed", FOR_S, WALL)


# Who is let in


def asked(invitations: Invitation | None, secret: str = SECRET, wall: float = WALL) -> Principal:
    known = {} if invitations is None else {invitations.id: invitations}
    authenticator = UserAuthenticator({}, {})
    authenticator.reload({}, {}, wall, known)
    claim = LoginCredentials(PeerInfo("", "10.0.0.8"), INVITED + OPEN.id, secret)
    principal = authenticator.admit(claim, 0.0, wall)
    assert isinstance(principal, Principal)
    assert authenticator.renew(principal) == principal
    return principal


def denied(invitation: Invitation | None, secret: str = SECRET, wall: float = WALL) -> str:
    with pytest.raises(Denied) as caught:
        asked(invitation, secret, wall)
    return str(caught.value)


def test_whoever_knows_the_secret_may_join_and_do_nothing_else() -> None:
    principal = asked(OPEN)
    principal.check_operation("security.join")
    for operation in ("subscribe", "status", "queue.find", "begin", "session.list", "invitation.make"):
        with pytest.raises(UserError, match=r"may do nothing but security\.join"):
            principal.check_operation(operation)
    assert not principal.manages
    assert not principal.is_node


def test_a_used_invitation_still_lets_in_as_the_answer_may_be_lost() -> None:
    assert asked(replace(OPEN, state="used", key="ab" * 32)).only == "security.join"


def test_a_wrong_secret_and_an_unknown_invitation_get_the_same_reply() -> None:
    assert denied(OPEN, make_token(os.urandom)) == denied(None)
    assert "tidings security invite" in denied(None)


def test_an_expired_and_a_revoked_invitation_say_so_to_whoever_knows_the_secret() -> None:
    late = denied(OPEN, wall=OPEN.until)
    assert "'shed' has expired: 2027-01-15 09:00:00 UTC, and it is 2027-01-15 09:00:00 UTC here" in late
    assert "tidings security invite shed" in late
    assert "'shed' was revoked" in denied(replace(OPEN, state="revoked"))
    assert "expired" not in denied(OPEN, make_token(os.urandom), wall=OPEN.until)


def test_who_was_let_in_is_sent_away_when_the_invitation_ends() -> None:
    authenticator = UserAuthenticator({}, {})
    authenticator.reload({}, {}, WALL, {OPEN.id: OPEN})
    claim = LoginCredentials(PeerInfo("", "10.0.0.8"), INVITED + OPEN.id, SECRET)
    principal = authenticator.admit(claim, 0.0, WALL)
    assert isinstance(principal, Principal)
    authenticator.reload({}, {}, WALL, {OPEN.id: replace(OPEN, state="revoked")})
    assert authenticator.renew(principal) is None
    authenticator.reload({}, {}, WALL, {})
    assert authenticator.renew(principal) is None


def test_of_a_thousand_wrong_guesses_a_few_are_looked_at_and_the_right_one_still_passes() -> None:
    authenticator = UserAuthenticator({}, {})
    authenticator.reload({}, {}, WALL, {OPEN.id: OPEN})
    reasons: list[str] = []
    for _ in range(1_000):
        claim = LoginCredentials(PeerInfo("", "10.0.0.8"), INVITED + OPEN.id, make_token(os.urandom))
        with pytest.raises(Denied) as caught:
            authenticator.admit(claim, 0.0, WALL)
        reasons.append(caught.value.reason)
    assert reasons.count("invitation") == limits.FAILURES_MAX
    assert reasons.count("limit") == 1_000 - limits.FAILURES_MAX
    right = LoginCredentials(PeerInfo("", "10.0.0.8"), INVITED + OPEN.id, SECRET)
    assert isinstance(authenticator.admit(right, 0.0, WALL), Principal)


def test_a_certificate_and_an_invitation_exclude_each_other() -> None:
    authenticator = UserAuthenticator({}, {})
    authenticator.reload({}, {}, WALL, {OPEN.id: OPEN})
    claim = LoginCredentials(PeerInfo("", "10.0.0.8", "bob"), INVITED + OPEN.id, SECRET)
    with pytest.raises(Denied):
        authenticator.admit(claim, 0.0, WALL)


def test_the_contents_of_a_line_are_what_the_node_has_and_not_what_it_says() -> None:
    """A line can be altered with a right checksum: then it is just another line, with the same secret."""
    altered = read_line(str(replace(LINE, name="attic", until=LINE.until + 10**6)))
    assert msgspec.structs.asdict(altered)["name"] == "attic"
    assert "has expired" in denied(OPEN, altered.secret, wall=OPEN.until + 1)
