"""World: one virtual clock, one network, one source of chance, and everything that lives in it.

All chance comes from `random.Random(seed)` and all order from the clock, so the same seed gives the same
world: `trace` is a digest of all notes, equal for two runs exactly if they were the same.

The network behaves as TCP does: bytes arrive in order and in any pieces, or the connection breaks. A link
joins two places and has conditions: delay, jitter, bandwidth, piece size, and whether it is up. A connection
over it has two ends. A cut does what hurts real programs: of the bytes in transit some still arrive and the
rest never do, and each end notices at another time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from tidings.simulator.node import SimulatedNode

NOTES_MAX = 200
"""Last notes, which are shown with a failure."""
BUFFER_SIZE = 64 << 10
"""Bytes in transit from which on an end is paused."""
NOTICE_S_MAX = 5.0
"""Longest time until an end notices that its connection is broken."""
NOTICES_S = (0.01, 0.5, NOTICE_S_MAX)
"""Longest times of a break; each chooses one, so it is often noticed at once, and sometimes late."""
CONNECT_S_MAX = 3.0
"""Longest duration of an attempt to connect."""
_END = b""  # marks the end of a connection that was closed

Action = Callable[[], None]


class Clock:
    """Virtual clock, moved on by scheduled actions; of those due at the same time, the oldest runs first."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._due: list[tuple[float, int, Action]] = []
        self._scheduled = 0

    def after(self, delay_s: float, action: Action) -> None:
        """Schedule an action."""
        assert delay_s >= 0
        self._scheduled += 1
        heappush(self._due, (self.now + delay_s, self._scheduled, action))

    def run(self, until: float) -> None:
        """Run all actions that are due up to that time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heappop(self._due)
            self.steps += 1
            action()
        self.now = max(self.now, until)


class World:
    """World of simulated nodes and clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, self.random)
        self.nodes: dict[str, SimulatedNode] = {}
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        self._digest = sha256()

    @property
    def trace(self) -> str:
        """Digest of all notes so far."""
        return self._digest.hexdigest()

    def note(self, who: str, *what: object) -> None:
        """Add a note of an occurrence to the trace."""
        line = f"{self.clock.now:.6f} {who} {' '.join(map(str, what))}"
        self.notes.append(line)
        self._digest.update(line.encode() + b"\n")


# The network


class Conditions(Struct, frozen=True):
    """Delay, jitter, bandwidth and piece size of a link."""

    delay_s: float = 0.001
    jitter_s: float = 0.0
    bytes_per_s: float = 1e8
    piece_max: int = 1 << 16


class Owner(Protocol):
    """Owner of one end of a connection."""

    def receive(self, end: End, data: bytes) -> None:
        """Take bytes that have arrived; called in order."""

    def lost(self, end: End) -> None:
        """Note that the connection is gone; called once, and not after `close`."""

    def resume(self, end: End) -> None:
        """Send more: the end is no longer paused."""


class ConnectionTaker(Owner, Protocol):
    """Listener for connections."""

    @property
    def is_up(self) -> bool:
        """Whether it accepts connections now."""

    def connected(self, end: End) -> None:
        """Take the near end of a new connection."""


class SimulatedLink:
    """Link between two places."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.is_down = False
        self.deaf: set[Owner] = set()  # those whom nothing reaches over it, though they reach the other end
        self.ends: dict[End, None] = {}
        self.carried = 0
        """Bytes that were sent over it, in both directions."""

    def carries_to(self, owner: Owner) -> bool:
        """Whether it lets through now what is sent to one end."""
        return not self.is_down and owner not in self.deaf


class End:
    """One end of a connection: bytes that are sent here arrive at `other`."""

    def __init__(self, network: SimulatedNetwork, link: SimulatedLink, owner: Owner) -> None:
        self.owner = owner
        self.link = link
        self.other: End = self
        self.is_open = True
        self._network = network
        self._pieces: deque[bytes] = deque()  # in transit to the other end
        self._size = 0
        self._was_paused = False
        self._waiting: deque[bytes] = deque()  # not yet taken by the link
        self._arrives_at = 0.0  # arrival of the last piece
        self._stalled = 0  # pieces that would have arrived if the link were up
        self._is_broken = False

    @property
    def is_paused(self) -> bool:
        """Whether so much is in transit that more should wait."""
        self._was_paused = self._was_paused or self._size >= BUFFER_SIZE
        return self._size >= BUFFER_SIZE

    def send(self, data: bytes) -> None:
        """Send bytes; on a broken connection they vanish."""
        at = 0
        self.link.carried += len(data)
        while at < len(data):
            size = self._network.random.randint(1, self.link.conditions.piece_max)
            self._put(data[at : at + size])
            at += size

    def close(self) -> None:
        """Close the connection; bytes sent before still arrive, and then the other end notices."""
        if self.is_open:
            self.is_open = False
            self._put(_END)

    def break_off(self) -> None:
        """Lose the bytes in transit from here and all that follow, except a few that arrive late.

        After that, the other end notices.
        """
        sent = [*self._pieces, *self._waiting]
        late = sent[: self._network.random.randint(0, len(sent))]
        self._is_broken = True
        self._waiting.clear()
        self._pieces.clear()
        delay_s = self._network.random.uniform(0, self._network.random.choice(NOTICES_S))
        for piece in late:
            self._network.clock.after(delay_s, partial(self._hand_over, piece))
        self._network.clock.after(delay_s, self.other.fall)

    def fall(self) -> None:
        """Notice that the connection is broken."""
        if self.is_open:
            self.is_open = False
            self.link.ends.pop(self, None)
            self.owner.lost(self)

    def heal(self) -> None:
        """Deliver the bytes that were held up, now that the link is up again."""
        stalled, self._stalled = self._stalled, 0
        for _ in range(stalled):
            self._network.clock.after(self.link.conditions.delay_s, self._arrive)

    def _put(self, piece: bytes) -> None:
        if not self._is_broken:
            self._size += len(piece)
            self._waiting.append(piece)
            if len(self._waiting) == 1:
                self._begin()

    def _begin(self) -> None:
        """Let the link take the next piece, for as long as its bandwidth says."""
        duration_s = len(self._waiting[0]) / self.link.conditions.bytes_per_s
        self._network.clock.after(duration_s, self._depart)

    def _depart(self) -> None:
        if self._is_broken:
            return
        conditions, clock = self.link.conditions, self._network.clock
        self._pieces.append(self._waiting.popleft())
        jitter_s = self._network.random.uniform(0, conditions.jitter_s)
        self._arrives_at = max(self._arrives_at, clock.now + conditions.delay_s + jitter_s)
        clock.after(self._arrives_at - clock.now, self._arrive)
        if self._waiting:
            self._begin()

    def _arrive(self) -> None:
        """Deliver the next piece, whichever it is: so none overtakes another."""
        if not self._pieces:
            return
        if not self.link.carries_to(self.other.owner):
            self._stalled += 1
            return
        piece = self._pieces.popleft()
        self._size -= len(piece)
        self._hand_over(piece)
        if self._was_paused and self._size < BUFFER_SIZE // 2 and self.is_open:
            self._was_paused = False
            self.owner.resume(self)

    def _hand_over(self, piece: bytes) -> None:
        if piece == _END:
            self.link.ends.pop(self, None)
            self.other.fall()
        elif self.other.is_open:
            self.other.owner.receive(self.other, piece)


class SimulatedNetwork:
    """All links of a world, and the connections over them."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.random = random
        self._links: dict[tuple[str, str], SimulatedLink] = {}

    def link(self, one: str, other: str) -> SimulatedLink:
        """Return the link between two places; the first call makes it."""
        key = min(one, other), max(one, other)
        if key not in self._links:
            self._links[key] = SimulatedLink(Conditions())
        return self._links[key]

    @property
    def links(self) -> list[SimulatedLink]:
        """All links, in the order in which they were made."""
        return list(self._links.values())

    def connect(
        self,
        link: SimulatedLink,
        owner: Owner,
        listener: ConnectionTaker,
        answer: Callable[[End | None], None],
    ) -> None:
        """Try to connect; call `answer` with the near end, or with None on refusal or timeout."""

        def arrive() -> None:
            if link.is_down or link.deaf or not listener.is_up:
                answer(None)
                return
            near, far = End(self, link, owner), End(self, link, listener)
            near.other, far.other = far, near
            link.ends.update({near: None, far: None})
            listener.connected(far)
            answer(near)

        is_lost = link.is_down or link.deaf
        self.clock.after(CONNECT_S_MAX if is_lost else 2 * link.conditions.delay_s, arrive)

    def cut(self, link: SimulatedLink) -> None:
        """Break all connections over a link; each end notices in its own time."""
        for end in list(link.ends):
            end.break_off()

    def drop(self, end: End) -> None:
        """Break a connection whose owner has crashed; the other end notices in its own time."""
        end.break_off()
        end.is_open = False
        end.link.ends.pop(end, None)
        end.other.break_off()

    def part(self, link: SimulatedLink) -> None:
        """Let nothing through; connections stand still until the link heals or a side gives up."""
        link.is_down = True

    def deafen(self, link: SimulatedLink, owner: Owner) -> None:
        """Let nothing through to one end; what it sends still arrives, and no connection can be made."""
        link.deaf.add(owner)

    def heal(self, link: SimulatedLink) -> None:
        """Let everything through again."""
        if link.is_down or link.deaf:
            link.is_down = False
            link.deaf.clear()
            for end in list(link.ends):
                end.heal()
