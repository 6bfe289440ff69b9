"""Growing-ring search: a node without links asks ever farther by multicast, until others answer.

    ring of 1 hop ──► no answer within RING_S ──► 2 hops ──► 4 ──► … ──► hops_max ──► again after AGAIN_S
         └──► answers: those nodes are tried, and nobody farther away is asked

So the nearest nodes are found, and a question goes no farther than it must. If no link comes of those that
have answered, the next search passes them over: one that only says that it is a node hides no other.

Questions and answers are datagrams that anyone can send. An answer yields a *candidate*, as an announcement
by multicast DNS does: a name, an id and an address that may be tried; its certificate shows who is there. An
answer is no longer than the question, and goes to its sender alone; answers are limited in number. So a node
can't be used to flood a third one with more than it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from math import inf
from typing import Final

import msgspec
from msgspec import Struct

RING_S: Final = 1.0
"""How long answers to one ring are waited for."""
AGAIN_S: Final = 60.0
"""Time between two searches, and for a node that has answered to become a neighbour."""
HOPS_MAX: Final = 32
"""Routers that a question passes at most."""
QUESTION_SIZE: Final = 256
"""Bytes of a question, and so the most that an answer has."""
ANSWERS_MAX = 20
"""Answers of a node in a second."""
FOUND_MAX = 64
"""Nodes of which answers are taken in one search."""
NONCE_BITS: Final = 63

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NODE = re.compile(r"[A-Za-z0-9_-]{1,63}")


class RingQuestion(Struct, frozen=True, array_like=True, tag="tidings-search-1"):
    """Datagram that asks for nodes."""

    nonce: int
    node: str
    padding: bytes = b""


class RingAnswer(Struct, frozen=True, array_like=True, tag="tidings-found-1"):
    """Datagram of a node that was asked; the address is that from which it comes."""

    nonce: int
    node: str
    name: str
    port: int


class AskRing(Struct, frozen=True):
    """Send a question to all within so many hops."""

    data: bytes
    hops: int


class AnswerRing(Struct, frozen=True):
    """Send an answer to the one who has asked."""

    data: bytes


class CandidateFound(Struct, frozen=True):
    """Try a node at an address."""

    name: str
    address: str


class CandidateLost(Struct, frozen=True):
    """Try it no longer."""

    name: str


RingEffect = AskRing | AnswerRing | CandidateFound | CandidateLost


class RingSearch:
    """Search of one node, and its answers to the searches of others.

    `taken` are names that no candidate may have: those of peers that are configured. `draw` returns so many
    random bits. The driver calls `wake` at `wake_at`.
    """

    def __init__(
        self,
        node: str,
        name: str,
        port: int,
        hops_max: int,
        draw: Callable[[int], int],
        taken: Iterable[str] = (),
        is_near: bool = False,
    ) -> None:
        """`is_near`: the node listens on the loopback of its machine, and so may those that it finds."""
        self._node = node
        self._name = name
        self._port = port
        self._hops_max = hops_max
        self._draw = draw
        self._taken = {name, *taken}
        self._is_near = is_near
        self._hops = 0  # of the ring that is asked; 0 between two searches
        self._nonce = -1
        self._found: dict[str, str] = {}  # names of those that have answered this search, by id
        self._passed_over: set[str] = set()  # ids of those of the last one
        self._second = -inf
        self._answers = 0  # in this second
        self.dropped = 0
        """Questions that were not answered, as there were too many."""
        self.wake_at = 0.0

    # Asking

    def wake(self, now: float, is_linked: bool) -> list[RingEffect]:
        """Ask the next ring, unless this node has a link or the last ring has answered."""
        if now < self.wake_at:
            return []
        if is_linked or (self._hops and (self._found or self._hops >= self._hops_max)):
            self._hops, self._nonce = 0, -1
            self.wake_at = now + AGAIN_S
            if is_linked:
                self._found, self._passed_over = {}, set()
            return []
        effects: list[RingEffect] = []
        if not self._hops:
            effects += [CandidateLost(name) for name in self._found.values()]
            self._passed_over, self._found = set(self._found), {}
        self._hops = min(max(1, 2 * self._hops), self._hops_max)
        self._nonce = self._draw(NONCE_BITS)
        self.wake_at = now + RING_S
        return [*effects, AskRing(self._question(), self._hops)]

    def _question(self) -> bytes:
        bare = msgspec.msgpack.encode(RingQuestion(self._nonce, self._node))
        return msgspec.msgpack.encode(RingQuestion(self._nonce, self._node, bytes(QUESTION_SIZE - len(bare))))

    # Hearing

    def hear(self, data: bytes, host: str, now: float) -> list[RingEffect]:
        """Take a datagram that came from an IP address; what is no question and no answer is passed over."""
        try:
            said = msgspec.msgpack.decode(data, type=RingQuestion | RingAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []
        if said.node == self._node or not _NODE.fullmatch(said.node):
            return []
        if isinstance(said, RingQuestion):
            return self._answer(said, len(data), now)
        return self._take(said, host)

    def _answer(self, question: RingQuestion, size: int, now: float) -> list[RingEffect]:
        data = msgspec.msgpack.encode(RingAnswer(question.nonce, self._node, self._name, self._port))
        if len(data) > size:
            return []
        if now >= self._second + 1:
            self._second, self._answers = now, 0
        if self._answers >= ANSWERS_MAX:
            self.dropped += 1
            return []
        self._answers += 1
        return [AnswerRing(data)]

    def _take(self, answer: RingAnswer, host: str) -> list[RingEffect]:
        is_new = answer.node not in self._found and answer.node not in self._passed_over
        is_asked = answer.nonce == self._nonce and is_new and len(self._found) < FOUND_MAX
        is_named = _NAME.fullmatch(answer.name) and answer.name not in self._taken
        if not (is_asked and is_named and 0 < answer.port < 1 << 16):
            return []
        if answer.name in self._found.values():
            return []  # the first one is tried
        address = ip_address(host)
        if address.is_loopback is not self._is_near:
            return []
        self._found[answer.node] = answer.name
        place = f"[{address}]" if address.version == 6 else str(address)
        return [CandidateFound(answer.name, f"tidings+tls://{place}:{answer.port}")]
