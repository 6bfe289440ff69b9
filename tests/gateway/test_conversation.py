"""A conversation as it goes over the wire: bytes in, bytes out."""

from __future__ import annotations

from tests.gateway.whole import feed
from tests.gateway.world import World, is_known
from tidings.gateway.intake import NetworkReader
from tidings.gateway.messages import Deregister, Error, Reading, Register, Sensing, encode


class Wire:
    """One connection of a network to a gateway."""

    def __init__(self) -> None:
        self.world = World()
        self.world.connect(1)
        self.intake = NetworkReader()
        self.readings: list[Reading] = []

    def send(self, data: bytes) -> bytes:
        """What the gateway answers to these bytes."""
        world, gateway = self.world, self.world.gateway
        for said in feed(self.intake, data):
            match said:
                case Register() | Deregister():
                    world.hear(1, said)
                case Sensing():
                    self.readings += gateway.sensing(1, said, world.now)
                    world.carry_out(gateway.said())
                case Error():
                    world.carry_out(gateway.failed(1, said))
        return self.heard()

    def heard(self) -> bytes:
        return b"".join(map(encode, self.world.heard()))


def test_a_network_registers_is_asked_senses_and_leaves() -> None:
    wire = Wire()
    wire.world.demand("type = 'Temperatur' AND value > 0 AND value < 10")
    register = b"""{"register": {"sensing-id": "roof", "area": [{"x": 10, "y": 10}], "sensors": [
        {"name": "1", "type": "Temperatur", "min-value": -20, "max-value": 50},
        {"name": "2", "type": "Temperatur", "min-value": 20},
        {"name": "3", "type": "Temperatur"}]}}"""
    assert wire.send(register) == (
        b'{"subscribe":{"sensing-id":"roof","sensors":[{"name":"1","min-value":0,"max-value":10},{"name":"3"}]}}\n'
    )
    sensing = b"""{"sensing": {"sensing-id": "roof", "sensors": [
        {"name": "1", "type": "Temperatur", "value": "5"}]}}"""
    assert wire.send(sensing) == b""
    assert [(reading.name, reading.value) for reading in wire.readings] == [("1", "5")]
    wire.world.demand("type = 'Temperatur' AND value > 30")
    assert wire.heard() == (
        b'{"subscribe":{"sensing-id":"roof","sensors":'
        b'[{"name":"1","min-value":30,"max-value":50},{"name":"2","min-value":30}]}}\n'
    )
    assert wire.send(b'{"deregister": {"sensing-id": "roof", "sensors": [{"name": "2"}]}}\n') == b""
    assert wire.send(b'{"unregister": {"sensing-id": "roof"}}\n') == b""
    assert wire.world.gateway.overview() == []


def test_a_mistake_is_told_by_its_place_and_the_conversation_goes_on() -> None:
    wire = Wire()
    assert wire.send(b'{"deregister": {"sensing-id": "roof"}}\n') == (
        b'{"error":{"problem":"is not registered","place":"$.deregister.sensing-id","sensing-id":"roof"}}\n'
    )
    assert b'"error"' in wire.send(b'{"register": {"sensing-id": "roof"}}\n')
    assert (
        wire.send(b'{"register": {"sensing-id": "roof", "sensors": [{"name": "1", "type": "t"}]}}\n') == b""
    )
    assert is_known(wire.world.gateway, "roof", "1")
