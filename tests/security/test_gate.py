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

from tidings.protocol.access import OWNER, Caller, Check, Claim, Denied, Permit, Rule
from tidings.security.gate import (
    BUSY,
    CHECKS_HOST_MAX,
    CHECKS_MAX,
    FAILURE_S,
    FAILURES_MAX,
    GUESSES_MAX,
    REASONS,
    WRONG,
    PasswordCheck,
    Watchman,
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


@pytest.fixture
def gate() -> Watchman:
    return Watchman(USERS, RULES)


def claim(
    user: str = "", secret: str = "", host: str | None = "10.0.0.9", certificate: str | None = None
) -> Claim:
    return Claim(Caller("peer", host, certificate), user, secret)


def enter(gate: Watchman, what: Claim, now: float = NOW) -> Permit:
    """Come in as a client does: the check is run, if there is one."""
    answer = gate.admit(what, now)
    return answer if isinstance(answer, Permit) else gate.conclude(answer, answer.run(), now)


def refusal(gate: Watchman, what: Claim, now: float = NOW) -> Denied:
    with pytest.raises(Denied) as caught:
        enter(gate, what, now)
    assert caught.value.reason in REASONS
    return caught.value


def waiting(gate: Watchman, what: Claim, now: float = NOW) -> Check:
    answer = gate.admit(what, now)
    assert isinstance(answer, PasswordCheck)
    return answer


# -- by what one comes in


def test_who_comes_by_the_nodes_own_socket_is_the_owner(gate: Watchman) -> None:
    assert gate.admit(claim("anyone", "anything", host=None), NOW) == OWNER
    assert gate.renew(OWNER) == OWNER


def test_a_password_lets_in_when_it_is_checked(gate: Watchman) -> None:
    permit = enter(gate, claim("ada", SECRET))
    assert (permit.user, permit.is_node, permit.rules) == ("ada", False, RULES["ada"])
    assert permit.credential.startswith("password:")


def test_a_token_lets_in_at_once_with_or_without_its_user(gate: Watchman) -> None:
    for user in ("", "ada"):
        permit = gate.admit(claim(user, TOKEN), NOW)
        assert isinstance(permit, Permit)
        assert permit.user == "ada"
        assert permit.credential.startswith("token:laptop:")


def test_a_certificate_lets_in_at_once_with_or_without_its_user(gate: Watchman) -> None:
    for user in ("", "bob"):
        assert gate.admit(claim(user, certificate="bob"), NOW) == Permit("bob", "certificate", False, ())


def test_a_node_may_hand_on_what_others_have_said_and_no_one_else_may(gate: Watchman) -> None:
    permit = gate.admit(claim(certificate="attic"), NOW)
    assert permit == Permit("attic", "certificate", True, RULES["attic"])


def test_a_node_that_comes_by_another_way_is_no_node() -> None:
    users = {"attic": replace(USERS["attic"], password=cheap())}
    assert not enter(Watchman(users, {}), claim("attic", SECRET)).is_node


def test_who_has_no_rules_comes_in_and_may_do_nothing(gate: Watchman) -> None:
    assert enter(gate, claim("bob", "another password")).rules == ()


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
    gate: Watchman, what: Claim, reason: str
) -> None:
    denied = refusal(gate, what)
    assert (denied.reason, str(denied)) == (reason, WRONG)


def test_who_says_nothing_of_itself_is_told_what_is_wanted(gate: Watchman) -> None:
    for what in (claim(), claim("ada"), claim(secret="a password")):
        denied = refusal(gate, what)
        assert denied.reason == "none"
        assert "a user and password, or a token" in str(denied)


def test_a_certificate_that_does_not_let_in_is_named(gate: Watchman) -> None:
    for name in ("ada", "carol", "zoe"):
        denied = refusal(gate, claim(certificate=name))
        assert denied.reason == "certificate"
        assert f"{name!r}, who is not let in here by one" in str(denied)


def test_a_certificate_that_does_not_let_in_by_itself_goes_with_a_secret_of_the_same_user(
    gate: Watchman,
) -> None:
    assert enter(gate, claim(secret=TOKEN, certificate="ada")).user == "ada"
    assert enter(gate, claim(secret=SECRET, certificate="ada")).user == "ada"


def test_a_certificate_and_a_token_of_the_same_user_agree() -> None:
    users = {"ada": replace(USERS["ada"], has_certificate=True)}
    assert enter(Watchman(users, {}), claim("ada", TOKEN, certificate="ada")).credential == "certificate"


def test_a_token_ends_with_its_last_day(gate: Watchman) -> None:
    tomorrow = NOW + 86_400
    assert enter(gate, claim(secret=TOKEN), NOW).user == "ada"
    assert refusal(gate, claim(secret=TOKEN), tomorrow).reason == "expired"


def test_an_unknown_user_costs_the_same_work_as_a_known_one(gate: Watchman) -> None:
    known, unknown = (waiting(gate, claim(user, "wrong password")) for user in ("ada", "nobody"))
    costs = [check.attempt._password.cost for check in (known, unknown)]  # type: ignore[attr-defined]
    assert costs == [CHEAP, CHEAP]
    assert not unknown.run()


@given(NAMES, NAMES)
def test_a_name_is_that_name_and_no_pattern(name: str, other: str) -> None:
    gate = Watchman({name: User(name, cheap(), has_certificate=True)}, {name: (Rule("get"),)})
    assert enter(gate, claim(certificate=name)).user == name
    if other != name:
        assert refusal(gate, claim(certificate=other)).reason == "certificate"
        assert refusal(gate, claim(other, SECRET)).reason == "user"


# -- how often


def test_a_thousand_failing_logins_in_a_second_are_checked_a_few_times(gate: Watchman) -> None:
    denials = [
        refusal(gate, claim("ada", f"guess {number}"), NOW + number / 1_000) for number in range(1_000)
    ]
    counted = Counter(denied.reason for denied in denials)
    assert counted == {"password": FAILURES_MAX, "limit": 1_000 - FAILURES_MAX}
    assert str(denials[-1]) == "too many failed attempts from your address: wait 2 s"


def test_attempts_that_are_all_begun_before_one_is_done_are_no_more(gate: Watchman) -> None:
    checks = [waiting(gate, claim("ada", f"guess {number}")) for number in range(FAILURES_MAX)]
    for number in range(1_000):
        denied = refusal(gate, claim("ada", f"another {number}"))
        assert (denied.reason, str(denied)) == ("busy", BUSY)
    assert len(checks) == FAILURES_MAX


def test_who_goes_away_before_the_answer_has_failed_all_the_same(gate: Watchman) -> None:
    for number in range(FAILURES_MAX):
        waiting(gate, claim("ada", f"guess {number}"))
    assert refusal(gate, claim("ada", "one more")).reason == "limit"


def test_beyond_the_limit_the_right_password_is_not_looked_at_until_the_time_is_over(gate: Watchman) -> None:
    for number in range(FAILURES_MAX):
        refusal(gate, claim("ada", f"guess {number}"))
    assert str(refusal(gate, claim("ada", SECRET))) == "too many failed attempts from your address: wait 2 s"
    assert enter(gate, claim("ada", SECRET, host="10.0.0.10")).user == "ada"
    assert enter(gate, claim("ada", SECRET), NOW + FAILURE_S).user == "ada"


def test_beyond_the_limit_tokens_and_certificates_still_let_in(gate: Watchman) -> None:
    for _ in range(FAILURES_MAX):
        refusal(gate, claim(secret=make_token(os.urandom)))
    assert refusal(gate, claim(secret=make_token(os.urandom))).reason == "limit"
    assert enter(gate, claim(secret=TOKEN)).user == "ada"
    assert enter(gate, claim(certificate="bob")).user == "bob"


def test_a_password_that_has_passed_is_not_checked_again_for_that_host(gate: Watchman) -> None:
    first = enter(gate, claim("ada", SECRET))
    for number in range(FAILURES_MAX):
        refusal(gate, claim("bob", f"guess {number}"))
    assert gate.admit(claim("ada", SECRET), NOW) == first
    assert isinstance(gate.admit(claim("ada", SECRET, host="10.0.0.10"), NOW), PasswordCheck)


def test_guessing_against_what_is_remembered_has_a_limit(gate: Watchman) -> None:
    enter(gate, claim("ada", SECRET))
    for number in range(GUESSES_MAX):
        assert isinstance(gate.admit(claim("ada", SECRET), NOW), Permit)
        refusal(gate, claim("ada", f"guess {number}"))
    assert refusal(gate, claim("ada", SECRET)).reason == "limit"


def test_passing_does_not_count_as_failing(gate: Watchman) -> None:
    for _ in range(100):
        gate.reload(USERS, RULES)
        assert enter(gate, claim("ada", SECRET)).user == "ada"


def test_who_tries_the_same_at_the_same_time_shares_one_check(gate: Watchman) -> None:
    checks = [waiting(gate, claim("ada", SECRET)) for _ in range(CHECKS_HOST_MAX)]
    assert refusal(gate, claim("ada", SECRET)).reason == "busy"
    assert enter(gate, claim("ada", SECRET, host="10.0.0.10")).user == "ada"
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda check: check.run(), checks))
    assert all(outcomes)
    assert len({check.attempt for check in checks}) == 1  # type: ignore[attr-defined]
    for check in checks:
        assert gate.conclude(check, True, NOW).user == "ada"
    for _ in range(FAILURES_MAX):
        assert refusal(gate, claim("ada", "wrong password")).reason == "password"


def test_so_many_checks_are_under_way_and_no_more(gate: Watchman) -> None:
    checks = [waiting(gate, claim("ada", SECRET, host=f"10.0.1.{number}")) for number in range(CHECKS_MAX)]
    denied = refusal(gate, claim("ada", SECRET))
    assert (denied.reason, str(denied)) == ("busy", BUSY)
    assert enter(gate, claim(secret=TOKEN)).user == "ada"
    gate.conclude(checks.pop(), True, NOW)
    assert isinstance(gate.admit(claim("ada", SECRET), NOW), PasswordCheck)


def test_a_check_that_nobody_waits_for_any_more_is_not_under_way(gate: Watchman) -> None:
    for number in range(3 * CHECKS_MAX):
        waiting(gate, claim("ada", SECRET, host=f"10.0.1.{number}"))
    assert len(gate._under_way) <= 1


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2)), max_size=60))
def test_a_host_never_gets_more_checks_that_fail_than_the_bucket_allows(
    steps: list[tuple[float, int]],
) -> None:
    gate, now, run, begun = Watchman(USERS, RULES), NOW, 0, []
    for number, (step, kind) in enumerate(steps):
        now += step
        try:
            check = gate.admit(claim("ada", f"guess {number}"), now)
        except Denied:
            continue
        run += 1
        assert isinstance(check, PasswordCheck)
        if kind == 0:
            begun.append(check)  # its outcome comes late
        elif kind == 1:
            with pytest.raises(Denied):
                gate.conclude(check, False, now)
    assert run <= FAILURES_MAX + (now - NOW) / FAILURE_S + 1e-3


# -- when users and rules change


def test_a_permit_is_renewed_with_the_rules_that_hold_now(gate: Watchman) -> None:
    permits = [
        enter(gate, one) for one in (claim("ada", SECRET), claim(secret=TOKEN), claim(certificate="bob"))
    ]
    assert [gate.renew(permit) for permit in permits] == permits
    gate.reload(USERS, {"ada": (Rule("get"),)}, NOW)
    assert [gate.renew(permit) for permit in permits] == [
        replace(permits[0], rules=(Rule("get"),)),
        replace(permits[1], rules=(Rule("get"),)),
        permits[2],
    ]


def test_a_credential_that_is_gone_is_not_renewed(gate: Watchman) -> None:
    password, token, certificate = (
        enter(gate, one) for one in (claim("ada", SECRET), claim(secret=TOKEN), claim(certificate="bob"))
    )
    gate.reload({**USERS, "ada": replace(USERS["ada"], tokens=())}, RULES, NOW)
    assert (gate.renew(token), gate.renew(password)) == (None, password)
    gate.reload({**USERS, "ada": replace(USERS["ada"], password=cheap())}, RULES, NOW)
    assert (gate.renew(token), gate.renew(password)) == (token, None)
    gate.reload({"ada": replace(USERS["ada"], is_locked=True)}, RULES, NOW)
    assert [gate.renew(one) for one in (password, token, certificate)] == [None] * 3


def test_a_clock_that_was_wrong_for_a_while_does_no_lasting_harm(gate: Watchman) -> None:
    permit = enter(gate, claim(secret=TOKEN))
    gate.reload(USERS, RULES, NOW + 1e9)
    assert gate.renew(permit) is None
    gate.reload(USERS, RULES, NOW)
    assert gate.renew(permit) == permit


def test_an_expired_token_is_not_renewed(gate: Watchman) -> None:
    permit = enter(gate, claim(secret=TOKEN))
    gate.reload(USERS, RULES, NOW + 86_400)
    assert gate.renew(permit) is None


def test_a_user_who_becomes_a_node_has_another_permit(gate: Watchman) -> None:
    permit = enter(gate, claim(certificate="bob"))
    gate.reload({"bob": replace(USERS["bob"], is_node=True)}, RULES, NOW)
    assert gate.renew(permit) == replace(permit, is_node=True)


def test_a_changed_password_is_not_remembered(gate: Watchman) -> None:
    enter(gate, claim("ada", SECRET))
    gate.reload({"ada": User("ada", cheap("a new password"))}, RULES, NOW)
    assert refusal(gate, claim("ada", SECRET)).reason == "password"
    assert enter(gate, claim("ada", "a new password")).user == "ada"


def test_a_password_that_is_changed_while_the_old_one_is_checked_does_not_let_in(gate: Watchman) -> None:
    check = waiting(gate, claim("ada", SECRET))
    gate.reload({"ada": User("ada", cheap("a new password"))}, RULES, NOW)
    with pytest.raises(Denied, match=WRONG):
        gate.conclude(check, check.run(), NOW)
    assert refusal(gate, claim("ada", SECRET)).reason == "password"


# -- two clocks


@pytest.mark.parametrize("jump_s", [-3_600.0, 0.0, 365 * 86_400.0])
def test_attempts_are_counted_by_the_clock_that_never_jumps(gate: Watchman, jump_s: float) -> None:
    for number in range(FAILURES_MAX):
        gate.admit(claim("ada", f"guess {number}"), NOW, NOW)
    with pytest.raises(Denied):
        gate.admit(claim("ada", "another"), NOW, NOW + jump_s)
    assert isinstance(gate.admit(claim("ada", "one more"), NOW + FAILURE_S, NOW + jump_s), PasswordCheck)


def test_tokens_end_by_the_wall_clock(gate: Watchman) -> None:
    day_s = 86_400.0
    assert isinstance(gate.admit(claim("ada", TOKEN), 0.0, NOW), Permit)
    with pytest.raises(Denied):
        gate.admit(claim("ada", TOKEN), 0.0, NOW + 10_000 * day_s)
