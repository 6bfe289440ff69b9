"""Messages to an area: the hosts within it deliver them, each once, and all others only carry them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from adhoc.hosts import held, host, meet, note
from adhoc.nodes import Hosts
from msgspec.structs import replace

from tidings.adhoc.areas import is_within
from tidings.adhoc.messages import EVERYBODY, CarriedMessage, MessageId, refusal
from tidings.adhoc.ring import Acknowledgement
from tidings.adhoc.strategies import STRATEGIES
from tidings.errors import TidingsError, UserError
from tidings.event import Event
from tidings.event.wire import encode_events

pytest.importorskip("shapely")

SQUARE = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
IN, OUT = (5.0, 5.0), (50.0, 5.0)


def cast(one: Any, text: str, now: float = 0.0, **options: Any) -> CarriedMessage:
    message = one.compose([EVERYBODY], text.encode(), area=SQUARE, **options)
    note(one, one.send(message, now))
    return message


def test_a_carrier_outside_takes_a_message_to_the_hosts_within() -> None:
    sender, carrier, near = host("a"), host("b"), host("c")
    carrier.place, near.place = OUT, IN
    cast(sender, "m")
    meet(sender, carrier)
    assert carrier.got == []
    meet(carrier, near)
    meet(sender, near)
    assert near.got == ["m"]
    assert held(carrier) == held(near) == ["m"]  # others may come to the area


def test_a_host_that_enters_the_area_delivers_what_it_carries_once() -> None:
    sender, carrier = host("a"), host("b")
    cast(sender, "m")
    meet(sender, carrier)
    for place in (OUT, IN, OUT, IN):
        note(carrier, carrier.move(place, 1.0))
    assert carrier.got == ["m"]
    assert carrier.tallies["delivered", ""] == 1


def test_a_sender_within_the_area_delivers_too() -> None:
    sender = host("a")
    sender.place = IN
    cast(sender, "m")
    assert sender.got == ["m"]


def test_a_message_to_an_area_expires_and_is_counted() -> None:
    sender, near = host("a"), host("b")
    cast(sender, "m", ttl_s=10.0)
    sender.wake(10.0)
    assert held(sender) == []
    assert sender.tallies["dropped", "expired"] == 1
    near.place = IN
    meet(sender, near, now=11.0)
    assert near.got == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_within_the_area_a_message_spreads_with_every_strategy(strategy: str) -> None:
    hosts = [host(name, strategy) for name in "abcdefghij"]
    for one in hosts:
        one.place = IN
    cast(hosts[0], "m")
    for one, other in pairwise(hosts):
        meet(one, other)
    assert [one.got for one in hosts] == [["m"]] * 10


def test_nobody_acknowledges_for_everybody() -> None:
    sender = host("a")
    message = cast(sender, "m")
    sender.hear((Acknowledgement(message.id, EVERYBODY, 100.0),), 1.0)
    assert held(sender) == ["m"]
    assert sender.tallies["refused", "forged acknowledgement"] == 1


@pytest.mark.parametrize(
    ("recipients", "area"), [(("*",), ""), (("x",), SQUARE), (("*", "x"), SQUARE), (("x", "*"), "")]
)
def test_a_message_has_an_area_or_recipients(recipients: tuple[str, ...], area: str) -> None:
    assert refusal(CarriedMessage(MessageId("s", 1, 1), recipients, area=area)) == "area"


def test_the_sender_signs_the_area() -> None:
    message = CarriedMessage(MessageId("s", 1, 1), ("*",), area=SQUARE)
    assert message.signed != replace(message, area=SQUARE.replace("10", "99")).signed


@pytest.mark.parametrize("area", ["", "POLYGON", "POINT (1 1)", "x" * 5_000])
def test_what_is_no_area_is_refused_at_its_sender_and_has_nobody_within(area: str) -> None:
    with pytest.raises(UserError):
        host("a").compose([EVERYBODY], b"m", area=area)
    assert not is_within(area, IN)
    assert not is_within(SQUARE, None)


# Nodes


def nodes(**places: tuple[float, float]) -> Hosts:
    hosts = Hosts("a", "b", "c")
    for name, place in places.items():
        move(hosts, name, place)
    return hosts


def move(hosts: Hosts, name: str, place: tuple[float, float]) -> None:
    hosts.ask(name, "adhoc.move", x=place[0], y=place[1])


def listen(hosts: Hosts, name: str) -> Any:
    listening = hosts.app(name).subscribe("type = 'flood'")
    hosts.run(1.0)
    return listening


def raw(**values: Any) -> bytes:
    return encode_events([Event("flood", values)])


def test_an_event_that_is_cast_is_published_at_the_nodes_within() -> None:
    hosts = nodes(b=OUT, c=IN)
    got = {name: listen(hosts, name) for name in "abc"}
    told = hosts.ask("a", "adhoc.cast", area=SQUARE, raw=raw(x=7))
    assert hosts.ask("a", "adhoc.why", id=told["id"])["waits_for"] == [EVERYBODY]
    hosts.meet("a", "b")
    hosts.meet("b", "c")
    hosts.meet("a", "c")
    assert {name: one.values for name, one in got.items()} == {"a": [], "b": [], "c": [7]}
    assert got["c"].got[0].source == "app-a@a"
    hosts.restart("b")
    assert hosts.held("b") == 1
    got = {"b": listen(hosts, "b")}
    move(hosts, "b", IN)
    assert got["b"].values == [7]
    move(hosts, "b", IN)
    assert got["b"].values == [7]


def test_an_event_that_is_cast_from_within_is_published_at_its_own_node() -> None:
    hosts = nodes(a=IN)
    got = listen(hosts, "a")
    hosts.ask("a", "adhoc.cast", area=SQUARE, raw=raw(x=7))
    hosts.run(1.0)
    assert got.values == [7]


@pytest.mark.parametrize(
    "arguments",
    [
        {"area": "somewhere", "raw": raw(x=1)},
        {"area": SQUARE, "raw": encode_events([])},
        {"area": SQUARE, "raw": b"junk"},
    ],
)
def test_what_can_not_be_cast_is_refused(arguments: dict[str, Any]) -> None:
    hosts = nodes()
    assert isinstance(hosts.ask("a", "adhoc.cast", **arguments), TidingsError)
    assert hosts.held("a") == 0
