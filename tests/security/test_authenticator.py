"""Who is let in, in virtual time: no test here waits, opens a file or asks a clock."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from security.places import CHEAP, SECRET, cheap
from security.test_users import NAMES

from tidings.protocol.access import OWNER, Check, Denied, LoginCredentials, PeerInfo, Principal, Rule
from tidings.security.authenticator import (
    BUSY,
    CHECKS_HOST_MAX,
    CHECKS_MAX,
    FAILURE_S,
    FAILURES_MAX,
    GUESSES_MAX,
    WRONG,
    PasswordCheck,
    UserAuthenticator,
)
from tidings.security.passwords import Token, hash_token, make_token
from tidings.security.users import User

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()
TOKEN, EXPIRED, LOCKED = (make_token(os.urandom) for _ in range(3))
USERS = {
    "ada": User("ada", cheap(), (Token("laptop", hash_token(TOKEN), date(2026, 11, 15)),)),
    "bob": User("bob", cheap("another password"), has_certificate=True),
    "attic": User("attic", has_certificate=True, is_node=True),
    "eve": User("eve", cheap(), (Token("old", hash_token(EXPIRED), date(2026, 11, 14)),)),
    "carol": User("carol", cheap(), (Token("a", hash_token(LOCKED)),), has_certificate=True, is_locked=True),
}
RULES = {"ada": (Rule("publish"),), "attic": (Rule("put"),)}

REASONS = ("none", "user", "password", "token", "expired", "certificate", "proofs", "limit", "busy")


@pytest.fixture
def authenticator() -> UserAuthenticator:
    return UserAuthenticator(USERS, RULES)


def claim(
    user: str = "", secret: str = "", host: str | None = "10.0.0.9", certificate: str | None = None
) -> LoginCredentials:
    return LoginCredentials(PeerInfo("peer", host, certificate), user, secret)


def enter(authenticator: UserAuthenticator, what: LoginCredentials, now: float = NOW) -> Principal:
    """Come in as a client does: the check is run, if there is one."""
    answer = authenticator.admit(what, now)
    return answer if isinstance(answer, Principal) else authenticator.conclude(answer, answer.run(), now)


def refusal(authenticator: UserAuthenticator, what: LoginCredentials, now: float = NOW) -> Denied:
    with pytest.raises(Denied) as caught:
        enter(authenticator, what, now)
    assert caught.value.reason in REASONS
    return caught.value


def waiting(authenticator: UserAuthenticator, what: LoginCredentials, now: float = NOW) -> Check:
    answer = authenticator.admit(what, now)
    assert isinstance(answer, PasswordCheck)
    return answer


# -- by what one comes in


def test_who_comes_by_the_nodes_own_socket_is_the_owner(authenticator: UserAuthenticator) -> None:
    assert authenticator.admit(claim("anyone", "anything", host=None), NOW) == OWNER
    assert authenticator.renew(OWNER) == OWNER


def test_a_password_lets_in_when_it_is_checked(authenticator: UserAuthenticator) -> None:
    principal = enter(authenticator, claim("ada", SECRET))
    assert (principal.user, principal.is_node, principal.rules) == ("ada", False, RULES["ada"])
    assert principal.credential.startswith("password:")


def test_a_token_lets_in_at_once_with_or_without_its_user(authenticator: UserAuthenticator) -> None:
    for user in ("", "ada"):
        principal = authenticator.admit(claim(user, TOKEN), NOW)
        assert isinstance(principal, Principal)
        assert principal.user == "ada"
        assert principal.credential.startswith("token:laptop:")


def test_a_certificate_lets_in_at_once_with_or_without_its_user(authenticator: UserAuthenticator) -> None:
    for user in ("", "bob"):
        assert authenticator.admit(claim(user, certificate="bob"), NOW) == Principal(
            "bob", "certificate", False, ()
        )


def test_a_node_may_hand_on_what_others_have_said_and_no_one_else_may(
    authenticator: UserAuthenticator,
) -> None:
    principal = authenticator.admit(claim(certificate="attic"), NOW)
    assert principal == Principal("attic", "certificate", True, RULES["attic"])


def test_a_node_that_comes_by_another_way_is_no_node() -> None:
    users = {"attic": replace(USERS["attic"], password=cheap())}
    assert not enter(UserAuthenticator(users, {}), claim("attic", SECRET)).is_node


def test_who_has_no_rules_comes_in_and_may_do_nothing(authenticator: UserAuthenticator) -> None:
    assert enter(authenticator, claim("bob", "another password")).rules == ()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (claim("ada", "wrong password"), "password"),
        (claim("nobody", SECRET), "user"),
        (claim("attic", SECRET), "password"),
        (claim("carol", SECRET), "password"),
        (claim(secret=make_token(os.urandom)), "token"),
        (claim("bob", TOKEN), "token"),
        (claim(secret=EXPIRED), "expired"),
        (claim(secret=LOCKED), "token"),
        (claim("bob", TOKEN, certificate="bob"), "proofs"),
        (claim("bob", make_token(os.urandom), certificate="bob"), "proofs"),
        (claim("ada", SECRET, certificate="bob"), "proofs"),
        (claim("ada", certificate="bob"), "proofs"),
        (claim("", TOKEN, certificate="zoe"), "token"),
    ],
)
def test_who_is_not_let_in_is_told_the_same_whatever_is_wrong(
    authenticator: UserAuthenticator, what: LoginCredentials, reason: str
) -> None:
    denied = refusal(authenticator, what)
    assert (denied.reason, str(denied)) == (reason, WRONG)


def test_who_says_nothing_of_itself_is_told_what_is_wanted(authenticator: UserAuthenticator) -> None:
    wanted = "a user and password, or a token"
    asked = [
        (claim(), wanted),
        (claim("ada"), wanted),
        (claim(secret="a password"), "no token; give its user"),
    ]
    for what, hint in asked:
        denied = refusal(authenticator, what)
        assert denied.reason == "none"
        assert hint in str(denied)


def test_a_certificate_that_does_not_let_in_is_named(authenticator: UserAuthenticator) -> None:
    for name in ("ada", "carol", "zoe"):
        denied = refusal(authenticator, claim(certificate=name))
        assert denied.reason == "certificate"
        assert f"{name!r}, who may not log in here by one" in str(denied)


def test_a_certificate_that_does_not_let_in_by_itself_goes_with_a_secret_of_the_same_user(
    authenticator: UserAuthenticator,
) -> None:
    assert enter(authenticator, claim(secret=TOKEN, certificate="ada")).user == "ada"
    assert enter(authenticator, claim(secret=SECRET, certificate="ada")).user == "ada"


def test_a_certificate_and_a_token_of_the_same_user_agree() -> None:
    users = {"ada": replace(USERS["ada"], has_certificate=True)}
    assert (
        enter(UserAuthenticator(users, {}), claim("ada", TOKEN, certificate="ada")).credential
        == "certificate"
    )


def test_a_token_ends_with_its_last_day(authenticator: UserAuthenticator) -> None:
    tomorrow = NOW + 86_400
    assert enter(authenticator, claim(secret=TOKEN), NOW).user == "ada"
    assert refusal(authenticator, claim(secret=TOKEN), tomorrow).reason == "expired"


def test_an_unknown_user_costs_the_same_work_as_a_known_one(authenticator: UserAuthenticator) -> None:
    known, unknown = (waiting(authenticator, claim(user, "wrong password")) for user in ("ada", "nobody"))
    costs = [check.attempt._password.cost for check in (known, unknown)]  # type: ignore[attr-defined]
    assert costs == [CHEAP, CHEAP]
    assert not unknown.run()


@given(NAMES, NAMES)
def test_a_name_is_that_name_and_no_pattern(name: str, other: str) -> None:
    authenticator = UserAuthenticator(
        {name: User(name, cheap(), has_certificate=True)}, {name: (Rule("get"),)}
    )
    assert enter(authenticator, claim(certificate=name)).user == name
    if other != name:
        assert refusal(authenticator, claim(certificate=other)).reason == "certificate"
        assert refusal(authenticator, claim(other, SECRET)).reason == "user"


# -- how often


def test_a_thousand_failing_logins_in_a_second_are_checked_a_few_times(
    authenticator: UserAuthenticator,
) -> None:
    denials = [
        refusal(authenticator, claim("ada", f"guess {number}"), NOW + number / 1_000)
        for number in range(1_000)
    ]
    counted = Counter(denied.reason for denied in denials)
    assert counted == {"password": FAILURES_MAX, "limit": 1_000 - FAILURES_MAX}
    assert str(denials[-1]) == "too many failed attempts from your address: wait 2 s"


def test_attempts_that_are_all_begun_before_one_is_done_are_no_more(authenticator: UserAuthenticator) -> None:
    checks = [waiting(authenticator, claim("ada", f"guess {number}")) for number in range(FAILURES_MAX)]
    for number in range(1_000):
        denied = refusal(authenticator, claim("ada", f"another {number}"))
        assert (denied.reason, str(denied)) == ("busy", BUSY)
    assert len(checks) == FAILURES_MAX


def test_who_goes_away_before_the_answer_has_failed_all_the_same(authenticator: UserAuthenticator) -> None:
    for number in range(FAILURES_MAX):
        waiting(authenticator, claim("ada", f"guess {number}"))
    assert refusal(authenticator, claim("ada", "one more")).reason == "limit"


def test_beyond_the_limit_the_right_password_is_not_looked_at_until_the_time_is_over(
    authenticator: UserAuthenticator,
) -> None:
    for number in range(FAILURES_MAX):
        refusal(authenticator, claim("ada", f"guess {number}"))
    assert (
        str(refusal(authenticator, claim("ada", SECRET)))
        == "too many failed attempts from your address: wait 2 s"
    )
    assert enter(authenticator, claim("ada", SECRET, host="10.0.0.10")).user == "ada"
    assert enter(authenticator, claim("ada", SECRET), NOW + FAILURE_S).user == "ada"


def test_beyond_the_limit_tokens_and_certificates_still_let_in(authenticator: UserAuthenticator) -> None:
    for _ in range(FAILURES_MAX):
        refusal(authenticator, claim(secret=make_token(os.urandom)))
    assert refusal(authenticator, claim(secret=make_token(os.urandom))).reason == "limit"
    assert enter(authenticator, claim(secret=TOKEN)).user == "ada"
    assert enter(authenticator, claim(certificate="bob")).user == "bob"


def test_a_password_that_has_passed_is_not_checked_again_for_that_host(
    authenticator: UserAuthenticator,
) -> None:
    first = enter(authenticator, claim("ada", SECRET))
    for number in range(FAILURES_MAX):
        refusal(authenticator, claim("bob", f"guess {number}"))
    assert authenticator.admit(claim("ada", SECRET), NOW) == first
    assert isinstance(authenticator.admit(claim("ada", SECRET, host="10.0.0.10"), NOW), PasswordCheck)


def test_guessing_against_what_is_remembered_has_a_limit(authenticator: UserAuthenticator) -> None:
    enter(authenticator, claim("ada", SECRET))
    for number in range(GUESSES_MAX):
        assert isinstance(authenticator.admit(claim("ada", SECRET), NOW), Principal)
        refusal(authenticator, claim("ada", f"guess {number}"))
    assert refusal(authenticator, claim("ada", SECRET)).reason == "limit"


def test_passing_does_not_count_as_failing(authenticator: UserAuthenticator) -> None:
    for _ in range(100):
        authenticator.reload(USERS, RULES)
        assert enter(authenticator, claim("ada", SECRET)).user == "ada"


def test_who_tries_the_same_at_the_same_time_shares_one_check(authenticator: UserAuthenticator) -> None:
    checks = [waiting(authenticator, claim("ada", SECRET)) for _ in range(CHECKS_HOST_MAX)]
    assert refusal(authenticator, claim("ada", SECRET)).reason == "busy"
    assert enter(authenticator, claim("ada", SECRET, host="10.0.0.10")).user == "ada"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda check: check.run(), checks))
    assert all(outcomes)
    assert len({check.attempt for check in checks}) == 1  # type: ignore[attr-defined]
    for check in checks:
        assert authenticator.conclude(check, True, NOW).user == "ada"
    for _ in range(FAILURES_MAX):
        assert refusal(authenticator, claim("ada", "wrong password")).reason == "password"


def test_so_many_checks_are_under_way_and_no_more(authenticator: UserAuthenticator) -> None:
    checks = [
        waiting(authenticator, claim("ada", SECRET, host=f"10.0.1.{number}")) for number in range(CHECKS_MAX)
    ]
    denied = refusal(authenticator, claim("ada", SECRET))
    assert (denied.reason, str(denied)) == ("busy", BUSY)
    assert enter(authenticator, claim(secret=TOKEN)).user == "ada"
    authenticator.conclude(checks.pop(), True, NOW)
    assert isinstance(authenticator.admit(claim("ada", SECRET), NOW), PasswordCheck)


def test_a_check_that_nobody_waits_for_any_more_is_not_under_way(authenticator: UserAuthenticator) -> None:
    for number in range(3 * CHECKS_MAX):
        waiting(authenticator, claim("ada", SECRET, host=f"10.0.1.{number}"))
    assert len(authenticator._under_way) <= 1


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2)), max_size=60))
def test_a_host_never_gets_more_checks_that_fail_than_the_bucket_allows(
    steps: list[tuple[float, int]],
) -> None:
    authenticator, now, run, begun = UserAuthenticator(USERS, RULES), NOW, 0, []
    for number, (step, kind) in enumerate(steps):
        now += step
        try:
            check = authenticator.admit(claim("ada", f"guess {number}"), now)
        except Denied:
            continue
        run += 1
        assert isinstance(check, PasswordCheck)
        if kind == 0:
            begun.append(check)  # its outcome comes late
        elif kind == 1:
            with pytest.raises(Denied):
                authenticator.conclude(check, False, now)
    assert run <= FAILURES_MAX + (now - NOW) / FAILURE_S + 1e-3


# -- when users and rules change


def test_a_permit_is_renewed_with_the_rules_that_hold_now(authenticator: UserAuthenticator) -> None:
    principals = [
        enter(authenticator, one)
        for one in (claim("ada", SECRET), claim(secret=TOKEN), claim(certificate="bob"))
    ]
    assert [authenticator.renew(principal) for principal in principals] == principals
    authenticator.reload(USERS, {"ada": (Rule("get"),)}, NOW)
    assert [authenticator.renew(principal) for principal in principals] == [
        replace(principals[0], rules=(Rule("get"),)),
        replace(principals[1], rules=(Rule("get"),)),
        principals[2],
    ]


def test_a_credential_that_is_gone_is_not_renewed(authenticator: UserAuthenticator) -> None:
    password, token, certificate = (
        enter(authenticator, one)
        for one in (claim("ada", SECRET), claim(secret=TOKEN), claim(certificate="bob"))
    )
    authenticator.reload({**USERS, "ada": replace(USERS["ada"], tokens=())}, RULES, NOW)
    assert (authenticator.renew(token), authenticator.renew(password)) == (None, password)
    authenticator.reload({**USERS, "ada": replace(USERS["ada"], password=cheap())}, RULES, NOW)
    assert (authenticator.renew(token), authenticator.renew(password)) == (token, None)
    authenticator.reload({"ada": replace(USERS["ada"], is_locked=True)}, RULES, NOW)
    assert [authenticator.renew(one) for one in (password, token, certificate)] == [None] * 3


def test_a_clock_that_was_wrong_for_a_while_does_no_lasting_harm(authenticator: UserAuthenticator) -> None:
    principal = enter(authenticator, claim(secret=TOKEN))
    authenticator.reload(USERS, RULES, NOW + 1e9)
    assert authenticator.renew(principal) is None
    authenticator.reload(USERS, RULES, NOW)
    assert authenticator.renew(principal) == principal


def test_an_expired_token_is_not_renewed(authenticator: UserAuthenticator) -> None:
    principal = enter(authenticator, claim(secret=TOKEN))
    authenticator.reload(USERS, RULES, NOW + 86_400)
    assert authenticator.renew(principal) is None


def test_a_user_who_becomes_a_node_has_another_permit(authenticator: UserAuthenticator) -> None:
    principal = enter(authenticator, claim(certificate="bob"))
    authenticator.reload({"bob": replace(USERS["bob"], is_node=True)}, RULES, NOW)
    assert authenticator.renew(principal) == replace(principal, is_node=True)


def test_a_changed_password_is_not_remembered(authenticator: UserAuthenticator) -> None:
    enter(authenticator, claim("ada", SECRET))
    authenticator.reload({"ada": User("ada", cheap("a new password"))}, RULES, NOW)
    assert refusal(authenticator, claim("ada", SECRET)).reason == "password"
    assert enter(authenticator, claim("ada", "a new password")).user == "ada"


def test_a_password_that_is_changed_while_the_old_one_is_checked_does_not_let_in(
    authenticator: UserAuthenticator,
) -> None:
    check = waiting(authenticator, claim("ada", SECRET))
    authenticator.reload({"ada": User("ada", cheap("a new password"))}, RULES, NOW)
    with pytest.raises(Denied, match=WRONG):
        authenticator.conclude(check, check.run(), NOW)
    assert refusal(authenticator, claim("ada", SECRET)).reason == "password"


# -- two clocks


@pytest.mark.parametrize("jump_s", [-3_600.0, 0.0, 365 * 86_400.0])
def test_attempts_are_counted_by_the_clock_that_never_jumps(
    authenticator: UserAuthenticator, jump_s: float
) -> None:
    for number in range(FAILURES_MAX):
        authenticator.admit(claim("ada", f"guess {number}"), NOW, NOW)
    with pytest.raises(Denied):
        authenticator.admit(claim("ada", "another"), NOW, NOW + jump_s)
    assert isinstance(
        authenticator.admit(claim("ada", "one more"), NOW + FAILURE_S, NOW + jump_s), PasswordCheck
    )


def test_tokens_end_by_the_wall_clock(authenticator: UserAuthenticator) -> None:
    day_s = 86_400.0
    assert isinstance(authenticator.admit(claim("ada", TOKEN), 0.0, NOW), Principal)
    with pytest.raises(Denied):
        authenticator.admit(claim("ada", TOKEN), 0.0, NOW + 10_000 * day_s)
