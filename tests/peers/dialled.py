"""Nodes that dial each other, moved by hand: what their cores say of connections is carried out here.

A certificate is whatever a test says that a node shows; an address is `tidings://NAME:1`, or with TLS.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.rig import Peer, Rig

from tidings.errors import TidingsError
from tidings.node.assembly import CoreSettings
from tidings.peers.dialling import Dial, HangUp, LogEvent, OutboundConnection
from tidings.peers.registry import Neighbours
from tidings.store.memory import SimulatedDisk, SimulatedStore
from tidings.transport.address import parse
from tidings.transport.credentials import Credentials

STEP_S = 5.0


class Call:
    """One connection from a node to another."""

    def __init__(self, net: Net, outbound: OutboundConnection, far: str) -> None:
        self.net = net
        self.outbound = outbound
        self.far = net.rigs[far]
        self.said: list[bytes] = []
        self.peer: Peer = self.far.connect()
        self.peer.take = self.said.extend  # type: ignore[method-assign]

    def carry(self) -> bool:
        """Carry what both have said; whether they had."""
        frames = self.outbound.output()
        self.net.heard += frames
        for frame in frames:
            self.peer.send_raw(frame)
        self.far.run()
        came, self.said[:] = list(self.said), []
        for data in came:
            self.outbound.receive(data)
        return bool(frames or came)

    def hang_up(self) -> None:
        """The near end is gone, when what it has said has left."""
        for frame in self.outbound.output():
            self.peer.send_raw(frame)
        self.peer.lose()


class Net:
    """Nodes by their names; the first one is `home`, and knows all others."""

    def __init__(self, *names: str, scheme: str = "tidings", knows: Sequence[str] | None = None) -> None:
        self.rigs = {name: _rig(name, {}) for name in names[1:]}
        known = names[1:] if knows is None else knows
        self.home = self.rigs[names[0]] = _rig(names[0], {one: f"{scheme}://{one}:1" for one in known})
        self.core = self.home.core
        self.certificates: dict[str, str] = {}  # what a node shows, by the name that was dialled
        self.verdict: TidingsError | None = None  # why dialling is of no use
        self.is_down = False
        self.calls: dict[OutboundConnection, Call] = {}
        self.logged: list[tuple[str, str]] = []
        self.dialled = 0
        self.heard: list[bytes] = []  # all that was said to others
        self.core.start()

    def run(self) -> None:
        """Let everything happen that is to happen now."""
        is_moving = True
        while is_moving:
            self.home.run()
            for rig in self.rigs.values():
                rig.run()
            is_moving = self._carry_out() or sum(call.carry() for call in list(self.calls.values())) > 0
        self.home.run()

    def _carry_out(self) -> bool:
        due, effects = self.core.dialling.take_due(), self.core.dialling.take_effects()
        assert all(outbound.state != "open" or outbound in self.calls for outbound in due)
        for effect in effects:
            match effect:
                case Dial(outbound):
                    self._dial(outbound)
                case HangUp(outbound):
                    self.calls.pop(outbound).hang_up()
                case LogEvent(level, event):
                    self.logged.append((level, event))
        return bool(effects)

    def _dial(self, outbound: OutboundConnection) -> None:
        assert outbound not in self.calls
        self.dialled += 1
        name = parse(outbound.reach.address).host
        if self.is_down or self.verdict is not None:
            outbound.lost("no way there", self.verdict)
        else:
            self.calls[outbound] = Call(self, outbound, name)
            outbound.answered(self.certificates.get(name))

    def cut(self) -> None:
        """All connections break, and both ends know it."""
        calls, self.calls = self.calls, {}
        for outbound, call in calls.items():
            call.peer.lose()
            outbound.lost("cut")
        self.run()

    def pass_time(self, seconds: float) -> None:
        """Let time pass everywhere, in steps in which nobody seems to be silent."""
        left = seconds
        while left > 0:
            step, left = min(left, STEP_S), left - STEP_S
            for rig in self.rigs.values():
                rig.now += step
                rig.broker.wake(rig.now)
            self.run()


def _rig(name: str, peers: dict[str, str]) -> Rig:
    disk = SimulatedDisk()
    SimulatedStore(disk, lambda count: name.encode().ljust(count, b"-")[:count]).sync()
    return Rig(disk, settings=CoreSettings(name=name, peers=Neighbours(peers, Credentials())))
