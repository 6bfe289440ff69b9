"""Random lives of two queues and three clients, against a model of lists and dicts.

Whatever clients do, and whatever becomes of connections, commits and the node, after each step the queues
must hold what the model holds: no message is lost, none is in two hands, none comes back once it is on disk
that it was acknowledged, all stand in their order, and each knows how often it was handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues.rig import DONE, GIVE_BACK, UNOPENED, Client, Hand, Rig, job, numbers, pass_time
from tidings.protocol.messages import Bye, Commit
from tidings.queues.inflight import RESUME_S
from tidings.queues.transactions import TRANSACTION_S

QUEUES = ("stored", "fast")
NAMES = ("a", "b", "c")
REDELIVERY_S = 10.0

clients = st.sampled_from(NAMES)
choices = st.integers(0, 5)
queues = st.sampled_from(QUEUES)
endings = st.sampled_from(
    ["run", "run", "run", "run", "failed", "failed", "crash before the disk has it", "crash after"]
)


@dataclass
class Item:
    """A message, as the model knows it."""

    n: int
    queue: str
    place: int  # in the order of arrival
    deliveries: int = 0


@dataclass
class Holder:
    """What one client holds."""

    client: Client
    hands: dict[int, tuple[Item, Hand, float]] = field(default_factory=dict)  # until when
    requests: dict[int, int] = field(default_factory=dict)  # by which they were got
    puts: list[Item] | None = None  # in its transaction; None: it has none
    taken: list[Item] = field(default_factory=list)  # in its transaction
    until: float = 0.0  # when that is too old
    transactions: int = 0


def someone_holds(machine: Queues) -> bool:
    return any(holder.hands for holder in machine.holders.values())


def some_transaction_is_open(machine: Queues) -> bool:
    return any(holder.puts is not None for holder in machine.holders.values())


def something_is_there(machine: Queues) -> bool:
    return any(machine.shelves.values())


class Queues(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.shelves: dict[str, list[Item]] = {queue: [] for queue in QUEUES}
        self.holders = {name: Holder(Client(self.rig, name, name)) for name in NAMES}
        self.made = 0
        for queue in QUEUES:
            self.holders["a"].client.create(
                queue, persistent=queue == "stored", keep=True, redelivery_s=REDELIVERY_S, deliveries_max=None
            )

    # The model

    def _back(self, item: Item, counts: bool = True) -> None:
        item.deliveries += counts
        self.shelves[item.queue].append(item)
        self.shelves[item.queue].sort(key=lambda one: one.place)

    def _drop_hands(self, holder: Holder, counts: bool = True) -> None:
        counted: set[int] = set()  # of what came with one request only the first was delivered for sure
        for item, _, _ in holder.hands.values():
            request = holder.requests[item.n]
            self._back(item, counts and request not in counted)
            counted.add(request)
        holder.hands.clear()

    def _roll_back(self, holder: Holder, counts: bool = True) -> None:
        for item in holder.taken:
            self._back(item, counts)
        holder.puts, holder.taken = None, []

    def _late(self) -> None:
        """What is held for too long comes back, and transactions that are open for too long end."""
        for holder in self.holders.values():
            if holder.puts is not None and holder.until <= self.rig.now:
                self._roll_back(holder)
            for n, (item, _, due) in list(holder.hands.items()):
                if due <= self.rig.now:
                    del holder.hands[n]
                    self._back(item)

    def _new(self, queue: str) -> Item:
        self.made += 1
        return Item(self.made, queue, self.made)

    def _open(self, choice: int) -> Holder:
        """One of those who have a transaction open."""
        found = [holder for holder in self.holders.values() if holder.puts is not None]
        return found[choice % len(found)]

    # How things end

    def _carry(self, holder: Holder, send: Callable[[int], None], ending: str) -> bool:
        """Let something that a client says end in a way; it says again what was not accepted.

        Whether it was accepted at once, or known when the client came again.
        """
        client, before = holder.client, holder.client.peer
        send(0)
        self.rig.tick()
        if ending in ("run", "crash after"):
            self.rig.sync()
        was_accepted = client.accepted == client.counter
        if ending == "failed" and self.rig.commits:
            self.rig.fail()
            self._come_again()
        elif ending.startswith("crash"):
            self._crash()
        self.rig.run()
        if was_accepted or client.peer is before or client.welcome.counter == client.counter:
            return True
        send(client.welcome.counter)
        self.rig.run()
        return False

    def _come_again(self) -> None:
        """All who were sent away come again; their transactions are gone."""
        self.rig.run()
        for holder in self.holders.values():
            if holder.client.peer.got(Bye):
                holder.client.lose()
                holder.client.come()
                self._roll_back(holder)

    def _crash(self) -> None:
        """The node crashes: what is not on disk is gone, and nobody holds anything."""
        again = self.rig.restart()
        again.now = self.rig.now
        self.rig = again
        for holder in self.holders.values():
            self._drop_hands(holder, counts=False)
            self._roll_back(holder, counts=False)
            holder.client.come(again)
        self.shelves["fast"].clear()

    # Rules

    @rule(name=clients, plan=st.lists(queues, min_size=1, max_size=4), ending=endings)
    def put(self, name: str, plan: list[str], ending: str) -> None:
        holder = self.holders[name]
        client, first = holder.client, holder.client.counter + 1
        items = [self._new(queue) for queue in plan]
        client.counter += len(items)

        def send(known: int) -> None:
            for counter, item in enumerate(items, first):
                if counter > known:
                    client.put_again(item.queue, counter, job(item.n))

        was_done = self._carry(holder, send, ending)
        for item in items:
            if item.queue == "stored" or not was_done or not ending.startswith("crash"):
                self.shelves[item.queue].append(item)

    @precondition(something_is_there)
    @rule(
        name=clients,
        queue=queues,
        count=st.integers(1, 3),
        where=st.sampled_from(["", "n > 3"]),
        fails=st.booleans(),
    )
    def get(self, name: str, queue: str, count: int, where: str, fails: bool) -> None:
        holder = self.holders[name]
        number = holder.client.request("get", queue=queue, count=count, where=where)
        expected = self._take(queue, count, where)
        until = self.rig.now + REDELIVERY_S
        self.rig.tick()
        if fails and self.rig.commits:
            self.rig.fail()
            self._come_again()
        self.rig.run()
        if holder.client.reply(number) is None:
            holder.client.request_again(number, "get", queue=queue, count=count, where=where)
            self.rig.run()
        hands = holder.client.got(number)
        assert hands is not None
        for item, hand in zip(expected, hands, strict=True):
            assert (hand.n, hand.delivery) == (item.n, item.deliveries + 1)
            assert hand.redelivered or not item.deliveries
            holder.hands[item.n] = item, hand, until
            holder.requests[item.n] = number

    def _take(self, queue: str, count: int, where: str) -> list[Item]:
        found = [item for item in self.shelves[queue] if not where or item.n > 3][:count]
        self.shelves[queue] = [item for item in self.shelves[queue] if item not in found]
        return found

    @precondition(someone_holds)
    @rule(
        choice=choices,
        count=st.integers(1, 3),
        outcome=st.sampled_from([DONE, GIVE_BACK, UNOPENED]),
        ending=endings,
    )
    def settle(self, choice: int, count: int, outcome: int, ending: str) -> None:
        holding = [holder for holder in self.holders.values() if holder.hands]
        holder = holding[choice % len(holding)]
        client = holder.client
        held = list(holder.hands.values())[:count]
        hands = [hand for _, hand, _ in held]
        first = client.counter + 1
        client.counter += len(hands)
        is_lost = ending.startswith("crash") and not ending.endswith("after")
        for item, _, _ in () if is_lost else held:
            del holder.hands[item.n]
            if outcome != DONE:
                self._back(item, outcome == GIVE_BACK)
        self._carry(holder, lambda _known: client.settle_again(first, outcome, *hands), ending)
        if ending == "run":
            assert not [one for one in client.refusals if one[0] >= first]
        for item, _, _ in held if is_lost else ():
            if item in self.shelves[item.queue]:  # its reader has said it again, before anyone else had it
                self._settle_on_shelf(item, outcome)

    def _settle_on_shelf(self, item: Item, outcome: int) -> None:
        if outcome == DONE:
            self.shelves[item.queue].remove(item)
        else:
            item.deliveries += outcome == GIVE_BACK

    @rule(name=clients)
    def begin(self, name: str) -> None:
        holder = self.holders[name]
        if holder.puts is None:
            holder.transactions += 1
            holder.client.begin(holder.transactions)
            holder.puts, holder.until = [], self.rig.now + TRANSACTION_S

    @precondition(some_transaction_is_open)
    @rule(choice=choices, queue=queues)
    def put_in_a_transaction(self, choice: int, queue: str) -> None:
        holder, item = self._open(choice), self._new(queue)
        holder.client.put(queue, item.n, transaction=holder.transactions)
        self.rig.run()
        assert holder.puts is not None
        holder.puts.append(item)

    @precondition(some_transaction_is_open)
    @rule(choice=choices, queue=queues)
    def get_in_a_transaction(self, choice: int, queue: str) -> None:
        """Its own messages stand among the others where they came."""
        holder = self._open(choice)
        assert holder.puts is not None
        hands = holder.client.get(queue, transaction=holder.transactions)
        own = [item for item in holder.puts if item.queue == queue]
        found = sorted(self.shelves[queue] + own, key=lambda item: item.place)[:1]
        assert numbers(hands) == [item.n for item in found]
        for item in found:
            if item in own:
                holder.puts.remove(item)
            else:
                self.shelves[queue].remove(item)
                holder.taken.append(item)

    @precondition(some_transaction_is_open)
    @rule(choice=choices, ending=endings)
    def commit(self, choice: int, ending: str) -> None:
        holder = self._open(choice)
        assert holder.puts is not None
        client, number = holder.client, holder.transactions
        client.counter += 1
        counter = client.counter
        puts, taken = holder.puts, holder.taken
        holder.puts, holder.taken = None, []
        was_done = self._carry(
            holder, lambda _known: client.peer.send(Commit(counter, client.seen, number)), ending
        )
        if not was_done:
            assert (counter, counter, "rolled-back") in client.refusals
            for item in taken:
                if item.queue == "stored" or ending == "failed":
                    self._back(item, counts=ending == "failed")
            return
        for item in puts:
            if item.queue == "stored" or not ending.startswith("crash"):
                self.made += 1
                item.place = self.made  # what is put in a transaction comes when it is committed
                self.shelves[item.queue].append(item)

    @precondition(some_transaction_is_open)
    @rule(choice=choices)
    def roll_back(self, choice: int) -> None:
        holder = self._open(choice)
        holder.client.roll_back(holder.transactions)
        self._roll_back(holder)

    @rule(name=clients, way=st.sampled_from(["resumed", "late", "goodbye"]))
    def part(self, name: str, way: str) -> None:
        holder = self.holders[name]
        holder.client.leave() if way == "goodbye" else holder.client.lose()
        self._roll_back(holder)
        if way == "goodbye":
            self._drop_hands(holder)
        else:
            pass_time(self.rig, RESUME_S + (0.1 if way == "late" else -0.1))
            self._late()
            if way == "late":
                self._drop_hands(holder)
        holder.client.come()

    @rule(seconds=st.sampled_from([1.0, REDELIVERY_S + 0.1, TRANSACTION_S + 0.1]))
    def time_passes(self, seconds: float) -> None:
        pass_time(self.rig, seconds)
        self._late()

    @rule()
    def crash(self) -> None:
        self._crash()

    # What must hold

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        for name in QUEUES:
            queue = self.rig.queues.find(name)
            there = [queue.shelf[number].event.values["n"] for number in queue.shelf]
            assert there == [item.n for item in self.shelves[name]], name
            held = {one.message.event.values["n"] for one in queue.held.values()}
            assert held == self._held(name), name

    def _held(self, queue: str) -> set[int]:
        holders = self.holders.values()
        hands = {item.n for holder in holders for item, _, _ in holder.hands.values() if item.queue == queue}
        return hands | {item.n for holder in holders for item in holder.taken if item.queue == queue}


TestQueues = Queues.TestCase
TestQueues.settings = settings(stateful_step_count=50, max_examples=often(80))
