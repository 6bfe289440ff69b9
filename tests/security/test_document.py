"""What `docs/security.md` says is so."""

from __future__ import annotations

import re
from pathlib import Path

from security.places import SECRET

from tidings.protocol import answers
from tidings.protocol.access import ACTIONS
from tidings.security import (
    authenticator,
    certificates,
    directory,
    invitations,
    inviting,
    joining,
    passwords,
    rules,
    users,
)

TEXT = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def test_the_limits_are_those_in_force() -> None:
    said = dict(re.findall(r"^\| `(\w+\.[A-Z_]+)` \| ([^|]+) \|", TEXT, re.MULTILINE))
    assert said == {
        "authenticator.FAILURES_MAX": f"{authenticator.FAILURES_MAX}",
        "authenticator.FAILURE_S": f"{authenticator.FAILURE_S:g} s",
        "authenticator.HOSTS_MAX": f"{authenticator.HOSTS_MAX:,}",
        "authenticator.CHECKS_MAX": f"{authenticator.CHECKS_MAX}",
        "authenticator.CHECKS_HOST_MAX": f"{authenticator.CHECKS_HOST_MAX}",
        "authenticator.KNOWN_MAX": f"{authenticator.KNOWN_MAX:,}",
        "authenticator.GUESSES_MAX": f"{authenticator.GUESSES_MAX}",
        "invitations.FOR_S": f"{invitations.FOR_S / 3_600:g} h",
        "invitations.FOR_S_MAX": f"{invitations.FOR_S_MAX / 86_400:g} days",
        "invitations.OPEN_MAX": f"{invitations.OPEN_MAX}",
        "inviting.JOINS_MAX": f"{inviting.JOINS_MAX}",
        "joining.CLOCK_S_MAX": f"{joining.CLOCK_S_MAX / 86_400:g} day",
        "passwords.PASSWORD_LENGTH_MIN": f"{passwords.PASSWORD_LENGTH_MIN} characters",
        "passwords.PASSWORD_LENGTH_MAX": f"{passwords.PASSWORD_LENGTH_MAX:,} characters",
        "passwords.MEMORY_MAX": f"{passwords.MEMORY_MAX >> 20} MiB",
        "users.NAME_LENGTH_MAX": f"{users.NAME_LENGTH_MAX} characters",
        "certificates.NAME_LENGTH_MAX": f"{certificates.NAME_LENGTH_MAX} characters",
        "users.LINES_MAX": f"{users.LINES_MAX:,}",
        "rules.RULES_MAX": f"{rules.RULES_MAX:,}",
        "answers.REQUESTS_USER_MAX": f"{answers.REQUESTS_USER_MAX:,}",
        "answers.REQUESTS_NODE_MAX": f"{answers.REQUESTS_NODE_MAX:,}",
        "answers.ANSWER_S_MAX": f"{answers.ANSWER_S_MAX / 86_400:g} day",
        "directory.FILE_SIZE_MAX": f"{directory.FILE_SIZE_MAX >> 20} MiB",
    }


def test_the_rules_that_are_shown_can_be_read() -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    read = rules.read_rules(shown, "access.toml", ["admin", "device"])
    assert {rule.action for rule in read["admin"]} == set(ACTIONS)
    assert [rule.queue for rule in read["device"] if rule.action == "put"] == ["jobs", "out-*"]


def test_the_users_that_are_shown_can_be_read_when_their_secrets_are_filled_in() -> None:
    (shown,) = re.findall(r"^```\n(ada .*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    kept = passwords.make_password(SECRET, lambda size: bytes(size))
    filled = shown.replace("scrypt:16384:8:1:SALT:HASH", str(kept)).replace("HEX", "ab" * 32)
    assert list(users.read_users(filled, "users")) == ["ada", "bob", "attic", "carol"]


def test_keys_and_actions_are_those_there_are() -> None:
    tables = re.findall(r"^\| `(\w+)` \| .* \|$", TEXT, re.MULTILINE)
    assert tables[: len(rules.KEYS)] == list(rules.KEYS)
    assert tables[len(rules.KEYS) : len(rules.KEYS) + len(ACTIONS)] == list(ACTIONS)
