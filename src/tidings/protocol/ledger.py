"""The ledger: how far each client has counted, so that no item is done twice and refusals can be repeated.

Every item of a client is numbered, by its system and in its epoch, so the highest number shows what was done.
A commit stores that number with the client's items, unless it follows from them; a refusal is kept until the
client says that it has seen the answer. An item that was counted but is being done elsewhere is *pending*:
nothing from there on is safe yet. A crash ends the waiting for it, so the stored count of a client has a
refusal for what is pending and not stored here: the client learns that it may have been done, or not.

The user is part of a client's identity: another user that uses the same system counts by itself, so no one
can count in another's name, nor keep another from counting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import lt
from typing import TYPE_CHECKING, Final

import msgspec

from tidings.errors import CodecError, Disconnected
from tidings.ids import ForwardedOrigin, Origin
from tidings.numbered import Inbound
from tidings.protocol.messages import Refusal, failure_of
from tidings.seen import Producers
from tidings.store.interface import Counter, CountProducer, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

UNCONFIRMED: Final = failure_of(Disconnected("the node was restarted before this was confirmed to be done"))
"""How what was pending is refused after a crash."""
SYSTEMS_MAX = 100_000
"""Systems whose counters are remembered; those not heard of for longest are forgotten."""

ProducerKey = tuple[str, int]
Client = Inbound[Refusal]


def identity_of(origin: Origin) -> ProducerKey:
    """A client in one of its lives: system and user in one text, and epoch."""
    system, source = origin.system or "", origin.source
    return (f"{system}/{source.partition('/')[0]}" if source else system), origin.epoch


class Ledger:
    """Receiving ends of all clients' numbered streams, and the commits for which they wait."""

    def __init__(self, counters: Iterable[Counter]) -> None:
        self._clients: Producers[ProducerKey, Client] = Producers(SYSTEMS_MAX)
        self._due: dict[
            ProducerKey, bool
        ] = {}  # who waits for this tick's commit; whether its count is stored
        # Who waits for a commit, by its mark, and how far they had counted.
        self._flights: deque[tuple[int, dict[ProducerKey, int]]] = deque()
        self._pending: dict[ProducerKey, Client] = {}  # those of which something is being done elsewhere
        self._settled: dict[ProducerKey, None] = {}  # who has had anything done of that since the last tick
        for one in counters:
            refused = msgspec.msgpack.decode(one.refused, type=list[Refusal]) if one.refused else ()
            self._clients[one.system, one.epoch] = Inbound(one.counter, refused)

    def counter_of(self, origin: Origin) -> int:
        """The highest counter known of a client."""
        client = self._clients.get(identity_of(origin))
        return 0 if client is None else client.last

    def _client(self, identity: ProducerKey) -> Client:
        return self._clients.get(identity) or self._clients.heard(identity, Inbound)

    # What is being done elsewhere

    def pend(self, origin: Origin, counter: int, last: int | None = None, is_stored: bool = False) -> None:
        """Keep what a client has just done with this counter, or did not yet, unsafe until `settle`.

        `last`: the last counter of several that are done together. `is_stored`: it will be done after a
        crash too.
        """
        identity = identity_of(origin)
        client = self._pending[identity] = self._pending.get(identity) or self._client(identity)
        client.pending[counter] = None
        if not is_stored:
            client.doubtful[counter] = last or counter

    def settle(self, origin: Origin, counter: int) -> None:
        """Note that a pending item is done, or was refused."""
        identity = identity_of(origin)
        client = self._pending.get(identity)
        if client is not None and counter in client.pending:
            del client.pending[counter]
            client.doubtful.pop(counter, None)
            self._settled[identity] = None
            if not client.pending:
                del self._pending[identity]

    def safe_of(self, origin: Origin, counter: int) -> int:
        """Up to where all is done of what a client has done up to this counter."""
        client = self._pending.get(identity_of(origin)) if self._pending else None
        return counter if client is None else client.safe(counter)

    def take_settled(self) -> Iterable[ProducerKey]:
        """Clients of which more may be safe than at the last tick."""
        settled, self._settled = self._settled, {}
        return settled

    # What was found, and what is counted

    def learn(self, origin: Origin, counter: int) -> None:
        """Note that an item of a client with this counter was found on disk."""
        if isinstance(origin, ForwardedOrigin):
            return  # the client may be known here too, and counts by itself
        identity = identity_of(origin)
        client = self._clients.get(identity)
        if client is None:
            self._clients[identity] = Inbound(counter)
        elif counter > client.last:
            client.last = client.stored = counter

    def count_up(self, origin: Origin, counter: int) -> int:
        """Note how far a client has counted, and forget those not heard of for longest; how far it had.

        On the hot path: `heard` and `count_up` are written out.
        """
        identity = identity_of(origin)
        client = self._clients.pop(identity, None)
        if client is None:
            client = self._clients.heard(identity, Inbound)
        else:
            self._clients[identity] = client
        before = client.last
        if counter > before:
            client.last = counter
        return before

    def latest_epochs(self, prefix: str) -> dict[str, int]:
        """The latest epoch in which each system has counted whose name begins like this."""
        epochs: dict[str, int] = {}
        for (system, epoch), client in self._clients.items():
            if client.last and system.startswith(prefix):
                epochs[system] = max(epoch, epochs.get(system, 0))
        return epochs

    def is_waiting(self, origin: Origin) -> bool:
        """Whether anything that a client has done waits for a commit."""
        identity = identity_of(origin)
        if identity in self._due or not self._flights:
            return identity in self._due
        return any(identity in flight for _, flight in self._flights)

    def needs_no_more(self, origin: Origin) -> None:
        """Nothing of what a client has done so far waits for a commit: none of it is to be done again."""
        client = self._clients.get(identity_of(origin))
        if client is not None:
            client.stored = client.last

    # What was refused

    def refuse(self, origin: Origin, refusal: Refusal) -> None:
        """Remember that something was refused, until the client has seen that."""
        self._client(identity_of(origin)).refuse(refusal)

    def see(self, origin: Origin, counter: int) -> None:
        """The client has had all answers up to this counter."""
        client = self._clients.get(identity_of(origin))
        if client is not None:
            client.hear(counter)

    def refused(self, origin: Origin) -> list[Refusal]:
        """The refusals that the client may not have seen."""
        client = self._clients.get(identity_of(origin))
        return [] if client is None else list(client.refusals)

    # Commits

    @property
    def is_due(self) -> bool:
        """Whether any count is to be stored with this tick."""
        return any(self._due.values())

    def keep(self, origin: Origin) -> None:
        """Have a client's count stored with this tick; what others have handed on counts for nobody here."""
        if not isinstance(origin, ForwardedOrigin):
            self._due[identity_of(origin)] = True

    def wait(self, origin: Origin) -> None:
        """Note that a client's change is in this tick's commit, which itself says how far it has counted."""
        self._due.setdefault(identity_of(origin), False)

    def gone(self, origin: Origin, counter: int) -> None:
        """Note that a record that showed a client's count is not stored any more."""
        if isinstance(origin, ForwardedOrigin):
            return
        identity = identity_of(origin)
        client = self._clients.get(identity)
        if client is None or counter > client.heard:  # otherwise the client will not come again with it
            self._due[identity] = True

    def take_due(self, wall: float, mark: int) -> list[Operation]:
        """The counts to be stored with this tick, whose commit has this mark; `wall` stamps them."""
        due, self._due = self._due, {}
        if not due:
            return []
        clients = {identity: self._client(identity) for identity in due}
        self._flights.append((mark, {identity: client.last for identity, client in clients.items()}))
        # What was refused must be stored too, since what is stored may stand behind it.
        seen_us = int(wall * 1e6)
        return [
            CountProducer(_counter(identity, client, seen_us))
            for identity, client in clients.items()
            if due[identity] or client.refusals or client.doubtful
        ]

    def durable(self, mark: int) -> None:
        """The commits up to this mark are on disk."""
        while self._flights and self._flights[0][0] <= mark:
            for identity, counter in self._flights.popleft()[1].items():
                client = self._clients.get(identity)
                if client is not None and counter > client.stored:
                    client.stored = counter

    def failed(self) -> set[ProducerKey]:
        """The commits that were under way were not made, nor this tick's: who has to do something again."""
        uncounted = {identity for _, flight in self._flights for identity in flight} | self._due.keys()
        self._due = {}
        self._flights.clear()
        for identity in uncounted:
            client = self._client(identity)
            client.set_back()
            if not client.pending:
                self._pending.pop(identity, None)
        return uncounted

    def keep_again(self, identities: Iterable[ProducerKey]) -> None:
        """Have counts stored again, as the records that showed them may be gone with what is stored."""
        self._due.update({one: True for one in identities if self._client(one).stored})


def _counter(identity: ProducerKey, client: Client, seen_us: int) -> Counter:
    doubtful = [Refusal(first, last, UNCONFIRMED) for first, last in client.doubtful.items()]
    refusals = client.refusals + doubtful
    refused = msgspec.msgpack.encode(refusals) if refusals else b""
    return Counter(*identity, client.last, seen_us, refused)


def check_growing(counters: Sequence[int], last: int) -> None:
    """Refuse numbers that do not grow from the last one on: all that comes on a connection is counted."""
    if counters[0] > last and all(map(lt, counters, counters[1:])):
        return
    for row, counter in enumerate(counters):
        if counter <= last:
            raise CodecError(f"$[{row}].counter", f"{counter} is not above {last}")
        last = counter
