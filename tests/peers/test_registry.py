"""The nodes that a node knows: who is believed, what each is called, and how it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigError, NotAllowed
from tidings.peers.registry import PEERS_MAX, Peer, PeerRegistry, parse_peers


def registry(**peers: str) -> PeerRegistry:
    return PeerRegistry("home", "home-id", peers, 100.0)


def found(known: PeerRegistry, name: str) -> Peer:
    peer = known.find(name)
    assert peer is not None
    return peer


def test_a_peer_is_found_by_its_name_and_once_it_was_there_by_its_id() -> None:
    known = registry(kitchen="tidings://127.0.0.1:1")
    kitchen = found(known, "kitchen")
    assert known.find("k-id") is None
    known.welcome(kitchen, "k-id", "kitchen", None, 101.0)
    assert known.find("k-id") is kitchen
    known.lose(kitchen, "it was cut", 102.0)
    assert (known.find("k-id"), kitchen.state, kitchen.error, kitchen.since) == (
        kitchen,
        "away",
        "it was cut",
        102.0,
    )


def test_a_node_that_was_made_anew_is_known_by_its_new_id_only() -> None:
    known = registry(kitchen="tidings://127.0.0.1:1")
    kitchen = found(known, "kitchen")
    known.welcome(kitchen, "old", "kitchen", None, 101.0)
    known.lose(kitchen, "", 102.0)
    known.welcome(kitchen, "new", "kitchen", None, 103.0)
    assert (known.find("old"), known.find("new")) == (None, kitchen)


def test_a_node_is_not_its_own_peer_nor_two_peers() -> None:
    known = registry(kitchen="tidings://127.0.0.1:1", garage="tidings://127.0.0.1:2")
    kitchen, garage = found(known, "kitchen"), found(known, "garage")
    with pytest.raises(NotAllowed, match="this node itself"):
        known.welcome(kitchen, "home-id", "home", None, 101.0)
    known.welcome(kitchen, "k-id", "kitchen", None, 101.0)
    with pytest.raises(NotAllowed, match="known as kitchen"):
        known.welcome(garage, "k-id", "kitchen", None, 101.0)
    assert (garage.state, garage.error) == ("away", "it is the node that is known as kitchen")


def test_whoever_is_found_is_a_candidate_until_its_certificate_says_who_it_is() -> None:
    known = registry()
    kitchen = known.discover("kitchen", "tidings+tls://10.0.0.7:7300", 101.0)
    assert kitchen is not None
    assert (kitchen.state, known.find("kitchen")) == ("candidate", None)
    for certificate, says in ((None, "kitchen"), ("garage", "kitchen"), ("kitchen", "garage")):
        with pytest.raises(NotAllowed):
            known.welcome(kitchen, "k-id", says, certificate, 102.0)
        assert (kitchen.state, known.find("kitchen"), known.find("k-id")) == ("candidate", None, None)
    known.welcome(kitchen, "k-id", "kitchen", "kitchen", 103.0)
    assert known.find("kitchen") is kitchen
    assert kitchen.is_there


def test_what_was_named_in_the_settings_must_be_who_its_certificate_says() -> None:
    known = registry(kitchen="tidings+tls://10.0.0.7:7300")
    kitchen = found(known, "kitchen")
    with pytest.raises(NotAllowed, match=r"certificate is that of 'garage'"):
        known.welcome(kitchen, "k-id", "kitchen", "garage", 101.0)
    known.welcome(kitchen, "k-id", "kitchen", "kitchen", 101.0)


def test_what_is_found_never_replaces_what_is_known() -> None:
    known = registry(kitchen="tidings+tls://10.0.0.7:7300")
    assert known.discover("kitchen", "tidings+tls://10.6.6.6:7300", 101.0) is None
    assert found(known, "kitchen").address == "tidings+tls://10.0.0.7:7300"
    assert known.discover("home", "tidings+tls://10.6.6.6:7300", 101.0) is None
    assert known.discover("two words", "tidings+tls://10.6.6.6:7300", 101.0) is None
    assert len(known) == 1


def test_a_candidate_may_move_and_is_forgotten_when_it_is_gone() -> None:
    known = registry()
    kitchen = known.discover("kitchen", "tidings+tls://10.0.0.7:7300", 101.0)
    assert kitchen is not None
    assert known.discover("kitchen", "tidings+tls://10.0.0.8:7300", 101.0) is None
    assert kitchen.address == "tidings+tls://10.0.0.8:7300"
    assert known.forget("kitchen") is kitchen
    assert (known.forget("kitchen"), len(known)) == (None, 0)


def test_who_has_shown_who_it_is_stays_when_it_is_not_found_any_more() -> None:
    known = registry()
    kitchen = known.discover("kitchen", "tidings+tls://10.0.0.7:7300", 101.0)
    assert kitchen is not None
    known.welcome(kitchen, "k-id", "kitchen", "kitchen", 102.0)
    known.lose(kitchen, "gone", 103.0)
    assert known.forget("kitchen") is None
    assert known.find("kitchen") is kitchen


def test_no_more_are_found_than_there_may_be() -> None:
    known = registry()
    for number in range(PEERS_MAX + 10):
        known.discover(f"node-{number}", "tidings+tls://10.0.0.7:7300", 101.0)
    assert len(known) == PEERS_MAX


def test_the_status_tells_how_each_stands() -> None:
    known = registry(kitchen="tidings://127.0.0.1:1", attic="tidings://127.0.0.1:2")
    known.welcome(found(known, "kitchen"), "k-id", "", None, 101.0)
    known.lose(found(known, "attic"), "refused", 101.0)
    attic, kitchen = known.status(103.0)
    assert (attic["name"], attic["state"], attic["error"], attic["for_s"]) == (
        "attic",
        "away",
        "refused",
        3.0,
    )
    assert (kitchen["node"], kitchen["state"], kitchen["for_s"]) == ("k-id", "there", 2.0)


# -- the setting


def test_the_setting_names_nodes_and_their_addresses() -> None:
    text = " kitchen=tidings+tls://10.0.0.7:7300 ,garage = tidings+unix:///run/garage,"
    assert parse_peers(text) == {
        "kitchen": "tidings+tls://10.0.0.7:7300",
        "garage": "tidings+unix:///run/garage",
    }
    assert parse_peers("") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kitchen", "'kitchen' is no NAME=ADDRESS"),
        ("kitchen=", "is no NAME=ADDRESS"),
        ("the kitchen=tidings://h", "'the kitchen' is no name of a node: 1 to 64 letters"),
        ("=tidings://h", "'' is no name"),
        ("a=tidings://h, a=tidings://g", "a is named twice"),
        ("home=tidings://h", "home is the name of this node itself"),
        ("kitchen=http://h", "kitchen: .*http://h"),
    ],
)
def test_a_setting_that_cannot_be_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_peers(text, "--peers", "home")
    assert (caught.value.place, caught.value.key) == ("--peers", "peers")


@given(st.text(max_size=60))
def test_any_text_is_a_setting_or_an_error_that_says_so(text: str) -> None:
    try:
        peers = parse_peers(text)
    except ConfigError:
        return
    assert all(name and address for name, address in peers.items())


def test_a_node_that_has_joined_is_known_as_if_the_settings_named_it() -> None:
    registry = PeerRegistry("home", "n0", {"kitchen": "tidings+tls://10.0.0.7:7300"}, 0.0)
    shed = registry.learn("shed", "tidings+tls://10.0.0.8:7300", 1.0)
    assert shed is not None
    assert (shed.is_configured, shed.state) == (True, "away")
    assert registry.find("shed") is shed
    for name in ("shed", "kitchen", "home"):  # known, said by the settings, the node itself
        assert registry.learn(name, "tidings+tls://10.0.0.9:7300", 2.0) is None
    assert [peer.address for peer in registry] == [
        "tidings+tls://10.0.0.7:7300",
        "tidings+tls://10.0.0.8:7300",
    ]


def test_a_node_that_was_found_and_has_joined_is_not_forgotten_when_it_is_not_found_any_more() -> None:
    registry = PeerRegistry("home", "n0", {}, 0.0)
    registry.discover("shed", "tidings+tls://10.0.0.8:7300", 0.0)
    assert registry.learn("shed", "tidings+tls://10.0.0.9:7300", 1.0) is None
    shed = registry.find("shed")
    assert shed is not None
    assert shed.address == "tidings+tls://10.0.0.9:7300"
    assert registry.forget("shed") is None


def test_a_node_that_has_made_its_links_itself_is_dialled_once_its_address_is_learnt() -> None:
    registry = PeerRegistry("home", "n0", {}, 0.0)
    shed = registry.link("shed", "n1", 0.0)
    assert shed is not None
    assert registry.learn("shed", "tidings://10.0.0.8:7300", 1.0) is None  # it is there
    registry.lose(shed, "gone", 2.0)
    assert registry.learn("shed", "tidings://10.0.0.8:7300", 3.0) is shed
    assert (shed.is_linked, shed.is_configured, shed.address) == (False, True, "tidings://10.0.0.8:7300")
    assert registry.learn("shed", "tidings://10.0.0.8:7300", 4.0) is None
