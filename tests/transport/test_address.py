"""Addresses: what is one, and what is shown of a text that is none."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import AddressError
from tidings.transport.address import PORT, Address, parse

HOSTS = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True) | st.ip_addresses(v=4).map(str)


@given(HOSTS, st.integers(1, 65535), st.booleans())
def test_host_and_port_are_read_as_they_stand(host: str, port: int, has_tls: bool) -> None:
    scheme, kind = ("tidings+tls", "tls") if has_tls else ("tidings", "tcp")
    found = parse(f"{scheme}://{host}:{port}")
    assert (found.kind, found.host, found.port, found.user) == (kind, host, port, "")


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_user_and_a_path_may_hold_any_character_that_is_quoted(text: str) -> None:
    try:
        quoted = quote(text, safe="")
    except UnicodeEncodeError:
        return
    assert parse(f"tidings+tls://{quoted}@host").user == text
    assert parse(f"tidings+unix:///{quoted}").path == f"/{text}"


def test_without_a_port_it_is_the_one_where_nodes_listen() -> None:
    assert parse("tidings+tls://[::1]") == Address("tls", "::1", PORT)
    assert parse("tidings://h/").port == PORT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "[::1]",
        "h:x",
        ":7300",
        "h:70000",
        "a b",
        "/run/node.sock",
        "ada@h:7300",
        "[h]:7300",
        "h/path",
        "tidings://",
        "tidings+tls:///path",
        "tidings+unix://host/path",
        "tidings://h:x",
        "http://h",
        "tidings://h:70000",
        "tidings://h/path",
        "tidings+tls://h?x=1",
        "tidings+unix:///a#b",
        "tidings://[::1",
    ],
)
def test_what_is_no_address_is_refused_and_shown(text: str) -> None:
    with pytest.raises(AddressError) as raised:
        parse(text)
    assert repr(text) in str(raised.value)


@given(HOSTS | st.just("[::1]"), st.integers(1, 65535))
def test_host_and_port_alone_are_an_address_by_tls_if_there_are_credentials(host: str, port: int) -> None:
    bare = f"{host}:{port}"
    assert parse(bare) == parse(f"tidings://{bare}")
    assert parse(bare, has_credentials=True) == parse(f"tidings+tls://{bare}")
    assert parse(f"tidings://{bare}", has_credentials=True) == parse(bare)


def test_only_an_address_with_tls_has_a_user() -> None:
    with pytest.raises(AddressError, match=r"tidings\+tls://USER@HOST"):
        parse("tidings://ada@h")


@given(
    st.text(alphabet=st.characters(codec="utf-8")),
    st.sampled_from(["tidings://", "tidings+tls://", "http://", ""]),
)
def test_a_password_in_an_address_is_refused_and_never_shown(password: str, scheme: str) -> None:
    with pytest.raises(AddressError) as raised:
        parse(f"{scheme}ada:secret{password}@host:7300")
    assert "secret" not in str(raised.value)
    assert "--password-file" in str(raised.value)
