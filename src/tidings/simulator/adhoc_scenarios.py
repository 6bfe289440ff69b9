"""Scenarios of ad-hoc delivery, with hosts that move; one run is decided by its arguments alone.

`one` is the default of the ONE: 80 hosts on foot, 40 cars and 6 trams, a range of 10 m and 250 kB/s, for 12
hours; a message of 0.5 to 1 MB every 25 to 35 s, with a life of 300 min; buffers of 5 MB. Instead of
Helsinki, whose streets are not ours to ship, it has streets 400 m apart in the same 4500 × 3400 m: with them,
direct delivery reaches what is published for Helsinki.

`vahdat` is the one of Vahdat and Becker: 50 hosts at random way-points in 1500 × 300 m, with up to 20 m/s;
1,980 messages of 1 KB, from each of 45 hosts to each other, one a second.

`emma` asks EMMA's questions: hosts at random way-points in 1000 × 1000 m, with 1 to 2 m/s; each host sends a
message every 200 s, half of the messages are persistent, and their priorities are 0 and 9.

`area` has the same hosts, and messages to all that come to a corner of 300 × 300 m within half an hour.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messaging import SendOptions
from tidings.adhoc.strategies import strategy_type
from tidings.adhoc.strategies.base import ReplicationStrategy
from tidings.errors import UserError
from tidings.ids import StoredIds
from tidings.simulator.adhoc_cores import host_name
from tidings.simulator.adhoc_reach import parse_size
from tidings.simulator.adhoc_timed import Sent, TimedRun
from tidings.simulator.mobility import Movers, Terrain, Track, meetings, tracks

HOUR_S = 3_600.0
PLACE_S = 10.0
"""Seconds after which a host looks where it is."""


class AdhocScenario(Struct, frozen=True):
    """Hosts, how they move, and what they send."""

    terrain: Terrain
    groups: tuple[Movers, ...]
    range_m: float
    duration_s: float
    bytes_per_s: float
    buffer: str
    ttl_s: float
    interval_s: tuple[float, float]
    """Between two messages, of all hosts together unless `is_each`."""
    size: tuple[int, int]
    senders: int | None = None
    """Hosts that send and are sent to; None for all."""
    messages_max: int | None = None
    area: str = ""
    """Where messages are for all within, if they are for nobody else."""
    is_each: bool = False
    """Whether the interval is that of each host, so that more hosts send more."""
    is_mixed: bool = False
    """Whether half of the messages are persistent, and priorities are 0 and 9."""

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return sum(group.hosts for group in self.groups)


SCENARIOS = {
    "one": AdhocScenario(
        terrain=Terrain(4_500.0, 3_400.0, 400.0),
        groups=(
            Movers(80, (0.5, 1.5)),
            Movers(40, (2.7, 13.9)),
            Movers(6, (7.0, 10.0), (10.0, 30.0)),
        ),
        range_m=10.0,
        duration_s=12 * HOUR_S,
        bytes_per_s=250e3,
        buffer="5MB",
        ttl_s=5 * HOUR_S,
        interval_s=(25.0, 35.0),
        size=(500_000, 1_000_000),
    ),
    "vahdat": AdhocScenario(
        terrain=Terrain(1_500.0, 300.0),
        groups=(Movers(50, (0.01, 20.0), (0.0, 0.0)),),
        range_m=50.0,
        duration_s=2 * HOUR_S,
        bytes_per_s=250e3,
        buffer="unlimited",
        ttl_s=24 * HOUR_S,
        interval_s=(1.0, 1.0),
        size=(1_000, 1_000),
        senders=45,
        messages_max=1_980,
    ),
    "emma": AdhocScenario(
        terrain=Terrain(1_000.0, 1_000.0),
        groups=(Movers(40, (1.0, 2.0), (0.0, 60.0)),),
        range_m=50.0,
        duration_s=2 * HOUR_S,
        bytes_per_s=250e3,
        buffer="20",
        ttl_s=HOUR_S,
        interval_s=(200.0, 200.0),
        size=(1_000, 1_000),
        is_each=True,
        is_mixed=True,
    ),
    "area": AdhocScenario(
        terrain=Terrain(1_000.0, 1_000.0),
        groups=(Movers(40, (1.0, 2.0), (0.0, 60.0)),),
        range_m=50.0,
        duration_s=2 * HOUR_S,
        bytes_per_s=250e3,
        buffer="20",
        ttl_s=HOUR_S / 2,
        interval_s=(100.0, 140.0),
        size=(1_000, 1_000),
        area="POLYGON ((700 700, 1000 700, 1000 1000, 700 1000, 700 700))",
    ),
}
"""The scenarios by name."""

_tracks: dict[tuple[object, ...], Track] = {}  # of the last run: strategies are compared over the same ways


def adhoc_run(
    seed: int,
    *,
    scenario: str = "one",
    strategy: str = "epidemic",
    range: float = 0.0,
    buffer: str = "",
    hosts: int = 0,
    duration: float = 0.0,
    reliability: float = 0.0,
    copies: int = 0,
    interval: float = 0.0,
) -> dict[str, float | None]:
    """Run a scenario once, and return its figures; what is 0 or empty is as the scenario has it.

    `duration` is in hours; `copies` is for spray and wait; `interval` is in seconds between two messages.
    """
    options = (range, buffer, hosts, duration, reliability, copies, interval)
    run, chosen, _ = make_run(seed, scenario, strategy, *options)
    return figures(run, chosen)


def make_run(
    seed: int,
    scenario: str,
    strategy: str,
    range_m: float = 0.0,
    buffer: str = "",
    hosts: int = 0,
    duration_h: float = 0.0,
    reliability: float = 0.0,
    copies: int = 0,
    interval_s: float = 0.0,
) -> tuple[TimedRun, AdhocScenario, Track]:
    """Run a scenario, and return the run with its ways."""
    if scenario not in SCENARIOS:
        raise UserError(f"scenario {scenario!r} is not one of {', '.join(SCENARIOS)}")
    chosen = SCENARIOS[scenario]
    if hosts:
        share = hosts / chosen.hosts
        groups = tuple(replace(one, hosts=max(1, round(one.hosts * share))) for one in chosen.groups)
        chosen = replace(chosen, groups=groups)
    chosen = replace(
        chosen,
        range_m=range_m or chosen.range_m,
        buffer=buffer or chosen.buffer,
        duration_s=duration_h * HOUR_S or chosen.duration_s,
        interval_s=(interval_s, interval_s) if interval_s else chosen.interval_s,
    )
    track = _track(chosen, seed)
    run = TimedRun(seed, _hosts(chosen, strategy_type(strategy), copies), chosen.bytes_per_s)
    run.plan(meetings(track, chosen.range_m))
    if chosen.area:
        run.follow(track, PLACE_S)
    _plan_messages(run, chosen, Random(seed), reliability or None)
    run.run(chosen.duration_s)
    return run, chosen, track


def _track(chosen: AdhocScenario, seed: int) -> Track:
    key = (chosen.terrain, chosen.groups, chosen.duration_s, seed)
    if key not in _tracks:
        _tracks.clear()
        _tracks[key] = tracks(chosen.terrain, chosen.groups, chosen.duration_s, seed)
    return _tracks[key]


def _hosts(chosen: AdhocScenario, kind: type[ReplicationStrategy], copies: int) -> list[AdhocHost]:
    room = parse_size(chosen.buffer)
    is_count = chosen.buffer.isdecimal()
    make: Callable[..., ReplicationStrategy] = kind
    return [
        AdhocHost(
            StoredIds(host_name(number), 1),
            make(host_name(number), copies) if copies else make(host_name(number)),
            ReplicaBuffer(room if is_count else None, None if is_count else room),
        )
        for number in range(chosen.hosts)
    ]


def _plan_messages(run: TimedRun, chosen: AdhocScenario, random: Random, reliability: float | None) -> None:
    """Plan what is sent, to hosts by chance, or from each to each where the scenario names the senders."""
    senders = min(chosen.senders or chosen.hosts, chosen.hosts)
    pairs = [(one, other) for one in range(senders) for other in range(senders) if one != other]
    random.shuffle(pairs)
    interval_s = tuple(one / chosen.hosts if chosen.is_each else one for one in chosen.interval_s)
    now, number = random.uniform(*interval_s), 0
    while now < chosen.duration_s and number < (inf if chosen.messages_max is None else chosen.messages_max):
        pair = pairs[number % len(pairs)] if chosen.messages_max else random.sample(range(senders), 2)
        options = SendOptions(
            size=random.randint(*chosen.size),
            ttl_s=chosen.ttl_s,
            persistent=chosen.is_mixed and number % 2 == 1,
            priority=(0, 9)[number // 2 % 2] if chosen.is_mixed else 4,
            reliability=reliability,
        )
        if chosen.area:
            run.cast_at(now, pair[0], chosen.area, **options)
        else:
            run.send_at(now, *pair, **options)
        now += random.uniform(*interval_s)
        number += 1


def figures(run: TimedRun, chosen: AdhocScenario) -> dict[str, float | None]:
    """The figures of a run; of mixed messages also those of each kind."""
    if chosen.area:
        return run.cast_figures()
    found = run.figures()
    if chosen.is_mixed:
        for persistent, priority in ((True, 9), (True, 0), (False, 9), (False, 0)):
            name = f"{'persistent' if persistent else 'plain'}_{priority}"
            some = [
                one
                for one in run.messages.values()
                if (one.persistent, one.priority) == (persistent, priority)
            ]
            found |= _of_kind(name, some)
    return found


def _of_kind(name: str, some: list[Sent]) -> dict[str, float | None]:
    delays = [one.delivered_at - one.sent_at for one in some if one.delivered_at < inf]
    return {
        f"delivery_{name}": len(delays) / len(some) if some else None,
        f"delay_{name}_s": sum(delays) / len(delays) if delays else None,
    }
