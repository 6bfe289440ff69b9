"""TLS between two ends in memory: what fails, how it is told, and what is replaced."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node.authority import HOSTS, Authority

from tidings.errors import ConfigError, Disconnected, NotAllowed
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import Bye, Hello
from tidings.transport.tls import (
    SPEAKS_TLS,
    Handshake,
    NodeContext,
    alert_verdict,
    client_context,
    common_name,
    dial_verdict,
    node_context,
    port_context,
)


class Papers:
    """An authority, and a node that it vouches for."""

    def __init__(self, home: Path, name: str = "a test") -> None:
        self.authority = Authority(name)
        self.ca = self.authority.write_ca(home / "ca.pem")
        self.cert, self.key = self.authority.issue(home / "node.pem", "kitchen", HOSTS)
        self.failures = 0

    def door(self, room: int = 10) -> NodeContext:
        def fail() -> None:
            self.failures += 1

        return port_context(node_context(self.ca, self.cert, self.key), lambda: room, fail)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


class End:
    """One end of TLS, and the bytes on their way to it and from it."""

    def __init__(self, context: ssl.SSLContext, host: str | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_node = host is None
        self.object = context.wrap_bio(
            self.incoming, self.outgoing, server_side=is_node, server_hostname=host
        )
        self.is_done = False

    def step(self, data: bytes = b"") -> bytes:
        """Take these bytes; what is to be sent."""
        self.incoming.write(data)
        try:
            self.object.do_handshake()
            self.is_done = True
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()


def shake_hands(client: End, node: End, size: int) -> None:
    """Carry bytes between the two, so many at a time, until both are done."""
    to_node, to_client = client.step(), b""
    while to_node or to_client:
        piece, to_node = to_node[:size], to_node[size:]
        to_client += node.step(piece) if piece else b""
        piece, to_client = to_client[:size], to_client[size:]
        to_node += client.step(piece) if piece else b""


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_handshake_goes_well_in_pieces_of_any_size(papers: Papers, size: int) -> None:
    door = papers.door()
    client, node = End(client_context(papers.ca, None, None), "localhost"), End(door)
    assert len(door.under_way) == 1
    shake_hands(client, node, size)
    assert client.is_done
    assert node.is_done
    assert len(door.under_way) == 0
    assert common_name(client.object.getpeercert()) == "kitchen"
    assert node.object.getpeercert() is None
    assert client.object.version() == "TLSv1.3"


@pytest.mark.parametrize(("version", "is_taken"), [("TLSv1_2", True), ("TLSv1_1", False)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_the_version_is_tls_1_2_at_least(papers: Papers, version: str, is_taken: bool) -> None:
    context = client_context(papers.ca, None, None)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    client, node = End(context, "localhost"), End(papers.door())
    if is_taken:
        shake_hands(client, node, 1 << 20)
        assert node.is_done
    else:
        with pytest.raises(ssl.SSLError):
            shake_hands(client, node, 1 << 20)
        assert not node.is_done


@given(st.binary(min_size=1, max_size=200), st.integers(1, 200))
def test_whatever_comes_first_a_handshake_waits_or_fails_and_does_nothing_else(
    papers: Papers, data: bytes, size: int
) -> None:
    node = End(papers.door())
    node.step()
    said = b""
    for start in range(0, len(data), size):
        try:
            said += node.step(data[start : start + size])
        except ssl.SSLError:
            break
    assert not node.is_done
    assert len(said) < 100


def test_a_client_that_speaks_plainly_is_told_so_in_plain(papers: Papers) -> None:
    before = papers.failures
    node = End(papers.door())
    node.step()
    said = node.step(encode(Hello([1], "one", 1)))
    assert [message for message, _ in FrameReader(FRAME_MAX).feed(said)] == [Bye("protocol", SPEAKS_TLS)]
    with pytest.raises(ssl.SSLError):
        node.step(b"and more")
    assert papers.failures == before + 1


def test_a_handshake_that_there_is_no_room_for_is_not_begun(papers: Papers) -> None:
    door = papers.door(room=1)
    first, second = End(door), End(door)
    assert first.step() == b""
    with pytest.raises(ssl.SSLError):
        second.step()
    assert len(door.under_way) == 1
    del first
    assert len(door.under_way) == 0


def test_what_was_replaced_holds_for_the_next_connection(papers: Papers, tmp_path: Path) -> None:
    door = papers.door()
    other = Papers(tmp_path, "another")
    door.current = node_context(other.ca, other.cert, other.key)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(End(client_context(papers.ca, None, None), "localhost"), End(door), 1 << 20)
    node = End(door)
    shake_hands(End(client_context(other.ca, None, None), "localhost"), node, 1 << 20)
    assert isinstance(node.object, Handshake)
    assert node.is_done


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "it has expired"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it was not issued by the CA of the node"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "there is something wrong with it"),
    ],
)
def test_an_alert_about_the_clients_certificate_is_final(reason: str, text: str) -> None:
    verdict = alert_verdict(alert(reason))
    assert isinstance(verdict, NotAllowed)
    assert str(verdict) == f"the node does not take this client's certificate: {text}"


def test_other_trouble_may_be_over_at_the_next_attempt() -> None:
    for error in (
        alert("TLSV1_ALERT_INTERNAL_ERROR"),
        ssl.SSLError("made by hand"),
        ssl.SSLEOFError(8, "eof"),
    ):
        assert alert_verdict(error) is None
        assert dial_verdict(error, "h", None, None) is None


def test_a_port_without_tls_and_no_common_version_are_told() -> None:
    verdict = dial_verdict(alert("WRONG_VERSION_NUMBER"), "h", None, None)
    assert isinstance(verdict, Disconnected)
    assert "use tidings://" in str(verdict)
    assert "no version of TLS in common" in str(alert_verdict(alert("TLSV1_ALERT_PROTOCOL_VERSION")))


def test_a_certificate_names_one_or_nobody() -> None:
    def subject(*names: str) -> dict[str, object]:
        return {"subject": tuple((("commonName", name),) for name in names)}

    assert common_name(subject("ada")) == "ada"
    assert common_name(subject("ada", "bob")) is None
    assert common_name(subject()) is None
    assert common_name({}) is None
    assert common_name(None) is None


def test_an_encrypted_key_is_refused_and_not_asked_for(papers: Papers, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(papers.key.read_bytes(), None)
    encrypted = tmp_path / "key"
    encrypted.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2"))
    )
    with pytest.raises(ConfigError, match="no key of it in"):
        node_context(papers.ca, papers.cert, encrypted)
