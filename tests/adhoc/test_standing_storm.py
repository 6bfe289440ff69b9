"""Hosts that meet, part, crash and stand in for each other at random, by a seed that a failure prints.

What must hold all the time: no message is in two queues or twice in one, and each that is in none is carried
by a host. In the end all hosts meet: then everything is in the queue of the holder, and nowhere else.
"""

from itertools import permutations

import pytest
from adhoc.nodes import Hosts
from effort import SEED, often

from tidings.adhoc.carried_events import unpack
from tidings.event.wire import decode_event

NAMES = "habcd"
LEASE_S = 90.0
LIFE_S = 20 * 86_400.0


class _Storm:
    def __init__(self, seed, follow=False):
        self.follow = follow
        self.hosts = Hosts(*NAMES, seed=seed, lease_s=LEASE_S)
        self.random = self.hosts.world.random
        self.sent = set()
        self.hosts.create("h", "jobs")
        self.hosts.ask("h", "adhoc.hold", name="jobs", replicas=2, follow=follow)
        for name in 3 * NAMES[1:3]:
            self.hosts.meet("h", name)
            self.hosts.run(12.0)
        self.hosts.meet("h", "a")

    @property
    def stood_in(self):
        return sum(self.hosts.tally(name, "stood_in", "queue") for name in NAMES)

    def act(self):
        choice = self.random.random()
        if choice < 0.15 and self.follow:
            self._ask()
        elif choice < 0.35:
            self._put()
        elif choice < 0.8:
            self._meet()
        elif choice < 0.9:
            self.hosts.run(self.random.uniform(0.0, 2 * LEASE_S))
        else:
            self.hosts.restart(self.random.choice(NAMES))

    def _ask(self):
        """Have clients of one host want to read until it is offered the queue, should it meet the holder."""
        name = self.random.choice(NAMES)
        for _ in range(8):
            self.hosts.ask(name, "get", queue="jobs", action="read")
            self.hosts.run(LEASE_S / 60)

    def _put(self):
        number, near = len(self.sent), self.random.choice(NAMES)
        text = "x" * self.random.choice([0, 1_000, 100_000])
        if self.hosts.put(near, "jobs", n=number, text=text, ttl_s=LIFE_S) == []:
            self.sent.add(number)

    def _meet(self):
        """Let two hosts meet, mostly without the holder, and mostly for too short a time to finish."""
        one, other = self.random.sample(NAMES if self.random.random() < 0.3 else NAMES[1:], 2)
        self.hosts.meet_briefly(one, other, [0.0, 0.05, 1.0])

    def check(self):
        holding = [name for name in NAMES if self.hosts[name].queues.knows("jobs")]
        arrived = [one["n"] for name in holding for one in self.hosts.got(name, "jobs")]
        assert len(arrived) == len(set(arrived))
        assert self.sent - set(arrived) <= self.carried()
        return holding

    def carried(self):
        buffers = [self.hosts[name].core.adhoc.buffer for name in NAMES]
        events = [
            decode_event(unpack(buffer.raw_of(replica)).raw)
            for buffer in buffers
            for replica in buffer
            if replica.message.destination == "queue:jobs"
        ]
        return {event["n"] for event in events}

    def finish(self):
        for _ in range(3):
            for one, other in permutations(NAMES, 2):
                self.hosts.meet(one, other)


@pytest.mark.parametrize("seed", [SEED + number for number in range(often(20, 8))])
def test_whoever_stands_in_each_message_comes_once_to_the_holder(seed):
    storm = _Storm(seed)
    for _ in range(25):
        storm.act()
        storm.check()
    storm.finish()
    assert storm.check() == ["h"]
    assert {one["n"] for one in storm.hosts.got("h", "jobs")} == storm.sent
    assert storm.carried() == set()


@pytest.mark.parametrize("seed", [SEED + number for number in range(often(20, 8))])
def test_wherever_a_queue_goes_each_message_comes_once_to_its_holder(seed):
    storm = _Storm(seed, follow=True)
    for _ in range(25):
        storm.act()
        storm.check()
    storm.finish()
    (holder,) = storm.check()
    assert {one["n"] for one in storm.hosts.got(holder, "jobs")} == storm.sent
    assert storm.carried() == set()


def test_hosts_do_stand_in_for_each_other_in_these_storms():
    storm = _Storm(SEED)
    storm.hosts.run(3 * LEASE_S)
    assert storm.stood_in >= 1
