from __future__ import annotations

import os
from pathlib import Path

import pytest
from security.places import made

from tidings.errors import ConfigError
from tidings.protocol.access import Rule
from tidings.security.directory import FILE_SIZE_MAX, SecurityDirectory
from tidings.security.provision import authority_of
from tidings.security.rules import WITHOUT_QUEUES


def test_a_new_directory_has_an_admin_and_a_device(tmp_path: Path) -> None:
    users, rules = made(tmp_path / "security").load()
    assert list(users) == ["admin", "device"]
    whole = [rule.action for rule in rules["admin"] if rule.queue is None]
    assert set(whole) == {*WITHOUT_QUEUES, "manage"}
    assert [rule.action for rule in rules["admin"] if rule.queue == "*"] == ["put", "get", "manage"]
    assert rules["device"] == tuple(map(Rule, ("publish", "subscribe", "put", "get")))


@pytest.mark.parametrize("name", ["users", "node.key", "ca.key"])
def test_what_is_secret_and_others_may_read_is_refused_with_what_to_type(tmp_path: Path, name: str) -> None:
    home = made(tmp_path / "security")
    (home.path / name).chmod(0o640)
    with pytest.raises(ConfigError) as caught:
        home.load()
    path = home.path / name
    assert str(caught.value) == f"{path}: others may use it (mode 640); chmod 600 {path}"


@pytest.mark.parametrize("name", ["access.toml", "ca.pem", "node.pem"])
def test_what_others_may_write_is_refused(tmp_path: Path, name: str) -> None:
    home = made(tmp_path / "security")
    home.load()
    (home.path / name).chmod(0o664)
    with pytest.raises(ConfigError, match=f"{name}: others may use it .mode 664.; chmod 644"):
        home.load()


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    home.path.chmod(0o755)
    with pytest.raises(ConfigError, match=f"others may use it .mode 755.; chmod 700 {home.path}"):
        home.load()


def test_what_is_anothers_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(tmp_path / "security")
    if os.geteuid() == 0:
        os.chown(home.users, 12345, 12345)
        home.load()
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: home.users.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user of this machine"):
        home.load()


@pytest.mark.parametrize("name", ["users", "access.toml", "node.pem", "node.key", "ca.pem"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    home = made(tmp_path / "security")
    (home.path / name).unlink()
    with pytest.raises(ConfigError, match=f"{name}: can't be read: No such file or directory"):
        home.load()


def test_the_key_of_the_authority_may_be_kept_elsewhere(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    users, _ = home.load()
    home.ca_key.unlink()
    assert home.load()[0] == users
    with pytest.raises(ConfigError, match="bring it from where it is kept"):
        authority_of(home)


def test_a_directory_that_is_not_there_is_told_how_to_make(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tidings security init' makes one"):
        SecurityDirectory(tmp_path / "nothing").load()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no directory"):
        SecurityDirectory(tmp_path / "file").load()


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    home.users.write_bytes(b"ada certificate \xff\n")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        home.load()
    with home.users.open("r+b") as file:
        file.truncate(FILE_SIZE_MAX + 1)
    with pytest.raises(ConfigError, match="has more than"):
        home.load()


def test_a_rule_for_a_user_who_is_not_there_breaks_the_whole(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    home.users.write_text("admin certificate\n")
    with pytest.raises(
        ConfigError, match=r"access.toml, allow\[3\] \(line 12\): users: there is no user 'device'"
    ):
        home.load()


def test_the_signature_changes_with_every_file_that_matters(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    seen = {home.signature()}
    assert home.signature() in seen
    for count, name in enumerate(("users", "access.toml", "ca.pem", "node.pem", "node.key"), 1):
        os.utime(home.path / name, ns=(count, count))
        assert home.signature() not in seen
        seen.add(home.signature())
    home.users.unlink()
    assert home.signature() not in seen
