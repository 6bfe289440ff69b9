from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from datetime import date
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from security.places import cheap, made
from security.test_users import CREDENTIALS, NAMES, PASSWORDS, TOKENS

from tidings.errors import ConfigError, UserError
from tidings.security.directory import alone, edited, write_file, write_new
from tidings.security.passwords import Password, Token
from tidings.security.users import Credential, UserLines, line_of, read_users

HEX, OTHER = "ab" * 32, "cd" * 32
TEXT = f"""# Who there is

ada token laptop sha256:{HEX}   # her own
bob certificate
ada token phone sha256:{OTHER} until:2027-01-31
# the end
"""


def lines_of(text: str = TEXT) -> UserLines:
    return UserLines(text, "users")


def test_a_new_user_stands_at_the_end() -> None:
    lines = lines_of()
    lines.add("eve", "certificate")
    assert lines.text == f"{TEXT}eve certificate\n"


def test_what_a_user_gets_stands_below_what_the_user_has() -> None:
    lines = lines_of()
    lines.add_token("bob", Token("a", "ef" * 32, date(2027, 1, 31)))
    assert lines.text.splitlines()[3:5] == [
        "bob certificate",
        f"bob token a sha256:{'ef' * 32} until:2027-01-31",
    ]


def test_another_password_takes_the_place_of_the_old_one_and_keeps_its_comment() -> None:
    lines = lines_of(f"{TEXT}eve password {cheap()} # since May\nzoe node\n")
    new = cheap("another")
    lines.set_password("eve", new)
    assert lines.text == f"{TEXT}eve password {new}  # since May\nzoe node\n"


def test_a_revoked_token_goes_and_all_else_stays() -> None:
    lines = lines_of()
    assert not lines.revoke("ada", "laptop")
    assert lines.text == TEXT.replace(f"ada token laptop sha256:{HEX}   # her own\n", "")


def test_the_last_token_that_is_revoked_leaves_the_user_locked() -> None:
    lines = lines_of()
    lines.revoke("ada", "laptop")
    assert lines.revoke("ada", "phone")
    assert lines.text == "# Who there is\n\nbob certificate\nada locked\n# the end\n"


def test_a_user_who_was_left_locked_is_not_when_something_comes() -> None:
    for change in (
        lambda lines: lines.set_password("ada", cheap()),
        lambda lines: lines.add_token("ada", Token("new", "ef" * 32)),
        lambda lines: lines.mark("ada"),
    ):
        lines = lines_of("ada locked\n")
        change(lines)
        assert not lines.users["ada"].is_locked


def test_a_user_who_was_locked_by_hand_stays_so() -> None:
    lines = lines_of(f"{TEXT}ada locked\n")
    lines.set_password("ada", cheap())
    assert lines.users["ada"].is_locked


def test_a_user_who_is_removed_goes_or_stays_locked() -> None:
    lines = lines_of()
    lines.remove("ada", stays=False)
    assert lines.text == "# Who there is\n\nbob certificate\n# the end\n"
    lines = lines_of()
    lines.remove("ada", stays=True)
    assert lines.text == "# Who there is\n\nada locked  # her own\nbob certificate\n# the end\n"


def test_a_certificate_is_let_in_once() -> None:
    lines = lines_of()
    assert [lines.mark("bob"), lines.mark("ada"), lines.mark("ada")] == [False, True, False]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines.add("ada", "node"), "there is a user 'ada' already"),
        (lambda lines: lines.add("a b", "node"), "a user's name has no blanks"),
        (lambda lines: lines.add("", "node"), "a user's name has 1 to 100 characters"),
        (lambda lines: lines.set_password("adda", cheap()), "there is no user 'adda'; did you mean 'ada'?"),
        (
            lambda lines: lines.revoke("ada", "lapto"),
            "no token 'lapto'; there are laptop, phone; did you mean",
        ),
        (lambda lines: lines.revoke("bob", "laptop"), "'bob' has no token 'laptop', nor any other"),
        (lambda lines: lines.add_token("ada", Token("phone", HEX)), "'ada' has a token 'phone' already"),
        (lambda lines: lines.add_token("ada", Token("a b", HEX)), "a token's label has no blanks"),
        (lambda lines: lines.remove("zoe", stays=False), "there is no user 'zoe'"),
    ],
)
def test_a_change_that_can_not_be_made_is_told_and_nothing_changes(change: object, problem: str) -> None:
    lines = lines_of()
    with pytest.raises(UserError) as caught:
        change(lines)  # type: ignore[operator]
    assert problem in str(caught.value)
    assert lines.text == TEXT


@given(st.dictionaries(NAMES, CREDENTIALS, max_size=5), PASSWORDS, TOKENS, st.data())
def test_changes_do_what_they_say_and_leave_all_others_as_they_are(
    given_users: dict[str, Credential], password: Password, token: Token, data: st.DataObject
) -> None:
    text = "".join(f"# {count}\n{line_of(*one)}\n" for count, one in enumerate(given_users.items()))
    try:
        before = read_users(text, "users")
    except ConfigError:
        return  # two tokens that are the same
    name = data.draw(NAMES | st.sampled_from([*before, "new"]))
    if name not in before:
        lines = lines_of(text)
        lines.add(name, password)
    else:
        lines = lines_of(text)
        lines.set_password(name, password)
    assert lines.users[name].password == password
    assert read_users(lines.text, "users") == lines.users
    assert {**lines.users, name: None} == {**before, name: None}
    assert [line for line in lines.text.splitlines() if line.startswith("#")] == [
        f"# {count}" for count in range(len(given_users))
    ]


def test_a_file_that_is_changed_is_written_for_its_owner_only(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    with edited(home) as lines:
        lines.add("eve", "certificate")
    assert "eve" in home.load_users()
    assert stat.S_IMODE(home.users.stat().st_mode) == 0o600
    assert not [path for path in home.path.iterdir() if path.name.startswith(".")]


def test_a_block_that_raises_changes_nothing(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    before = home.users.read_text()

    def add_two() -> None:
        with edited(home) as lines:
            lines.add("eve", "certificate")
            lines.add("admin", "certificate")

    with pytest.raises(UserError, match="'admin' already"):
        add_two()
    assert home.users.read_text() == before


def test_a_file_that_others_can_read_is_not_changed_but_refused(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    home.users.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"), edited(home):
        pass


def test_two_who_change_the_file_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    home, begun = made(tmp_path / "security"), Event()

    def add() -> None:
        begun.set()
        with edited(home) as lines:
            lines.add("second", "certificate")

    with edited(home) as lines:
        other = Thread(target=add)
        other.start()
        begun.wait()
        lines.add("first", "certificate")
    other.join()
    assert {"first", "second"} <= set(home.load_users())


@pytest.mark.parametrize("fails", [False, True])
def test_the_lock_is_free_when_the_block_ends(tmp_path: Path, fails: bool) -> None:
    home = made(tmp_path / "security")
    with suppress(ConfigError), alone(home.path):
        assert is_locked(home.path)
        if fails:
            raise ConfigError("users", "", "is wrong")
    assert not is_locked(home.path)


def is_locked(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_a_link_to_a_file_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_file(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may give files away")
def test_what_root_changes_stays_its_owners(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    for path in (home.path, *home.path.iterdir()):
        os.chown(path, 12345, 12345)
    with edited(home) as lines:
        lines.add("eve", "certificate")
    write_new(home.path / "new", "text")
    assert {home.users.stat().st_uid, (home.path / "new").stat().st_uid} == {12345}


def test_a_new_file_takes_no_other_ones_place(tmp_path: Path) -> None:
    write_new(tmp_path / "file", "first")
    with pytest.raises(ConfigError, match="exists already"):
        write_new(tmp_path / "file", "second")
    with pytest.raises(ConfigError, match="can't be written: No such file or directory"):
        write_new(tmp_path / "nowhere" / "file", "text")
    assert (tmp_path / "file").read_text() == "first"
