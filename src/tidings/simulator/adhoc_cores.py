"""Ad-hoc delivery over a trace by the cores themselves, in a world of virtual time.

The hosts are those of `tidings.adhoc`, and every frame of a meeting is passed between them. In each step the
pairs that are together meet one after the other, again and again until nothing moves; the bandwidth is
unlimited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.effects import AdhocEffect, DeliverMessage, SendFrame
from tidings.adhoc.frames import AdhocFrame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import TTL_S_MAX, MessageId
from tidings.adhoc.strategies import strategy_type
from tidings.adhoc.strategies.base import ReplicationStrategy
from tidings.ids import StoredIds
from tidings.simulator.contacts import ContactTrace
from tidings.simulator.world import World

NEVER = -1


def host_name(number: int) -> str:
    """The name of a host, whose order is that of the numbers."""
    return f"h{number:05d}"


class CoreRun:
    """Run of the cores over one trace; `copies` is for spray and wait."""

    def __init__(
        self,
        trace: ContactTrace,
        strategy: str,
        room: int | None = None,
        copies: int | None = None,
        seed: int = 0,
    ) -> None:
        self.world = World(seed)
        self.trace = trace
        self.copies_sent = 0
        self._strategy, self._copies = strategy, copies
        self.hosts = [self._make_host(number, room) for number in range(len(trace.names))]
        self.delivered: dict[MessageId, dict[int, int]] = {}  # steps, by message and host
        self._step = 0

    def _make_host(self, number: int, room: int | None) -> AdhocHost:
        name = host_name(number)
        buffer = ReplicaBuffer(messages_max=room)
        return AdhocHost(
            StoredIds(name, 1), self._make_strategy(name), buffer, rejoin_s=1.5 * self.trace.step_s
        )

    def _make_strategy(self, name: str) -> ReplicationStrategy:
        kind = strategy_type(self._strategy)
        return kind(name) if self._copies is None else kind(name, self._copies)  # type: ignore[call-arg]

    def send(self, sender: int, recipients: Sequence[int], now: float) -> MessageId:
        """Have a host send a message, which lives as long as one can."""
        host = self.hosts[sender]
        message = host.compose([host_name(one) for one in recipients], size=1, ttl_s=TTL_S_MAX)
        self._do(sender, host.send(message, now))
        return message.id

    def run(self) -> None:
        """Go through all steps of the trace."""
        steps, at = self.trace.steps, 0
        while at < len(steps):
            end = int(np.searchsorted(steps, steps[at], side="right"))
            moment = float(steps[at]) * self.trace.step_s
            self.world.clock.after(max(0.0, moment - self.world.clock.now), partial(self._take_step, at, end))
            at = end
        self.world.clock.run(inf)

    def _take_step(self, begin: int, end: int) -> None:
        self._step = int(self.trace.steps[begin])
        now = self._step * self.trace.step_s
        for _ in range(len(self.hosts)):
            before = self._moved()
            for one, other in self.trace.pairs[begin:end]:
                self._exchange(int(one), int(other), now)
            if self._moved() == before:
                break

    def _moved(self) -> int:
        return sum(host.tallies["delivered", ""] + host.tallies["carried", ""] for host in self.hosts)

    def _exchange(self, first: int, second: int, now: float) -> None:
        """One meeting, until nothing is left to say."""
        names = {first: host_name(second), second: host_name(first)}
        other = {first: second, second: first}
        frames: deque[tuple[int, AdhocFrame]] = deque()
        for at in (first, second):
            frames += [(other[at], frame) for frame in self._do(at, self.hosts[at].meet(names[at], now))]
        while True:
            while frames:
                at, frame = frames.popleft()
                effects = self.hosts[at].receive(names[at], frame, now)
                frames += [(other[at], one) for one in self._do(at, effects)]
            for giver in (second, first):
                copy = self.hosts[giver].next_copy(names[giver], now)
                if copy is not None:
                    self.copies_sent += 1
                    frames.append((other[giver], copy))
                    break
            else:
                break
        for at in (first, second):
            self.hosts[at].part(names[at], now)

    def _do(self, at: int, effects: list[AdhocEffect]) -> list[AdhocFrame]:
        """Note deliveries; the frames that are to be sent."""
        for effect in effects:
            if isinstance(effect, DeliverMessage):
                self.delivered.setdefault(effect.message.id, {})[at] = self._step
        return [effect.frame for effect in effects if isinstance(effect, SendFrame)]


def spread_by_cores(
    trace: ContactTrace,
    strategy: str,
    senders: NDArray[np.int32],
    recipients: NDArray[np.int32],
    room: int | None = None,
    copies: int | None = None,
) -> tuple[NDArray[np.int64], int]:
    """As `adhoc_arrays.spread`, by the cores."""
    run = CoreRun(trace, strategy, room, copies)
    start = trace.first_s
    ids = [run.send(int(one), (int(to),), start) for one, to in zip(senders, recipients, strict=True)]
    run.run()
    steps = [run.delivered.get(id, {}).get(int(to), NEVER) for id, to in zip(ids, recipients, strict=True)]
    return np.array(steps, np.int64), run.copies_sent
