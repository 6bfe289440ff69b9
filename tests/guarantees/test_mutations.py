"""Whatever one client sends, the worst is the end of its own connection; the others are served meanwhile."""

from __future__ import annotations

from random import Random

import pytest
from effort import often
from guarantees.mutations import HELLO, Mutator
from msgspec.structs import replace
from protocol.rig import Peer, Rig, event, reliable

from tidings.event import Batch
from tidings.protocol.frames import encode
from tidings.protocol.messages import Bye, Reply

FRAMES = often(5_000)
CONNECTIONS = 200
"""Mutants that one node meets before the next begins with an empty disk."""
CODES = {"protocol", "version", "too-large", "event", "filter", "not-found", "exists", "limit"}
"""What the mutants here may be told; `internal` would be a fault of the node."""


class Siege:
    """A node, two good clients, and a mutant after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.mutator = Mutator(self.random)
        self.rig = Rig()
        self.one = self.rig.peer("one", name="one")
        self.one.subscribe(1, "type = 'untouched'")
        self.one.subscribe(2, "type = 'untouched'", durable="mine")
        self.other = self.rig.peer("other", name="other")
        self.sent = 0

    def attack(self) -> None:
        """A mutant comes, says something of which one frame is bad, and goes."""
        mutant = self.rig.connect()
        good, random = self.mutator.good, self.random
        frames = [*good(random.randint(0, 4)), self.mutator.frame(), *good(random.randint(0, 2))]
        hello = encode(replace(HELLO, system=f"mutant{random.randrange(20)}"))
        data = (hello if random.random() < 0.95 else b"") + b"".join(frames)
        self._feed(mutant, data)
        self.serve()
        self.rig.run()
        check_answers(mutant)
        self._end(mutant)

    def _feed(self, mutant: Peer, data: bytes) -> None:
        """In one piece or two, with a tick between them or not."""
        cut = self.random.randrange(len(data) + 1)
        mutant.send_raw(data[:cut])
        if self.random.random() < 0.3:
            self.rig.run()
        mutant.send_raw(data[cut:])

    def _end(self, mutant: Peer) -> None:
        mutant.lose()
        self.rig.run()
        self.check()

    def serve(self) -> None:
        """The good clients go on while the mutant is there."""
        self.sent += 1
        kind = event if self.sent % 2 else reliable
        self.other.publish(kind(self.sent, "untouched"))

    def check(self) -> None:
        """See that the good clients had what is theirs, and that the broker's books are right."""
        assert self.one.counters(1) == [self.sent]
        assert self.one.counters(2) == [self.sent]
        assert self.other.accepted[-1] == self.sent
        if self.sent % 2 == 0:
            (position,) = (place for place in self.one.positions(2) if place is not None)
            self.one.acknowledge(2, position)
        self.one.grant(1, self.sent + 1_000)
        self.one.grant(2, self.sent + 1_000)
        self.rig.run()
        for peer in (self.one, self.other):
            assert not peer.session.is_closed
            peer.frames.clear()
        check_broker(self.rig, sessions=2, live=1)

    def check_disk(self) -> None:
        """What is on disk is what the broker believes, and every event of it is one."""
        self.rig.run()
        state, broker = self.rig.state, self.rig.broker
        assert state.position == broker.position == broker.position_durable
        told = {(one["owner"], one["name"]): one["cursor"] for one in broker.status()["durables"]}
        assert {(one.owner, one.name) for one in state.durables} == set(told)
        for stored in self.rig.stored:
            assert len(Batch(stored.raw).events) == stored.count


def check_answers(mutant: Peer) -> None:
    """What a mutant is told is typed, and nothing follows a goodbye."""
    kinds = [type(message) for message, _ in mutant.frames]
    assert Bye not in kinds[:-1]
    for bye in mutant.got(Bye):
        assert bye.code in CODES, bye
    for reply in mutant.got(Reply):
        assert reply.error is None or reply.error.code in CODES, reply


def check_broker(rig: Rig, sessions: int, live: int) -> None:
    """Nothing is left of a session that has ended but what is durable."""
    broker = rig.broker
    status = broker.status()
    assert len(broker.sessions) == sessions
    assert broker.exchange.subscriptions == live + len(status["durables"])
    assert broker.exchange.advertisements == 0
    assert broker.published is None
    assert broker.mark_durable == broker.promise
    assert all(one["depth"] >= 0 for one in status["durables"])
    assert ("closed", "internal") not in broker.tallies


@pytest.mark.slow
def test_mutated_frames_harm_nobody_but_who_sent_them() -> None:
    first = 20261115
    for seed in range(first, first + FRAMES // CONNECTIONS):
        siege = Siege(seed)
        for connection in range(CONNECTIONS):
            try:
                siege.attack()
            except Exception as error:
                error.add_note(f"seed {seed}, connection {connection}")
                raise
        siege.check_disk()
