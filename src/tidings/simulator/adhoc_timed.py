"""Ad-hoc delivery by the cores with links that take time: a message has a size and a link a bandwidth.

Hosts meet and part as a list of meetings says, and messages are sent meanwhile. A host takes part in one
transfer at a time, as in the ONE; a transfer that is cut when two hosts part is lost. Summaries and receipts
take no time, and their bytes are counted.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Unpack

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tidings.adhoc.effects import AdhocEffect, DeliverMessage, DropReplica, SendFrame, StoreReplica
from tidings.adhoc.frames import CopyFrame, ReceiptFrame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import EVERYBODY, MessageId
from tidings.adhoc.messaging import SendOptions
from tidings.simulator.mobility import Track
from tidings.simulator.world import World


class Sent(Struct):
    """One message of a run."""

    sender: int
    recipient: int
    sent_at: float
    persistent: bool
    priority: int
    reliability: float | None
    ttl_s: float
    delivered_at: float = inf
    hops: int = 0


def _share(sent: list[Sent]) -> float | None:
    """The share of messages that were delivered."""
    return sum(one.delivered_at < inf for one in sent) / len(sent) if sent else None


class AreaCast(Struct):
    """One message to an area in a run: when which hosts were within it first, and have got it."""

    sent_at: float
    ends_at: float
    area: str
    within: dict[int, float] = {}
    delivered: dict[int, float] = {}


class TimedRun:
    """Run of hosts that meet, with links of a bandwidth."""

    def __init__(self, seed: int, hosts: list[AdhocHost], bytes_per_s: float) -> None:
        self.world = World(seed)
        self.hosts = hosts
        self.messages: dict[MessageId, Sent] = {}
        self.casts: dict[MessageId, AreaCast] = {}
        self.carriers: dict[MessageId, list[tuple[float, int, bool]]] = {}  # when which host begins or ends
        self.carried = 0  # copies that were taken by carriers or recipients
        self.started = 0  # transfers
        self.cut = 0  # transfers that were lost
        self.places = {host.name: number for number, host in enumerate(hosts)}
        self.links: dict[int, dict[int, None]] = {number: {} for number in range(len(hosts))}
        self._bytes_per_s = bytes_per_s
        self._busy: dict[int, int] = {}  # hosts that transfer, by the transfer
        self._transfers = 0

    def plan(self, rows: NDArray[np.int32]) -> None:
        """Have hosts meet and part as these rows say: one, other, start, end."""
        for one, other, start, end in rows.tolist():
            self.world.clock.after(start, partial(self._meet, one, other))
            self.world.clock.after(end, partial(self._part, one, other))

    def send_at(self, moment: float, sender: int, recipient: int, **options: Unpack[SendOptions]) -> None:
        """Have a host send a message at a moment."""
        self.world.clock.after(moment, partial(self._send, sender, recipient, options))

    def cast_at(self, moment: float, sender: int, area: str, **options: Unpack[SendOptions]) -> None:
        """Have a host send a message to all within an area at a moment."""
        self.world.clock.after(moment, partial(self._cast, sender, area, options))

    def follow(self, track: Track, every_s: float) -> None:
        """Have hosts know where they are, now and then."""
        for second in range(0, len(track), int(every_s)):
            self.world.clock.after(float(second), partial(self._move, track[second]))

    def _move(self, places: NDArray[np.float32]) -> None:
        for at, (x, y) in enumerate(places.tolist()):
            self._do(at, self.hosts[at].move((x, y), self.now))
        for cast in self.casts.values():
            self._note_within(cast)

    def _note_within(self, cast: AreaCast) -> None:
        if self.now < cast.ends_at:
            for at, host in enumerate(self.hosts):
                if at not in cast.within and host.is_in(cast.area):
                    cast.within[at] = self.now

    def _cast(self, sender: int, area: str, options: SendOptions) -> None:
        host = self.hosts[sender]
        message = host.compose((EVERYBODY,), area=area, **options)
        self.casts[message.id] = cast = AreaCast(self.now, self.now + message.ttl_s, area)
        self._note_within(cast)
        self.carriers[message.id] = []
        self._do(sender, [*host.wake(self.now), *host.send(message, self.now)])
        self._pump(sender)

    def run(self, until_s: float) -> None:
        """Let the time pass."""
        self.world.clock.run(until_s)

    @property
    def now(self) -> float:
        """The time."""
        return self.world.clock.now

    def _send(self, sender: int, recipient: int, options: SendOptions) -> None:
        host = self.hosts[sender]
        message = host.compose((self.hosts[recipient].name,), **options)
        self.messages[message.id] = Sent(
            sender,
            recipient,
            self.now,
            message.persistent,
            message.priority,
            message.reliability,
            message.ttl_s,
        )
        self.carriers[message.id] = []
        self._do(sender, [*host.wake(self.now), *host.send(message, self.now)])
        self._pump(sender)

    def _meet(self, one: int, other: int) -> None:
        self.links[one][other] = self.links[other][one] = None
        ends = ((one, other), (other, one))
        begun = [(at, self.hosts[at].meet(self.hosts[peer].name, self.now)) for at, peer in ends]
        for at, effects in begun:
            self._do(at, effects)
        self._pump(one)
        self._pump(other)

    def _part(self, one: int, other: int) -> None:
        if self._busy.get(one, 0) and self._busy.get(one) == self._busy.get(other):
            del self._busy[one], self._busy[other]
            self.cut += 1
        for at, peer in ((one, other), (other, one)):
            self.links[at].pop(peer, None)
            self.hosts[at].part(self.hosts[peer].name, self.now)
        self._pump(one)
        self._pump(other)

    def _pump(self, host: int) -> None:
        """Begin a transfer, if this host is free and has something for one that is, or that has for it."""
        if host in self._busy:
            return
        for peer in list(self.links[host]):
            if peer in self._busy:
                continue
            for giver, taker in ((host, peer), (peer, host)):
                copy = self.hosts[giver].next_copy(self.hosts[taker].name, self.now)
                if copy is not None:
                    self._transfer(giver, taker, copy)
                    return

    def _transfer(self, giver: int, taker: int, copy: CopyFrame) -> None:
        self._transfers += 1
        self.started += 1
        self._busy[giver] = self._busy[taker] = self._transfers
        duration_s = copy.message.size / self._bytes_per_s
        self.world.clock.after(duration_s, partial(self._arrive, giver, taker, copy, self._transfers))

    def _arrive(self, giver: int, taker: int, copy: CopyFrame, transfer: int) -> None:
        if self._busy.get(giver) != transfer:
            return  # it was cut
        del self._busy[giver], self._busy[taker]
        self._do(taker, self.hosts[taker].receive(self.hosts[giver].name, copy, self.now))
        self._pump(taker)
        self._pump(giver)

    def _do(self, at: int, effects: list[AdhocEffect]) -> None:
        """Carry effects out; frames without bodies arrive at once."""
        for effect in effects:
            if isinstance(effect, DeliverMessage) and effect.message.area:
                cast = self.casts[effect.message.id]
                assert at not in cast.delivered, f"{effect.message.id} was delivered twice"
                cast.delivered[at] = self.now
            elif isinstance(effect, DeliverMessage):
                sent = self.messages[effect.message.id]
                assert sent.delivered_at == inf, f"{effect.message.id} was delivered twice"
                sent.delivered_at, sent.hops = self.now, effect.hops
            elif isinstance(effect, StoreReplica | DropReplica):
                self._note_carrier(at, effect)
            elif isinstance(effect, SendFrame):
                peer = self.places[effect.peer]
                frame = effect.frame
                if isinstance(frame, ReceiptFrame) and (frame.is_carried or frame.acknowledgement):
                    self.carried += 1
                self._do(peer, self.hosts[peer].receive(self.hosts[at].name, frame, self.now))

    def _note_carrier(self, at: int, effect: StoreReplica | DropReplica) -> None:
        """Note when a host begins and ends to carry a message."""
        is_here = isinstance(effect, StoreReplica)
        noted = self.carriers[effect.replica.id]
        last = next((was_here for _, host, was_here in reversed(noted) if host == at), False)
        if is_here != last:
            noted.append((self.now, at, is_here))

    def figures(self) -> dict[str, float | None]:
        """Delivery, delay and overhead, as the ONE reports them."""
        sent = list(self.messages.values())
        delays = sorted(one.delivered_at - one.sent_at for one in sent if one.delivered_at < inf)
        delivered = len(delays)
        ended = [one for one in sent if one.sent_at + one.ttl_s <= self.now]
        return {
            "sent": len(sent),
            "delivered": delivered,
            "delivery": _share(sent),
            "delivery_ended": _share(ended),
            "delay_s": sum(delays) / delivered if delivered else None,
            "delay_median_s": delays[delivered // 2] if delivered else None,
            "copies": self.carried,
            "overhead": (self.carried - delivered) / delivered if delivered else None,
            "cut": self.cut,
        }

    def cast_figures(self) -> dict[str, float | None]:
        """Of what was sent to areas, the share of the hosts within that have got it, and how late."""
        within = [(cast, at) for cast in self.casts.values() for at in cast.within]
        delays = [cast.delivered[at] - cast.within[at] for cast, at in within if at in cast.delivered]
        outside = sum(at not in cast.within for cast in self.casts.values() for at in cast.delivered)
        delivered = len(delays)
        return {
            "cast": len(self.casts),
            "hosts_within": len(within),
            "delivered": delivered,
            "delivered_outside": outside,
            "delivery": delivered / len(within) if within else None,
            "delay_s": sum(delays) / delivered if delivered else None,
            "copies": self.carried,
            "overhead": (self.carried - delivered) / delivered if delivered else None,
            "cut": self.cut,
        }
