"""The two clocks of a node, and a driver whose loop and clocks are moved by hand: what is due is done."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, cast

import pytest
from node.peers import ANSWER_S_MAX
from protocol.rig import Peer, Rig
from queues.rig import Client

from tidings.node import driver as driver_module
from tidings.node.assembly import CoreSettings
from tidings.node.driver import Driver, SteadyClock
from tidings.protocol import session
from tidings.protocol.access import OWN
from tidings.protocol.frames import FRAME_MAX, FrameReader, encode
from tidings.protocol.messages import ProtocolMessage
from tidings.store.memory import MemoryStore

START_S = 1_700_000_000.0
HOUR_S, YEAR_S = 3_600.0, 365 * 86_400.0
JUMPS_S = [-HOUR_S, -60.0, 5.0, HOUR_S, YEAR_S]


class Handle:
    """Something that is to be called by the loop."""

    def __init__(self, act: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._act: Callable[..., object] | None = act
        self._arguments = arguments

    def cancel(self) -> None:
        self._act = None

    def run(self) -> None:
        if self._act is not None:
            self._act(*self._arguments)


class HandLoop:
    """A loop whose time passes when it is told to, as far as a driver uses one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Handle] = []
        self._later: list[tuple[float, int, Handle]] = []
        self._made = 0
        self._from_threads: queue.SimpleQueue[Handle] = queue.SimpleQueue()

    def time(self) -> float:
        return self.now

    def call_soon(self, act: Callable[..., object], *arguments: Any) -> Handle:
        self._soon.append(Handle(act, arguments))
        return self._soon[-1]

    def call_soon_threadsafe(self, act: Callable[..., object], *arguments: Any) -> None:
        self._from_threads.put(Handle(act, arguments))

    def call_later(self, delay_s: float, act: Callable[..., object], *arguments: Any) -> Handle:
        return self.call_at(self.now + delay_s, act, *arguments)

    def call_at(self, when: float, act: Callable[..., object], *arguments: Any) -> Handle:
        self._made += 1
        handle = Handle(act, arguments)
        heappush(self._later, (when, self._made, handle))
        return handle

    def turn(self) -> None:
        """Do all that is to be done soon."""
        while self._soon:
            soon, self._soon = self._soon, []
            for handle in soon:
                handle.run()

    def hear(self) -> None:
        """Wait for what a thread has to say."""
        self._from_threads.get(timeout=ANSWER_S_MAX).run()

    def due(self, until: float) -> Iterator[None]:
        """Let time pass up to a moment, stopping at each thing that is due on the way."""
        while self._later and self._later[0][0] <= until:
            when, _, handle = heappop(self._later)
            self.now = max(self.now, when)
            handle.run()
            yield
        self.now = until


class DriverRig(Rig):
    """A driver on such a loop, for the clients of queues; `ahead_s` is how wrong the wall clock is."""

    def __init__(self) -> None:
        self.loop = HandLoop()
        self.ahead_s = 0.0
        clock = SteadyClock(lambda: START_S + self.loop.now + self.ahead_s, self.loop.time)
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.driver = Driver(MemoryStore("n"), loop, CoreSettings(lasts=False), clock)
        self.broker, self.queues = self.driver.broker, self.driver.core.queues
        self.peers: list[Peer] = []

    def connect(self) -> Peer:
        peer = Wired(self)
        self.peers.append(peer)
        return peer

    def run(self) -> None:
        self.loop.turn()
        while self.broker.promise > self.broker.mark_durable:
            self.loop.hear()
            self.loop.turn()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all that is due on the way."""
        for _ in self.loop.due(self.loop.now + seconds):
            self.run()
        self.run()


class Wired(Peer):
    """A client that is connected to the driver."""

    def __init__(self, rig: DriverRig) -> None:
        self.rig: DriverRig = rig
        self.frames: list[tuple[ProtocolMessage, bytes]] = []
        self._reader = FrameReader(FRAME_MAX)
        self._number = 0
        self.session = rig.driver.connect(Wire(self), OWN)

    def send(self, message: ProtocolMessage, events: bytes = b"") -> None:
        self.rig.driver.receive(self.session, encode(message, events))


class Wire:
    """Its way there."""

    is_paused = False

    def __init__(self, peer: Wired) -> None:
        self._peer = peer

    def send(self, frames: list[bytes]) -> None:
        self._peer.take(frames)

    def part(self) -> None:
        self._peer.rig.driver.lost(self._peer.session)


@pytest.fixture
def rig() -> Iterator[DriverRig]:
    made = DriverRig()
    yield made
    asyncio.run(made.driver.close())


def test_steady_time_goes_on_evenly_from_the_wall_clock_of_the_start() -> None:
    wall, monotonic = 500.0, 7.0
    clock = SteadyClock(lambda: wall, lambda: monotonic)
    assert (clock.now(), clock.shift(clock.now())) == (500.0, 0.0)
    wall, monotonic = 440.0, 10.0  # set back by 63 s
    assert (clock.now(), clock.shift(clock.now())) == (503.0, -63.0)


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_what_is_due_is_done_in_time_though_the_clock_was_wrong_for_five_seconds(
    rig: DriverRig, jump_s: float
) -> None:
    ann, bob = Client(rig), Client(rig, "b", "bob")
    ann.create("jobs", redelivery_s=10.0)
    ann.create("empty")
    ann.put("jobs", 1)
    ann.get("jobs")
    jobs, empty = bob.wait("jobs"), bob.wait("empty", 20.0)
    ann.ask("log.reader", name="spark", lease_s=30.0)
    ann.begin(1, 3.0)  # which has the node woken while the clock is wrong
    rig.pass_time(1.0)
    rig.ahead_s = jump_s
    ann.begin(2, 1.0)  # which sets the alarm anew
    rig.pass_time(5.0)
    rig.ahead_s = 0.0
    rig.pass_time(3.9)
    assert bob.got(jobs) is None
    rig.pass_time(0.2)
    assert [hand.n for hand in bob.got(jobs) or []] == [1]  # 10.1 s
    rig.pass_time(9.8)
    assert bob.got(empty) is None
    rig.pass_time(0.2)
    assert bob.got(empty) == []  # 20.1 s
    rig.pass_time(9.8)
    assert len(rig.broker.cursors.archives) == 1
    rig.pass_time(0.2)
    assert rig.broker.cursors.archives == []  # 30.1 s


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_what_is_due_is_done_in_time_though_the_clock_stays_wrong(rig: DriverRig, jump_s: float) -> None:
    ann, bob = Client(rig), Client(rig, "b", "bob")
    ann.create("jobs", redelivery_s=10.0, expiry=True)
    ann.put("jobs", 1)
    ann.get("jobs")
    ann.begin(1, 1.0)
    rig.ahead_s = jump_s
    jobs = bob.wait("jobs")
    rig.pass_time(9.9)
    assert bob.got(jobs) is None
    rig.pass_time(0.2)
    assert [hand.n for hand in bob.got(jobs) or []] == [1]


def test_what_is_due_in_a_long_time_is_done_then(rig: DriverRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "ALARM_S_MAX", 7.0)
    ann = Client(rig)
    ann.create("empty")
    waiting = ann.wait("empty", 30.0)
    rig.pass_time(29.9)
    assert ann.got(waiting) is None
    rig.pass_time(0.2)
    assert ann.got(waiting) == []


def test_a_session_whose_waking_fails_does_not_keep_others_from_theirs(
    rig: DriverRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "HELLO_S_MAX", 0.0)
    woken: list[object] = []

    def wake(_now: float) -> None:
        woken.append(None)
        raise ValueError("a fault")

    for peer in (rig.connect(), rig.connect()):
        monkeypatch.setattr(peer.session, "wake", wake)
    rig.pass_time(2.5 * driver_module.WAKE_S)  # two looks
    assert len(woken) == 4


def test_stamps_go_by_the_wall_clock(rig: DriverRig) -> None:
    ann = Client(rig)
    ann.create("jobs")
    rig.ahead_s = HOUR_S
    rig.pass_time(5.0)
    ann.put("jobs", 1)
    rig.run()
    (hand,) = ann.read("jobs")
    assert hand.number == pytest.approx((START_S + 5.0 + HOUR_S) * 1e6, abs=10)
