"""Hosts with queues and topics by name: cores, and a dict of paths between them."""

from adhoc.hosts import host, note
from adhoc.hosts import meet as meet_hosts

from tidings.adhoc.effects import LeavePlace, TakePlace
from tidings.adhoc.messaging import AdhocMessaging, ForwardMessage


class Town:
    """Hosts with queues and topics, and the paths that there are between them."""

    def __init__(self, *names):
        self.paths = set()
        self.effects = {name: [] for name in names}
        self.hosts = {name: host(name) for name in names}
        self.at = {
            name: AdhocMessaging(one, lambda other, name=name: frozenset((name, other)) in self.paths)
            for name, one in self.hosts.items()
        }
        for name, one in self.hosts.items():
            receive, begin = one.receive, one.meet
            one.receive = lambda peer, frame, now, plain=receive, name=name: self._take(
                name, plain(peer, frame, now), now
            )
            one.meet = lambda peer, now, plain=begin, name=name: self._take(name, plain(peer, now), now)

    def _take(self, name, effects, now):
        return self.do(name, self.at[name].take(effects, now), now)

    def do(self, name, effects, now=0.0):
        left = []
        for effect in effects:
            if isinstance(effect, ForwardMessage):
                done = self.at[effect.host].accept(effect.message, now)
                note(self.hosts[effect.host], self.do(effect.host, done, now))
                note(self.hosts[name], self.hosts[name].acknowledge(effect.message.id, effect.host))
            else:
                left.append(effect)
        self.effects[name] += left
        return left

    def meet(self, one, other, now=0.0):
        return meet_hosts(self.hosts[one], self.hosts[other], now)

    def call(self, name, effects, now=0.0):
        note(self.hosts[name], self.do(name, effects, now))

    def wake(self, name, now):
        """Let a host do what is due; its frames go nowhere."""
        self.call(name, self.at[name].take(self.hosts[name].wake(now), now), now)

    def left(self, name):
        """Places that a host has stood in for, and holds no longer, in their order."""
        return [(one.name, one.holder) for one in self.effects[name] if isinstance(one, LeavePlace)]

    def taken(self, name):
        return [one.name for one in self.effects[name] if isinstance(one, TakePlace)]
