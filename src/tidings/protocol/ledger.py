"""How far each client has counted: what was had is not done twice, and what was refused can be told again.

Everything that a client does is numbered, by its system and in its epoch, so the highest number tells what
was done. That is stored with whatever else a commit holds of the client's doing, unless it can be told from
that; what was refused is remembered until the client says that it has seen the answer. What was counted but
is being done elsewhere is *pending*: nothing from there on is safe yet.

Whose numbers they are is part of who a client is: another user who says that it is the same system counts by
itself, so nobody can count in another's name, nor keep another from counting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import lt
from typing import TYPE_CHECKING

import msgspec

from tidings.errors import CodecError
from tidings.ids import Handed, Origin
from tidings.protocol.messages import Refusal
from tidings.store.interface import Count, Counter, Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEMS_MAX = 100_000
"""Systems whose counters are remembered; those not heard of for longest are forgotten."""
REFUSALS_MAX = 10_000
"""Refusals that are remembered of one client that does not say it has seen them; the oldest are forgotten."""

Identity = tuple[str, int]


def identity_of(origin: Origin) -> Identity:
    """A client in one of its lives: system and user in one text, and epoch."""
    system, source = origin.system or "", origin.source
    return (f"{system}/{source.partition('/')[0]}" if source else system), origin.epoch


class Ledger:
    """See the module."""

    def __init__(self, counters: Iterable[Counter]) -> None:
        self._counters: dict[Identity, int] = {}
        self._refusals: dict[Identity, list[Refusal]] = {}
        self._seen: dict[Identity, int] = {}  # up to where clients have had all answers
        self._due: dict[Identity, bool] = {}  # who waits for this tick's commit; whether its count is stored
        self._flying: dict[Identity, int] = {}  # who waits for a commit, and how far it had counted
        self._flights: deque[tuple[int, dict[Identity, int]]] = deque()  # the same by the mark of the commit
        self._pending: dict[Identity, dict[int, None]] = {}  # counters that are not done yet, in their order
        self._settled: dict[Identity, None] = {}  # who has had anything done of that since the last tick
        for one in counters:
            self._counters[one.system, one.epoch] = one.counter
            if one.refused:
                refused = msgspec.msgpack.decode(one.refused, type=list[Refusal])
                self._refusals[one.system, one.epoch] = refused
        self._durable = dict(self._counters)

    def counter_of(self, origin: Origin) -> int:
        """The highest counter known of a client."""
        return self._counters.get(identity_of(origin), 0)

    # What is being done elsewhere

    def pend(self, origin: Origin, counter: int) -> None:
        """What a client has just done with this counter, or did not yet, is not safe before `settle`."""
        self._pending.setdefault(identity_of(origin), {})[counter] = None

    def settle(self, origin: Origin, counter: int) -> None:
        """It is done, or was refused."""
        identity = identity_of(origin)
        pending = self._pending.get(identity, {})
        if counter in pending:
            del pending[counter]
            self._settled[identity] = None
            if not pending:
                del self._pending[identity]

    def safe_of(self, origin: Origin, counter: int) -> int:
        """Up to where all is done of what a client has done up to this counter."""
        pending = self._pending.get(identity_of(origin)) if self._pending else None
        return min(counter, next(iter(pending)) - 1) if pending else counter

    def take_settled(self) -> Iterable[Identity]:
        """Clients of which more may be safe than at the last tick."""
        settled, self._settled = self._settled, {}
        return settled

    # What was found, and what is counted

    def learn(self, origin: Origin, counter: int) -> None:
        """Something of a client that has this counter was found on disk."""
        if isinstance(origin, Handed):
            return  # the client may be known here too, and counts by itself
        identity = identity_of(origin)
        if counter > self._counters.get(identity, 0):
            self._counters[identity] = self._durable[identity] = counter

    def count_up(self, origin: Origin, counter: int) -> int:
        """Note how far a client has counted, and forget those not heard of for longest; how far it had."""
        identity = identity_of(origin)
        before = self._counters.get(identity, 0)
        if counter <= before:
            return before
        self._counters.pop(identity, None)  # taken out, so that it stands last
        self._counters[identity] = counter
        if len(self._counters) > SYSTEMS_MAX:
            forgotten = next(iter(self._counters))
            for known in (self._counters, self._durable, self._refusals, self._seen, self._due, self._flying):
                known.pop(forgotten, None)
        return before

    def is_waiting(self, origin: Origin) -> bool:
        """Whether anything that a client has done waits for a commit."""
        identity = identity_of(origin)
        return identity in self._due or identity in self._flying

    def needs_no_more(self, origin: Origin) -> None:
        """Nothing of what a client has done so far waits for a commit: none of it is to be done again."""
        identity = identity_of(origin)
        self._durable[identity] = self._counters.get(identity, 0)

    # What was refused

    def refuse(self, origin: Origin, refusal: Refusal) -> None:
        """Remember that something was refused, until the client has seen that."""
        refused = self._refusals.setdefault(identity_of(origin), [])
        refused.append(refusal)
        if len(refused) > REFUSALS_MAX:
            del refused[0]

    def see(self, origin: Origin, counter: int) -> None:
        """The client has had all answers up to this counter."""
        identity = identity_of(origin)
        if identity in self._counters:
            self._seen[identity] = counter
        refused = self._refusals.get(identity)
        if refused is not None and refused[0].last <= counter:
            rest = [one for one in refused if one.last > counter]
            if rest:
                self._refusals[identity] = rest
            else:
                del self._refusals[identity]

    def refused(self, origin: Origin) -> list[Refusal]:
        """What was refused, and may not have been seen."""
        return list(self._refusals.get(identity_of(origin), ()))

    # Commits

    @property
    def is_due(self) -> bool:
        """Whether any count is to be stored with this tick."""
        return any(self._due.values())

    def keep(self, origin: Origin) -> None:
        """Have a client's count stored with this tick; what others have handed on counts for nobody here."""
        if not isinstance(origin, Handed):
            self._due[identity_of(origin)] = True

    def wait(self, origin: Origin) -> None:
        """What a client has just done is in this tick's commit, and itself tells how far it has counted."""
        self._due.setdefault(identity_of(origin), False)

    def gone(self, origin: Origin, counter: int) -> None:
        """Something that told how far a client has counted is not stored any more."""
        identity = identity_of(origin)
        if isinstance(origin, Handed):
            return
        if counter > self._seen.get(identity, 0):  # otherwise the client will not come again with it
            self._due[identity] = True

    def take_due(self, wall: float, mark: int) -> list[Operation]:
        """The counts to be stored with this tick, whose commit has this mark; `wall` stamps them."""
        due, self._due = self._due, {}
        if not due:
            return []
        flight = {identity: self._counters.get(identity, 0) for identity in due}
        self._flying.update(flight)
        self._flights.append((mark, flight))
        # What was refused must be stored too, since what is stored may stand behind it.
        stored = [one for one, is_stored in due.items() if is_stored or one in self._refusals]
        return [Count(self._counter(identity, int(wall * 1e6))) for identity in stored]

    def _counter(self, identity: Identity, seen_us: int) -> Counter:
        refused = self._refusals.get(identity)
        stored = msgspec.msgpack.encode(refused) if refused else b""
        return Counter(*identity, self._counters.get(identity, 0), seen_us, stored)

    def durable(self, mark: int) -> None:
        """The commits up to this mark are on disk."""
        while self._flights and self._flights[0][0] <= mark:
            for identity, counter in self._flights.popleft()[1].items():
                if counter > self._durable.get(identity, 0):
                    self._durable[identity] = counter
                if self._flying.get(identity) == counter:
                    del self._flying[identity]

    def failed(self) -> set[Identity]:
        """The commits that were under way were not made, nor this tick's: who has to do something again."""
        uncounted = {identity for _, flight in self._flights for identity in flight} | self._due.keys()
        self._due, self._flying = {}, {}
        self._flights.clear()
        for identity in uncounted:
            before = self._durable.get(identity, 0)
            self._counters[identity] = before
            pending = {one: None for one in self._pending.pop(identity, ()) if one <= before}
            if pending:
                self._pending[identity] = pending
            refused = [one for one in self._refusals.pop(identity, []) if one.last <= before]
            if refused:
                self._refusals[identity] = refused
        return uncounted

    def keep_again(self, identities: Iterable[Identity]) -> None:
        """Have counts stored again: what told them may be gone with what is stored nonetheless."""
        self._due.update({one: True for one in identities if self._durable.get(one)})


def check_growing(counters: Sequence[int], last: int) -> None:
    """Refuse numbers that do not grow from the last one on: all that comes on a connection is counted."""
    if counters[0] > last and all(map(lt, counters, counters[1:])):
        return
    for row, counter in enumerate(counters):
        if counter <= last:
            raise CodecError(f"$[{row}].counter", f"{counter} is not above {last}")
        last = counter
