"""Simulated city: a thousand sensors, a gateway, a node, and citizens whose interests change.

It shows the use of the gateway. All parts are the real cores, joined in virtual time: networks that move,
leave and lose their connection, the gateway, the node, and its clients. An oracle that knows every change at
once says which readings need to be sent. The readings sent beyond these are the cost of the latency of
control messages, and may be one per cent at most. Every wanted reading arrives once and unchanged, as judged
by plain conditions; and when nobody wants anything any more, all sensors are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

from msgspec import Struct

from tidings.event import Batch
from tidings.protocol.subscriber import ClientSubscription, MissedNumbers, Wanted
from tidings.sensors.city import KINDS, SIZE_M
from tidings.simulator.city_account import SETTLE_S, Box, CityAccount, CityWish
from tidings.simulator.city_network import SENSORS, SimulatedGateway, Station
from tidings.simulator.client import SimulatedClient, must_not
from tidings.simulator.node import SimulatedNode
from tidings.simulator.storm import run_storm
from tidings.simulator.world import NOTICE_S_MAX, Action, World

NETWORKS = 200
CITIZENS = 8
WISHES_MAX = 3
"""Most wishes of one citizen at a time."""
CITY_S = 60.0
HOLD_S, PAUSE_S = 40.0, 20.0
"""Mean duration of a wish, and mean time between two wishes of a citizen."""
LEAVE_S, CUT_S = 5.0, 3.0
"""Mean time between two networks that leave, and between two that lose their connection."""
LATE_MAX = 0.01
"""Largest share of readings sent beyond those of the oracle."""
QUIET_S = 2 * NOTICE_S_MAX + SETTLE_S
"""Longest time until the last sensor is off: networks with a broken connection must notice that first."""
PREFETCH = 10_000


class CityVerdict(Struct, frozen=True):
    """Outcome of a day in a city; counts are of readings, where nothing else is said."""

    seed: int
    trace: str
    networks: int
    sensors: int
    wishes: int
    made: int
    wanted: int
    oracle: int
    """Readings that the oracle would have had sent."""
    sent: int
    late: int
    """Readings sent beyond that."""
    unwanted: int
    """Readings that were sent and nobody wanted: late, or because a request has only one range per sensor."""
    missed: int
    """Readings that were wanted and not sent: a sensor was not on yet, or its connection was broken."""
    delivered: int
    asked: int
    """Messages to networks that requested readings, or cancelled a request."""
    named: int
    """Sensors named in these messages."""
    moves: int
    left: int
    cuts: int
    steps: int

    @property
    def excess(self) -> float:
        """Share of readings sent beyond those of the oracle."""
        return self.late / max(self.oracle, 1)

    def __str__(self) -> str:
        return (
            f"{self.made:,} readings made, {self.wanted:,} wanted, {self.sent:,} sent, "
            f"{self.late:,} of them too late ({self.excess:.2%} over the oracle), "
            f"{self.delivered:,} deliveries, {self.asked:,} control messages"
        )


class Citizen(SimulatedClient):
    """Client whose wishes come and go, each with a subscription."""

    def __init__(self, world: World, name: str, node: SimulatedNode, account: CityAccount) -> None:
        self.account = account
        self.subscriptions: dict[CityWish, CityReader] = {}
        super().__init__(world, name, node)

    def want(self, wish: CityWish) -> None:
        """Begin a wish, and subscribe for it."""
        self.account.asked(wish, self.world.clock.now)
        self.subscriptions[wish] = CityReader(self, wish)
        self.world.note(self.name, "wants", wish.filter)
        self.pump()

    def drop(self, wish: CityWish) -> None:
        """End a wish and its subscription."""
        reader = self.subscriptions.pop(wish)
        self.account.closed(wish, self.world.clock.now)
        self.world.note(self.name, "drops", wish.filter)
        self.connection.unsubscribe(reader.intake)
        self.pump()


class CityReader:
    """Subscription of a citizen."""

    def __init__(self, citizen: Citizen, wish: CityWish) -> None:
        self._citizen = citizen
        self._wish = wish
        wanted = Wanted(str(wish.filter))
        self.intake: ClientSubscription = citizen.connection.subscribe(wanted, self, PREFETCH)
        self.intake.begun.then(self._opened, must_not)

    def _opened(self, _result: object) -> None:
        self._wish.open_at = self._citizen.world.clock.now

    def deliver(self, batch: Batch, _positions: Sequence[int] | None, redelivered: bool) -> None:
        """Check events against the wish, and consume them."""
        assert not redelivered
        for event in batch:
            self._citizen.account.delivered(self._wish, event)
        self._citizen.connection.consume(self.intake, len(batch))

    def gap(self, dropped: int, reason: str, missed: MissedNumbers | None = None) -> None:  # noqa: ARG002
        """Fail: no subscriber in the city is slow enough to lose events."""
        raise AssertionError(f"{self._citizen.name} has lost {dropped} events: {reason}")

    def ended(self, reason: str) -> None:
        """Fail: the node ends no subscription here."""
        raise AssertionError(f"{self._citizen.name} was ended: {reason}")


class CityStorm:
    """Run of a city: `rage`, then `calm`."""

    def __init__(self, seed: int, networks: int = NETWORKS) -> None:
        self.world = World(seed)
        self.account = CityAccount()
        self.node = SimulatedNode(self.world, "node")
        self.gateway = SimulatedGateway(self.world, "gateway", self.node)
        self.citizens = [
            Citizen(self.world, f"citizen-{number}", self.node, self.account) for number in range(CITIZENS)
        ]
        self.stations: list[Station] = []
        for _ in range(networks):
            self._come()
        self.cuts = self.left = 0
        self.is_awake = False

    def rage(self, duration_s: float = CITY_S) -> None:
        """Let wishes come and go, and networks move, leave and lose their connection."""
        self.is_awake = True
        for citizen in self.citizens:
            self._begin(citizen)
        self._after(LEAVE_S, self._replace)
        self._after(CUT_S, self._cut)
        self.world.clock.run(self.world.clock.now + duration_s)
        self.is_awake = False

    def calm(self) -> CityVerdict:
        """Check that everything has arrived and that no unwanted reading is requested; return the counts."""
        self.world.clock.run(self.world.clock.now + QUIET_S)
        numbered = {station.name for station in self._here if station.is_numbered}
        missing = list(self.account.missing(numbered, self.world.clock.now))
        assert not missing, f"{len(missing)} readings are missing, the first: {missing[:3]}"
        for citizen in self.citizens:
            for wish in list(citizen.subscriptions):
                citizen.drop(wish)
        self.world.clock.run(self.world.clock.now + QUIET_S)
        self._check_silence()
        verdict = self._verdict()
        assert verdict.excess <= LATE_MAX, f"{verdict.late} of {verdict.sent} readings were sent too late"
        return verdict

    # Occurrences

    def _after(self, mean_s: float, action: Action) -> None:
        """Schedule an action after a random delay; it is skipped when the run is over."""

        def act() -> None:
            if self.is_awake:
                action()

        self.world.clock.after(self.world.random.expovariate(1 / mean_s), act)

    def _begin(self, citizen: Citizen) -> None:
        if len(citizen.subscriptions) < WISHES_MAX:
            wish = make_wish(self.world.random, [station.name for station in self._here])
            citizen.want(wish)
            self._after(HOLD_S, lambda: citizen.drop(wish))
        self._after(PAUSE_S, lambda: self._begin(citizen))

    def _come(self) -> None:
        number = len(self.stations) + 1
        self.stations.append(Station(self.world, number, self.gateway, self.account))

    def _replace(self) -> None:
        """Replace a network by a new one."""
        self.left += 1
        self.world.random.choice(self._here).leave()
        self._come()
        self._after(LEAVE_S, self._replace)

    def _cut(self) -> None:
        """Cut the connection of a network."""
        if self._here:
            self.cuts += 1
            self.world.random.choice(self._here).cut()
        self._after(CUT_S, self._cut)

    @property
    def _here(self) -> list[Station]:
        return [station for station in self.stations if not station.is_gone]

    # Checks

    def _check_silence(self) -> None:
        """Check that all sensors are off, at the networks and in the gateway, once nobody wants anything."""
        on = [(station.name, *station.core.asked) for station in self._here if station.core.asked]
        assert not on, f"nobody wants anything, yet {len(on)} networks are on: {on[:5]}"
        known = self.gateway.core.overview()
        here = {network["sensing-id"] for network in known if network["state"] == "here"}
        assert here == {station.name for station in self._here}, "who is there is not who is known"
        assert not any(sensor["on"] for network in known for sensor in network["sensors"])

    def _verdict(self) -> CityVerdict:
        account, messages = self.account, self.gateway.messages
        made, sent = account.made.values(), [account.made[number] for number in account.sent]
        return CityVerdict(
            seed=self.world.seed,
            trace=self.world.trace,
            networks=len(self._here),
            sensors=SENSORS * len(self._here),
            wishes=len(account.wishes),
            made=len(made),
            wanted=sum(one.is_wanted for one in made),
            oracle=sum(one.is_for_oracle for one in made),
            sent=len(sent),
            late=sum(not one.is_for_oracle for one in sent),
            unwanted=sum(not one.is_wanted for one in sent),
            missed=sum(one.is_wanted for one in made) - sum(one.is_wanted for one in sent),
            delivered=sum(len(wish.got) for wish in account.wishes),
            asked=messages["subscribe"] + messages["unsubscribe"],
            named=self.gateway.named,
            moves=sum(station.moves for station in self.stations),
            left=self.left,
            cuts=self.cuts,
            steps=self.world.clock.steps,
        )


def make_wish(random: Random, sensing_ids: Sequence[str]) -> CityWish:
    """Return a random wish: values of one type or of all air, perhaps of a part of the city."""
    type = random.choice(list(KINDS))
    kind = KINDS[type]
    near = kind.mean + random.uniform(-1, 1) * kind.swing
    shape = random.random()
    if shape < 0.1:
        return CityWish(frozenset(one for one in KINDS if one.startswith("air.")), box=_part(random))
    if shape < 0.2:
        return CityWish(frozenset({type}), sensing_id=random.choice(sensing_ids))
    low, high = random.choice(((round(near, 1), inf), (-inf, round(near, 1)), (-inf, inf)))
    if shape < 0.4:
        low, high = round(near - kind.swing, 1), round(near + kind.swing, 1)
    return CityWish(frozenset({type}), low, high, box=_part(random) if shape > 0.7 else None)


def _part(random: Random) -> Box:
    """Return a random part of the city."""
    side_m = random.uniform(0.2, 0.6) * SIZE_M
    x, y = random.uniform(0, SIZE_M - side_m), random.uniform(0, SIZE_M - side_m)
    return x, y, x + side_m, y + side_m


def city(seed: int, duration_s: float = CITY_S, networks: int = NETWORKS) -> CityVerdict:
    """Run a city for a while; AssertionError names the broken rule, and the seed that repeats it."""
    return run_storm(CityStorm(seed, networks), duration_s)
