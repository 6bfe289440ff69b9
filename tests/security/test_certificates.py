from __future__ import annotations

import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidings.errors import ConfigError, MissingExtra, UserError
from tidings.security.certificates import (
    AUTHORITY_LIFE,
    LIFE,
    Authority,
    Issued,
    check_issuer,
    check_pair,
    describe,
    read_key,
)

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make(NOW)


def context(purpose: int, path: Path, authority: Authority, issued: Issued | None) -> ssl.SSLContext:
    """One end of a connection, as strict as Python 3.13 is by itself."""
    made = ssl.SSLContext(purpose)
    made.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=authority.pem.certificate)
    if issued is not None:
        path.write_text(issued.certificate + issued.key)
        made.load_cert_chain(path)
    return made


def shake(client: ssl.SSLContext, node: ssl.SSLContext, host: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake, with two pieces of memory as the network."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname=host),
        node.wrap_bio(there, back, server_side=True),
    )
    is_done = [False, False]
    while not all(is_done):
        for number, end in enumerate(ends):
            if not is_done[number]:
                try:
                    end.do_handshake()
                    is_done[number] = True
                except ssl.SSLWantReadError:
                    pass
    return ends


def names_at(ends: tuple[ssl.SSLObject, ssl.SSLObject]) -> list[str]:
    """Whom each end takes the other for: the client the node, the node the client."""
    subjects = [end.getpeercert()["subject"] for end in ends]  # type: ignore[index]
    return [dict(item[0] for item in subject)["commonName"] for subject in subjects]  # type: ignore[misc]


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "kitchen.example", "localhost", "127.0.0.1", "::1", "2001:db8::1"]
)
def test_a_node_and_a_client_know_each_other_by_strict_rules(
    tmp_path: Path, authority: Authority, host: str
) -> None:
    node = authority.issue_node("kitchen", ["10.0.0.7", "kitchen.example", "2001:db8::1"], NOW)
    user = authority.issue_client("Grüße*", NOW)
    ends = shake(
        context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "client", authority, user),
        context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "node", authority, node),
        host,
    )
    assert names_at(ends) == ["kitchen", "Grüße*"]


def test_a_node_is_also_a_client_of_others(tmp_path: Path, authority: Authority) -> None:
    attic, kitchen = (authority.issue_node(name, [], NOW) for name in ("attic", "kitchen"))
    ends = shake(
        context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "attic", authority, attic),
        context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "kitchen", authority, kitchen),
        "localhost",
    )
    assert names_at(ends) == ["kitchen", "attic"]


def test_a_client_can_not_pass_for_a_node(tmp_path: Path, authority: Authority) -> None:
    user = authority.issue_client("kitchen", NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(
            context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "client", authority, user),
            context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "node", authority, user),
            "localhost",
        )


def test_certificates_of_another_authority_are_not_taken(tmp_path: Path, authority: Authority) -> None:
    other = Authority.make(NOW)
    node = context(
        ssl.PROTOCOL_TLS_SERVER, tmp_path / "node", other, authority.issue_node("kitchen", [], NOW)
    )
    client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "client", other, other.issue_client("ada", NOW))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client, node, "localhost")


def test_a_certificate_tells_what_it_says(authority: Authority) -> None:
    told = describe(authority.issue_node("kitchen", ["10.0.0.7", "a.example"], NOW).certificate, "node.pem")
    assert told.name == "kitchen"
    assert told.hosts == ["10.0.0.7", "a.example", "localhost", "127.0.0.1", "::1"]
    assert told.until == NOW + LIFE
    assert not told.is_authority
    root = describe(authority.pem.certificate, "ca.pem")
    assert root.is_authority
    assert root.name == root.issuer == told.issuer
    assert root.until == NOW + AUTHORITY_LIFE


def test_a_certificate_is_good_in_its_time_only(authority: Authority) -> None:
    told = describe(authority.issue_client("ada", NOW).certificate, "client.pem")
    assert told.problem(NOW) is None
    assert "has expired on" in str(told.problem(NOW + LIFE + timedelta(seconds=1)))
    assert "is the clock right?" in str(told.problem(NOW - timedelta(days=2)))


def test_no_certificate_outlives_its_authority(authority: Authority) -> None:
    late = NOW + AUTHORITY_LIFE - timedelta(days=7)
    assert describe(authority.issue_client("ada", late).certificate, "").until == NOW + AUTHORITY_LIFE


def test_an_authority_comes_back_from_its_files(authority: Authority) -> None:
    again = Authority.read(authority.pem.certificate, authority.pem.key, "ca.pem")
    check_issuer(again.issue_client("ada", NOW).certificate, authority.pem.certificate, "client.pem")


def test_files_that_do_not_belong_together_are_refused(authority: Authority) -> None:
    other = Authority.make(NOW)
    node = authority.issue_node("kitchen", [], NOW)
    check_pair(node.certificate, node.key, "node.pem")
    with pytest.raises(ConfigError, match=r"ca\.pem: the key is not that of the certificate"):
        Authority.read(authority.pem.certificate, other.pem.key, "ca.pem")
    with pytest.raises(ConfigError, match="is not one of an authority"):
        Authority.read(node.certificate, node.key, "ca.pem")
    with pytest.raises(ConfigError, match=r"node\.pem: was not issued by the authority in ca\.pem"):
        check_issuer(node.certificate, other.pem.certificate, "node.pem")
    for text in ("", "nonsense", node.key):
        with pytest.raises(ConfigError, match=r"node\.pem: is no certificate"):
            describe(text, "node.pem")
    for text in ("", "nonsense", node.certificate):
        with pytest.raises(ConfigError, match=r"node\.key: is no key"):
            read_key(text, "node.key")


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("0.0.0.0", "means all addresses"),
        ("::", "means all addresses"),
        ("", "neither the name of a host nor an IP address"),
        ("a b", "neither the name of a host"),
        ("10.0.0.256", "neither the name of a host"),
        ("häuschen.example", "neither the name of a host"),
        ("tidings://10.0.0.7", "neither the name of a host"),
        ("a" * 64 + ".example", "neither the name of a host"),
    ],
)
def test_a_host_that_can_not_be_is_refused(authority: Authority, host: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        authority.issue_node("kitchen", [host], NOW)


def test_names_and_hosts_are_bounded(authority: Authority) -> None:
    with pytest.raises(UserError, match="1 to 64 characters"):
        authority.issue_client("x" * 65, NOW)
    with pytest.raises(UserError, match="at most 100 names"):
        authority.issue_node("kitchen", [f"host{number}" for number in range(101)], NOW)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidings.security.certificates")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidings\[security\]'"):
        import tidings.security.certificates  # noqa: F401
