"""Real nodes in a line: queues, sensors and readers of the log have to do with what is at other nodes."""

from __future__ import annotations

from node.gateway.networks import connected, register, sensing, sensor
from node.peers import run
from overlay.real import Line

from tidings import Filter
from tidings.filters import Taxonomy


def test_a_bound_queue_gets_what_is_published_at_another_node() -> None:
    async def work() -> None:
        async with Line("a", "b", "c") as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            queue = await cleo.create_queue("jobs", bind="type = 'job' AND n > 1")
            await line.wait_wanted("type = 'job' AND n > 1", at="a", of="b")
            for n in range(5):
                await ann.publish("job", n=n, delivery="reliable")
            await ann.publish("job", n=9)
            got = [await queue.get(timeout_s=60) for _ in range(4)]
            assert [message["n"] for message in got] == [2, 3, 4, 9]
            assert {message.event.source for message in got} == {"ann@a"}
            await cleo.delete_queue("jobs")
            await line.wait_wanted(at="a", of="b")

    run(work())


def test_a_sensor_is_turned_on_by_a_subscription_at_another_node_and_off_when_it_goes() -> None:
    async def work() -> None:
        async with (
            Line("a", "b", "c", settings={"a": {"sensor_port": 0}}) as line,
            connected(line["a"].sensor_addresses[0]) as network,
        ):
            cleo = await line.bus("c", "cleo")
            network.say(register("n", *(sensor(str(n), f"kind{n}") for n in (1, 2))))
            async with cleo.subscribe("type = 'kind2'", passive=True) as passive:
                await line.wait_wanted("type = 'kind2'", at="a", of="b")
                async with cleo.subscribe("type = 'kind1'") as events:
                    asked = await network.hear()
                    assert asked == {"subscribe": {"sensing-id": "n", "sensors": [{"name": "1"}]}}
                    network.say(sensing("n", 1, "2.5", type="kind1"))
                    assert [(await anext(events))["value"] for _ in range(2)] == [1, 2.5]
                ended = await network.hear()
                assert ended == {"unsubscribe": {"sensing-id": "n", "sensors": [{"name": "1"}]}}
                network.say(sensing("n", 7, type="kind2"))
                assert (await anext(passive))["value"] == 7, "it takes what comes, and asks for nothing"

    run(work())


def test_a_filter_with_a_unit_reaches_sensors_queues_and_subscribers_over_two_links() -> None:
    dusty = Filter("type = 'dust' AND value > 50 'µg/m³'", taxonomy=Taxonomy())

    async def work() -> None:
        async with (
            Line("a", "b", "c", settings={"a": {"sensor_port": 0}}) as line,
            connected(line["a"].sensor_addresses[0]) as network,
        ):
            cleo = await line.bus("c", "cleo")
            network.say(register("n", sensor("1", "dust"), sensor("2", "noise")))
            queue = await cleo.create_queue("dusty", bind=str(dusty))
            async with cleo.subscribe(dusty, convert={"value": "µg/m³"}) as events:
                asked = (await network.hear())["subscribe"]
                assert [one["name"] for one in asked["sensors"]] == ["1"]
                readings = [
                    {"name": "1", "type": "dust", "value": value, "unit": "mg/m³"} for value in (0.04, 0.06)
                ]
                network.say({"sensing": {"sensing-id": "n", "sensors": readings}})
                event = await anext(events)
                assert (event["value"], event["unit"], event["original.value"]) == (60.0, "µg/m³", 0.06)
            message = await queue.get(timeout_s=60)
            assert (message["value"], message["unit"]) == (0.06, "mg/m³")

    run(work())


def test_a_passive_filter_does_not_turn_on_what_a_demanding_one_beside_it_does_not_want() -> None:
    async def work() -> None:
        async with Line("a", "b", "c") as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with (
                ann.advertise("type = 't' AND x < 5") as low,
                ann.advertise("type = 't' AND x > 5") as high,
                cleo.subscribe("x > 0", passive=True),
                cleo.subscribe("x > 6"),
            ):
                await high.wait_wanted()
                assert high.filters == (Filter("x > 6"),)
                await line.wait_wanted("x > 0", "x > 6", at="a", of="b")
                assert not low.wanted

    run(work())


def test_a_reader_of_the_log_at_one_node_demands_from_sources_at_another() -> None:
    async def work() -> None:
        async with Line("a", "b", "c") as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with ann.advertise("type = 'air'") as interest:
                await cleo.log.reader("spark", where="type = 'air' AND value > 5", lease_s=60)
                await interest.wait_wanted()
                assert interest.filters == (Filter("type = 'air' AND value > 5"),)
                await cleo.log.leave("spark")
                await interest.wait_unwanted()

    run(work())


def test_requests_and_answers_cross_nodes_both_ways() -> None:
    async def work() -> None:
        async with Line("a", "b", "c") as line:
            ann, cleo = await line.bus("a", "ann"), await line.bus("c", "cleo")
            async with (
                ann.listen("type = 'half'", lambda ask: ann.reply(ask, "halved", n=ask["n"] / 2)),
                cleo.listen("type = 'double'", lambda ask: cleo.reply(ask, "doubled", n=2 * ask["n"])),
            ):
                await line.wait_wanted("type = 'double'", at="a", of="b")
                await line.wait_wanted("type = 'half'", at="c", of="b")
                assert (await ann.request("double", n=21))["n"] == 42
                assert (await cleo.request("half", n=42))["n"] == 21

    run(work())
