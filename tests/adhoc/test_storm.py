"""Hosts that meet, part, crash and start again at random, by a seed that is printed with a failure.

What must hold all the time: no message is in a queue twice, and of each that is not delivered at least one
host has a replica on its disk. In the end all hosts meet: then everything is delivered, reported, and gone.
"""

from collections import Counter
from itertools import permutations

import pytest
from adhoc.nodes import Hosts
from effort import SEED, often

from tidings.adhoc.carried_events import unpack
from tidings.event.wire import decode_event

NAMES = "abcde"


class _Storm:
    def __init__(self, seed):
        self.hosts = Hosts(*NAMES, seed=seed)
        self.random = self.hosts.world.random
        self.sent = {}  # by number: the host that it is for
        self.asked = Counter()  # reports that are asked for, by host
        for name in NAMES:
            self.hosts.create(name, "jobs")
            self.hosts.create(name, "reports")

    def act(self):
        choice = self.random.random()
        if choice < 0.4:
            self._put()
        elif choice < 0.9:
            self._meet()
        else:
            self.hosts.restart(self.random.choice(NAMES))

    def _put(self):
        near, far = self.random.sample(NAMES, 2)
        number = len(self.sent)
        text = "x" * self.random.choice([0, 1_000, 100_000])
        header = {"report": "delivered", "reply_to": "reports"} if self.random.random() < 0.5 else {}
        if self.hosts.put(near, f"jobs@{far}", n=number, text=text, ttl_s=20 * 86_400.0, **header) == []:
            self.sent[number] = far
            self.asked[near] += bool(header)

    def _meet(self):
        """Let two hosts meet, mostly for so short a time that they can't finish."""
        one, other = self.random.sample(NAMES, 2)
        self.hosts.meet_briefly(one, other, [0.0, 0.02, 0.1, 1.0])

    def check(self):
        arrived = [one["n"] for name in NAMES for one in self.hosts.got(name, "jobs")]
        assert len(arrived) == len(set(arrived))
        held = {
            decode_event(unpack(self.hosts[name].core.adhoc.buffer.raw_of(replica)).raw)["n"]
            for name in NAMES
            for replica in self.hosts[name].core.adhoc.host.buffer
        }
        assert self.sent.keys() - set(arrived) <= held
        return arrived

    def finish(self):
        for _ in range(2):
            for one, other in permutations(NAMES, 2):
                self.hosts.meet(one, other)


@pytest.mark.parametrize("seed", [SEED + number for number in range(often(100, 20))])
def test_whatever_happens_messages_are_delivered_once_and_the_last_copy_is_kept(seed):
    storm = _Storm(seed)
    for _ in range(25):
        storm.act()
        storm.check()
    storm.finish()
    assert sorted(storm.check()) == sorted(storm.sent)
    for name in NAMES:
        assert storm.hosts.held(name) == 0
        assert len(storm.hosts.got(name, "reports")) == storm.asked[name]
        numbers = [one["n"] for one in storm.hosts.got(name, "jobs")]
        assert sorted(numbers) == [number for number, far in storm.sent.items() if far == name]
