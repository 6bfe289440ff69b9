"""Bad input over the wire: what is wrong is told, with its place, and nobody else is harmed by it."""

from __future__ import annotations

import pytest
from node.gateway.networks import by_udp, connected, register, sensing, sensor, values
from node.peers import run, running

import tidings
from tidings.gateway.gateway import ERRORS_MAX
from tidings.gateway.intake import FIRST_SIZE_MAX
from tidings.gateway.messages import SENSORS_MAX


@pytest.mark.parametrize(
    ("line", "place", "problem"),
    [
        (b'{"sensing": {broken}}\n', "$", "malformed"),
        (b'{"sensing": {"sensing-id": "n"}}\n', "$.sensing.sensors", "missing"),
        (b'{"register": {"sensors": []}}\n', "$.register.sensing-id", "missing"),
        (b'{"hello": {}}\n', "$.hello", "no message"),
        (b'[1, 2]{"sensing": 7}\n', "$", "begins with"),
        (b'{"register": {"sensing-id": "n", "sensors": []}}\n', "$.register.sensors", "one sensor"),
        (b'{"deregister": {"sensing-id": "other"}}\n', "$.deregister.sensing-id", "not registered"),
        (
            b'{"sensing": {"sensing-id": "n", "sensors": [{"name": "t", "type": "temp", "value": 1e999}]}}\n',
            "$.sensing.sensors[0].value",
            "out of range",
        ),
    ],
)
def test_a_mistake_is_told_by_its_place_and_the_connection_stays(
    line: bytes, place: str, problem: str
) -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'") as events,
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(line)
            error = (await network.hear())["error"]
            assert error["place"] == place
            assert problem in error["problem"]
            network.say(sensing("good", 1))
            assert await values(aiter(events), 1) == [1]

    run(scenario())


def test_the_good_readings_of_a_message_with_bad_ones_are_kept() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'") as events,
            connected(node.sensor_addresses[0]) as network,
        ):
            message = sensing("n", 1, 2, 3, seq=9)
            message["sensing"]["sensors"][1] = {"name": "t", "type": "temp", "value": "9" * 30}
            network.say(message)
            error = (await network.hear())["error"]
            assert (error["place"], error["sensing-id"]) == ("$.sensing.sensors[1].value", "n")
            assert await network.hear() == {"ack": {"sensing-id": "n", "seq": 9}}
            assert await values(aiter(events), 2) == [1, 3]

    run(scenario())


def test_whoever_makes_nothing_but_mistakes_is_cut_off_and_nobody_else_is() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            connected(node.sensor_addresses[0]) as bad,
            connected(node.sensor_addresses[0]) as good,
        ):
            bad.say(*[b'{"what": {}}\n'] * (ERRORS_MAX + 5))
            said = await bad.hear_end()
            assert len(said) == ERRORS_MAX
            assert all("error" in one for one in said)
            good.say(sensing("n", 1, seq=1))
            assert await good.hear() == {"ack": {"sensing-id": "n", "seq": 1}}

    run(scenario())


def test_objects_and_registers_that_are_too_large_are_told_so() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            connected(node.sensor_addresses[0]) as network,
        ):
            network.say(b'{"sensing": {"sensing-id": "' + b"x" * FIRST_SIZE_MAX + b'"}}\n')
            assert f"at most {FIRST_SIZE_MAX} bytes" in (await network.hear())["error"]["problem"]
            network.say(sensing("n", 1, seq=1))
            assert "ack" in await network.hear()
            many = [{"name": str(n), "type": "t"} for n in range(SENSORS_MAX + 1)]
            network.say(register("big", *many))
            assert (await network.hear())["error"]["place"] == "$.register.sensors"
            network.say(register("small", sensor("t")), sensing("small", 1, seq=1))
            assert (await network.hear())["ack"]["sensing-id"] == "small"

    run(scenario())


def test_a_bad_datagram_is_answered_by_no_more_than_it_has_said() -> None:
    async def scenario() -> None:
        async with (
            running(sensor_port=0) as node,
            tidings.connect(node.addresses[0]) as bus,
            bus.subscribe("type = 'temp'") as events,
            by_udp(node.sensor_addresses[1]) as network,
        ):
            network.say(b"\xff")
            network.say(b'{"sensing": ' + b" " * 200)
            assert "cut short" in (await network.hear())["error"]["problem"]
            network.say(sensing("n", 1))
            assert await values(aiter(events), 1) == [1]

    run(scenario())
