"""Subscriptions and advertisements from the client's end: credit, acknowledgements, any series of cuts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.clients import Client, Recorder, event, run, spoken
from protocol.rig import Rig
from tidings.errors import Refused
from tidings.protocol.frames import encode
from tidings.protocol.messages import Acknowledge, Credit, Deliver, Notice, Request


@pytest.fixture
def rig() -> Rig:
    return Rig()


def publish(client: Client, *numbers: int, delivery: str = "transient") -> None:
    for n in numbers:
        client.core.publish(event(n, delivery))


def values(recorder: Recorder) -> list[int]:
    """What was taken, by the attribute n."""
    recorder.work()
    return [event["n"] for event in recorder.taken]


# -- credit


def test_events_come_within_the_prefetch_and_go_on_when_they_are_taken(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe(prefetch=4)
    publish(client, *range(20))
    run(client)
    assert len(recorder.arrived) == 4
    recorder.work(1)
    run(client)
    assert len(recorder.arrived) == 3  # credit is given by halves
    recorder.work(1)
    run(client)
    assert len(recorder.arrived) == 4
    while recorder.arrived:
        recorder.work(3)
        run(client)
    assert recorder.counters == list(range(1, 21))


def test_a_prefetch_of_one_is_enough(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe(prefetch=1)
    publish(client, 1, 2, 3)
    run(client)
    for _ in range(3):
        recorder.work()
        run(client)
    assert recorder.counters == [1, 2, 3]


def test_events_held_over_a_cut_count_against_the_prefetch(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(prefetch=4)
    run(client, other)
    publish(other, 1, 2, 3)
    run(client, other)
    client.cut()
    client.connect(rig)
    run(client, other)
    publish(other, 4, 5, 6)
    run(client, other)
    assert len(recorder.arrived) == 4
    recorder.work()
    run(client, other)
    assert values(recorder) == [1, 2, 3, 4, 5, 6]


# -- after a cut


def test_a_live_subscription_is_made_again_and_told_that_there_may_be_a_gap(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe()
    run(client, other)
    client.cut()
    publish(other, 1)
    run(other)
    client.connect(rig)
    run(client)
    publish(other, 2)
    run(client, other)
    assert values(recorder) == [2]
    assert recorder.gaps == [(0, "disconnected")]
    assert [error for _, error in client.answers] == [None]


def test_a_watch_names_its_queue_each_time_it_is_made(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    client.subscribe("n > 1", queue="jobs")
    for _ in range(2):
        (request,) = [one for one in spoken(client) if isinstance(one, Request)]
        assert (request.operation, request.arguments["queue"]) == ("subscribe", "jobs")
        client.cut()
        client.connect(rig)
        client.send()
        rig.run()
        client.hear()


def test_a_durable_subscription_goes_on_where_it_stood(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    publish(other, 1, 2, delivery="reliable")
    run(client, other)
    recorder.work(1)
    client.cut()
    publish(other, 3, delivery="reliable")
    run(other)
    client.connect(rig)
    run(client, other)
    assert values(recorder) == [1, 2, 3]
    assert recorder.gaps == []


def test_a_lost_acknowledgement_is_given_again(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    publish(other, 1, 2, delivery="reliable")
    run(client, other)
    recorder.work()
    client.cut()
    client.connect(rig)
    run(client)
    assert rig.broker.status()["durables"][0]["depth"] == 0


def test_a_new_process_gets_what_was_not_acknowledged_and_it_is_marked(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    publish(other, 1, 2, 3, delivery="reliable")
    run(client, other)
    recorder.work(1)
    run(client)
    client.cut()
    heir = Client(rig, "three")
    recorder = heir.subscribe(durable="d")
    run(heir)
    assert values(recorder) == [2, 3]
    assert recorder.redelivered == [2, 3]


def test_history_goes_on_behind_the_last_position(rig: Rig) -> None:
    other = Client(rig, "two")
    publish(other, 1, 2, 3, delivery="persistent")
    run(other)
    client = Client(rig)
    recorder = client.subscribe(since=2)
    run(client)
    client.cut()
    publish(other, 4, delivery="persistent")
    run(other)
    client.connect(rig)
    run(client)
    assert values(recorder) == [2, 3, 4]


def test_another_store_has_other_positions(rig: Rig) -> None:
    other = Client(rig, "two")
    publish(other, 1, 2, 3, delivery="persistent")
    client = Client(rig)
    recorder = client.subscribe(since=1)
    run(client, other)
    client.cut()
    empty = Rig()
    empty.broker.node = "another"
    client.connect(empty)
    newcomer = Client(empty, "three")
    publish(newcomer, 4, delivery="persistent")
    run(client, newcomer)
    assert values(recorder) == [1, 2, 3, 4]


def test_last_values_that_were_had_do_not_come_again_after_a_cut(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    publish(other, 1)
    run(client, other)
    recorder = client.subscribe(last=True)
    run(client)
    client.cut()
    client.connect(rig)
    run(client)
    assert values(recorder) == [1]


def test_a_live_subscriber_does_not_get_twice_what_is_sent_again_to_a_restarted_node(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe()
    run(client, other)
    publish(other, 1, delivery="reliable")
    other.send()
    rig.run()
    client.hear()  # the acceptance is lost
    for one in (client, other):
        one.cut()
    restarted = rig.restart()
    client.connect(restarted)
    run(client)
    other.connect(restarted)
    publish(other, 2)
    run(client, other)
    assert values(recorder) == [1, 2]


# -- the end


def test_after_unsubscribing_nothing_more_comes(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    run(client)
    client.hear_of(client.core.unsubscribe(recorder.subscription))
    publish(client, 1)
    run(client)
    assert recorder.arrived == []
    assert rig.broker.exchange.subscriptions == 0
    assert client.answers[-1] == (None, None)


def test_an_acknowledgement_goes_before_the_end(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    publish(other, 1, delivery="reliable")
    run(client, other)
    recorder.work()
    client.hear_of(client.core.unsubscribe(recorder.subscription))
    run(client)
    assert rig.broker.status()["durables"][0]["depth"] == 0


def test_ending_one_while_there_is_no_connection_is_done_at_once(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    run(client)
    client.cut()
    client.hear_of(client.core.unsubscribe(recorder.subscription))
    assert client.answers[-1] == (None, None)
    client.connect(rig)
    run(client)
    assert rig.broker.exchange.subscriptions == 0


def test_one_that_is_ended_before_it_was_answered_leaves_nothing(rig: Rig) -> None:
    client = Client(rig)
    run(client)
    recorder = client.subscribe()
    client.hear_of(client.core.unsubscribe(recorder.subscription))
    run(client)
    assert rig.broker.exchange.subscriptions == 0


def test_a_subscription_taken_over_by_another_client_is_told(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    other.subscribe(durable="d")
    run(client, other)
    assert "taken over" in recorder.reason


def test_one_that_can_t_be_made_again_is_ended(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe("n > 1", durable="d")
    run(client, other)
    client.cut()
    other.hear_of(other.core.request("unsubscribe", {"durable": "d"}, "again"))
    other.subscribe("n > 2", durable="d")
    run(other)
    client.connect(rig)
    run(client, other)
    assert "exists" in recorder.reason


def test_a_refused_subscription_leaves_nothing(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe(on_slow="latest")
    run(client)
    ((_, error),) = client.answers
    assert isinstance(error, Refused)
    client.cut()
    client.connect(rig)
    run(client)
    assert len(client.answers) == 1
    assert recorder.reason == ""


@pytest.mark.parametrize("positions", [b"", b"\0" * 7, b"\0" * 16])
def test_positions_that_do_not_fit_the_events_end_the_connection(rig: Rig, positions: bytes) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    run(client)
    raw = b"\xdd\0\0\0\x01" + b"\x96\x01\xa1t\0\x80\xc0\xc0"
    number = recorder.subscription.number
    client.core.receive(encode(Deliver(number, "s", 1, None, positions), raw), rig.now)
    assert client.core.is_given_up
    assert recorder.arrived == []


def test_gaps_are_told(rig: Rig) -> None:
    client = Client(rig)
    recorder = client.subscribe()
    run(client)
    notice = Notice("gap", recorder.subscription.number, {"dropped": 3, "reason": "slow"})
    client.core.receive(encode(notice), rig.now)
    assert recorder.gaps == [(3, "slow")]


def test_acknowledgements_of_many_events_are_one_frame(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    recorder = client.subscribe(durable="d")
    run(client, other)
    publish(other, *range(80), delivery="reliable")
    run(client, other)
    recorder.work()
    assert [type(message) for message in spoken(client)] == [Acknowledge, Credit]


# -- advertisements


class Wish:
    """Someone who advertises."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def changed(self, filters: list[str]) -> None:
        self.told.append(filters)

    def ended(self, reason: str) -> None:
        self.reason = reason


def test_an_advertisement_is_told_who_wants_it_also_after_a_cut(rig: Rig) -> None:
    client, other = Client(rig), Client(rig, "two")
    wish = Wish()
    offer = client.core.advertise("type = 't'", wish)
    run(client, other)
    recorder = other.subscribe("n > 1")
    run(client, other)
    client.cut()
    client.connect(rig)
    run(client, other)
    other.core.unsubscribe(recorder.subscription)
    run(client, other)
    assert wish.told == [[], ["n > 1"], ["n > 1"], []]
    client.core.withdraw(offer)
    run(client)
    assert rig.broker.exchange.advertisements == 0


def test_an_advertisement_is_told_that_the_connection_is_closed_for_good(rig: Rig) -> None:
    client, wish = Client(rig), Wish()
    client.core.advertise("", wish)
    run(client)
    client.core.close()
    assert "closed" in wish.reason


# -- any series of cuts, crashes and deliveries

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["reliable", "persistent", "transient"]), st.integers(0, 1)),
        st.tuples(st.sampled_from(["send", "hear"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["flow", "half_flow", "tick", "sync", "read", "crash"]), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 3)),
        st.tuples(st.just("work"), st.integers(1, 3)),
    ),
    min_size=15,  # otherwise most series are too short for anything to go wrong
    max_size=80,
)


class World:
    """Two publishers, a durable and a live subscriber, and a node that crashes."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.clients = [Client(self.rig, f"system{n}") for n in range(4)]
        self.durable = self.clients[2].subscribe(durable="d", prefetch=3)
        self.live = self.clients[3].subscribe(prefetch=1_000)
        run(*self.clients)
        self.published: dict[str, list[int]] = {"system0": [], "system1": []}
        self.n = 0

    def do(self, step: str, who: int) -> None:
        client = self.clients[who]
        if step in ("reliable", "persistent", "transient"):
            self.publish(who, step)
        elif step in ("send", "hear"):
            getattr(client, step)()
        elif step == "cut":
            client.cut()
            client.connect(self.rig)
        elif step == "work":
            self.durable.work(who)
            self.live.work(who)
        elif step in ("flow", "half_flow", "crash"):
            getattr(self, step)()
        else:
            self.rig.tick()
            getattr(self.rig, step)()

    def flow(self) -> None:
        """Everything moves by one step."""
        for client in self.clients:
            client.send()
        self.rig.run()
        for client in self.clients:
            client.hear()

    def half_flow(self) -> None:
        """Events reach the subscribers; nothing is on disk, and the publishers know nothing yet."""
        for client in self.clients:
            client.send()
        self.rig.tick()
        for client in self.clients[2:]:
            client.hear()

    def publish(self, who: int, delivery: str) -> None:
        self.n += 1
        counter = self.clients[who].core.publish(event(self.n, delivery))
        if delivery != "transient":
            self.published[f"system{who}"].append(counter)

    def crash(self) -> None:
        """All connections break, and what was not on disk is gone."""
        for client in self.clients:
            client.cut()
        self.rig = self.rig.restart()
        for client in self.clients:
            client.connect(self.rig)

    def heal(self) -> None:
        """Let everything arrive."""
        run(*self.clients)
        while self.durable.arrived or self.live.arrived:
            self.durable.work()
            self.live.work()
            run(*self.clients)


def by_system(recorder: Recorder) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"system0": [], "system1": []}
    for taken in recorder.taken:
        assert taken.origin is not None
        found[taken.origin.system or ""].append(taken.counter)
    return found


@given(STEPS)
def test_no_series_of_cuts_and_crashes_loses_doubles_or_disorders_a_reliable_event(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    for step, who in steps:
        world.do(step, who)
    world.heal()
    for system, counters in by_system(world.durable).items():
        assert counters == sorted(set(counters))
        assert set(world.published[system]) <= set(counters)
    for counters in by_system(world.live).values():
        assert counters == sorted(set(counters))
    assert all(client.core.publications.is_empty for client in world.clients)
    assert all(client.core.publications.size == 0 for client in world.clients)
