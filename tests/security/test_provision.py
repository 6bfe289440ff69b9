from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from security.places import NOW, SECRET, cheap, made

from tidings.errors import ConfigError, UserError
from tidings.protocol.access import Principal, Rule
from tidings.security.certificates import LIFE, check_issuer, check_pair, describe
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.passwords import hash_token
from tidings.security.provision import (
    Admin,
    make_client,
    make_security,
    make_sibling,
    node_name,
    own_certificate,
    renew_node,
    report_on,
)

EVERYDAY = tuple(map(Rule, ("publish", "subscribe", "put", "get")))


def modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}


def test_a_new_directory_is_whole_and_its_secrets_are_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "security"
    make_security(path, "kitchen", ["10.0.0.7"], Admin("root", cheap(), SECRET), os.urandom, NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    secret = ("ca.key", "node.key", "users", "device.token", "admin.password")
    assert modes(path) == {
        **dict.fromkeys(("ca.pem", "node.pem", "access.toml"), 0o644),
        **dict.fromkeys(secret, 0o600),
    }
    assert (path / "admin.password").read_text() == f"{SECRET}\n"
    assert report_on(SecurityDirectory(path), NOW).warnings == []
    assert [entry.name for entry in path.parent.iterdir()] == ["security"]


def test_the_first_administrator_may_manage_the_node_and_not_only_its_queues(tmp_path: Path) -> None:
    _, rules = made(tmp_path / "security").load()
    admin = Principal("admin", rules=rules["admin"])
    admin.check_manage_all("stop this node")
    assert admin.queue_grant("manage", "jobs@attic") is None


def test_the_token_for_devices_is_that_of_the_users_file(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    token = (home.path / "device.token").read_text().strip()
    assert [one.digest for one in home.load_users()["device"].tokens] == [hash_token(token)]
    assert token not in home.users.read_text()


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    before = {file.name: file.read_bytes() for file in home.path.iterdir()}
    for again in (
        lambda: made(home.path),
        lambda: make_sibling(home, home.path, "attic", ["10.0.0.8"], NOW),
        lambda: make_client(home, home.path, "ada", NOW),
    ):
        with pytest.raises(ConfigError, match="exists already, and is not overwritten"):
            again()
    assert {file.name: file.read_bytes() for file in home.path.iterdir()} == before


def test_an_empty_directory_is_filled_and_made_safe(tmp_path: Path) -> None:
    (tmp_path / "security").mkdir(mode=0o755)
    home = made(tmp_path / "security")
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert home.key.stat().st_mode & 0o777 == home.ca_key.stat().st_mode & 0o777 == 0o600
    users, rules = home.load()
    assert "admin" in users
    assert rules


def test_what_goes_wrong_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither the name of a host"):
        made(tmp_path / "security", "kitchen", "not a host")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't be made: "):
        made(tmp_path / "file" / "security")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 65, "küche", "a@b"])
def test_a_name_that_no_node_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is no name of a node"):
        made(tmp_path / "security", name)


@pytest.mark.parametrize("name", ["device", "kitchen", "a b"])
def test_a_name_that_the_admin_can_not_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError):
        make_security(tmp_path / "security", "kitchen", [], Admin(name, cheap()), os.urandom, NOW)


@pytest.mark.parametrize(
    ("host", "name"),
    [("kitchen.example", "kitchen"), ("käse pc", "k-se-pc"), ("", "node"), ("x" * 99, "x" * 64)],
)
def test_the_name_of_a_host_gives_that_of_a_node(host: str, name: str) -> None:
    assert node_name(host) == name


def test_two_nodes_of_one_authority_know_each_other_and_the_admin(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    assert make_sibling(home, tmp_path / "attic", "attic", ["10.0.0.8"], NOW) == "kitchen"
    other = SecurityDirectory(tmp_path / "attic")
    users, rules = home.load()
    assert (users["attic"].is_node, rules["attic"]) == (True, EVERYDAY)
    their_users, their_rules = other.load()
    assert list(their_users) == ["admin", "kitchen"]
    assert (their_users["kitchen"].is_node, their_rules["kitchen"]) == (True, EVERYDAY)
    assert their_users["admin"] == users["admin"]
    assert their_rules["admin"] == rules["admin"]
    assert not other.ca_key.exists()
    assert other.ca.read_bytes() == home.ca.read_bytes()
    assert own_certificate(other).name == "attic"
    for one in (home, other):
        assert report_on(one, NOW).warnings == []


def test_a_node_whose_directory_was_lost_gets_another(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    for name in ("first", "second"):
        make_sibling(home, tmp_path / name, "attic", ["10.0.0.8"], NOW)
        assert home.load()[1]["attic"] == EVERYDAY


def test_a_node_can_not_have_the_name_of_another(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    for name in ("kitchen", "admin"):
        with pytest.raises(UserError, match=f"{name}' already"):
            make_sibling(home, tmp_path / "other", name, ["10.0.0.8"], NOW)


def test_a_client_gets_a_certificate_and_a_line(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    assert make_client(home, tmp_path / "ada", "ada", NOW)
    assert not make_client(home, tmp_path / "again", "ada", NOW)
    assert home.load_users()["ada"].has_certificate
    path = tmp_path / "ada"
    assert modes(path) == {"ca.pem": 0o644, "client.pem": 0o644, "client.key": 0o600}
    certificate = (path / "client.pem").read_text()
    assert describe(certificate, "").name == "ada"
    check_issuer(certificate, (path / "ca.pem").read_text(), "")
    check_pair(certificate, (path / "client.key").read_text(), "")


def test_a_renewed_certificate_is_for_the_same_node_and_key(tmp_path: Path) -> None:
    home, later = made(tmp_path / "security"), NOW + timedelta(days=700)
    key, hosts = home.key.read_bytes(), own_certificate(home).hosts
    renewed = renew_node(home, None, later)
    assert (renewed.name, renewed.hosts, renewed.until) == ("kitchen", hosts, later + LIFE)
    assert home.key.read_bytes() == key
    assert renew_node(home, ["b.example"], later).hosts == ["b.example", "localhost", "127.0.0.1", "::1"]
    assert report_on(home, later).warnings == []


def test_without_the_key_of_the_authority_nothing_is_issued(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    home.ca_key.unlink()
    for make in (
        lambda: make_sibling(home, tmp_path / "attic", "attic", ["10.0.0.8"], NOW),
        lambda: make_client(home, tmp_path / "ada", "ada", NOW),
        lambda: renew_node(home, None, NOW),
    ):
        with pytest.raises(ConfigError, match=r"ca\.key: is not there: bring it from where it is kept"):
            make()
    assert "ada" not in home.load_users()


def test_a_report_warns_of_what_may_not_be_meant(tmp_path: Path) -> None:
    home = made(tmp_path / "security")
    with edited(home) as lines:
        lines.add("ada", "certificate")
    warnings = report_on(home, NOW + LIFE - timedelta(days=3)).warnings
    assert warnings[0] == "no rule allows 'ada' anything"
    assert "the node's certificate expires on" in warnings[1]


def test_a_report_refuses_certificates_that_are_no_good(tmp_path: Path) -> None:
    home, other = made(tmp_path / "security"), made(tmp_path / "other")
    with pytest.raises(
        ConfigError, match=r"node.pem: .* has expired on .*; renew it: tidings security renew"
    ):
        report_on(home, NOW + LIFE + timedelta(days=1))
    good = home.certificate.read_text()
    home.certificate.write_text(other.certificate.read_text())
    with pytest.raises(ConfigError, match=r"node\.pem: was not issued by the authority"):
        report_on(home, NOW)
    home.certificate.write_text(good)
    home.key.write_text(other.key.read_text())
    with pytest.raises(ConfigError, match=r"node\.key: the key is not that of the certificate"):
        report_on(home, NOW)
