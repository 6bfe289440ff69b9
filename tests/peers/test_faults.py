"""Whatever is cut, lost and restarted, a message of a peer is in one place: its queue, or done with."""

from __future__ import annotations

from effort import often
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peers.nodes import Client, Home
from queues.rig import DONE, GIVE_BACK, Hand, numbers

ADDRESS = "jobs@kitchen"

Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 3)),
        st.tuples(st.just("get"), st.integers(1, 3)),
        st.tuples(st.just("done"), st.integers(0, 5)),
        st.tuples(st.just("give back"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["cut", "mend", "restart", "lose", "come", "leave"]), st.just(0)),
    ),
    max_size=40,
)


class World:
    """A client of a node whose peer has the queue, and what it has been told of its messages."""

    def __init__(self) -> None:
        self.home = Home("kitchen")
        self.link = self.home.links["kitchen"]
        self.owners = 0
        self.owner = self.new_owner()
        self.owner.create("jobs", persistent=True, deliveries_max=None, redelivery_s=None)
        self.ann = self.home.client()
        self.is_here = self.is_linked = True
        self.made = 0
        self.asked: list[int] = []
        self.held: list[Hand] = []
        self.said: dict[int, int] = {}  # the job of each counter under which it was said to be done
        self.refused: set[int] = set()
        self.unanswered: set[int] = set()  # said by one who left before it was accepted: nothing is promised

    def new_owner(self) -> Client:
        self.owners += 1
        return Client(self.link.far, f"own{self.owners}", "owner")

    def put(self, count: int) -> None:
        for _ in range(count):
            self.owner.put("jobs", self.made)
            self.made += 1
        self.link.far.run()
        self.home.run()

    def get(self, count: int) -> None:
        if self.is_here:
            self.asked.append(self.ann.request("get", queue=ADDRESS, count=count, wait_s=5.0))
            self.look()

    def look(self) -> None:
        """Take in what has come."""
        self.home.run()
        for number in list(self.asked):
            reply = self.ann.reply(number)
            if reply is not None:
                self.asked.remove(number)
                if reply.error is None:
                    self.held += [Hand(*row) for row in reply.result["messages"]]
        self.refused |= {one for first, last, _ in self.ann.refusals for one in range(first, last + 1)}

    def settle(self, outcome: int, place: int) -> None:
        if self.is_here and self.held:
            hand = self.held.pop(place % len(self.held))
            counter = self.ann.settle(outcome, hand)
            if outcome == DONE:
                self.said[counter] = hand.n
            self.look()

    def cut(self) -> None:
        if self.is_linked:
            self.is_linked = False
            self.link.cut()

    def mend(self) -> None:
        if not self.is_linked:
            self.is_linked = True
            self.link.mend()

    def restart(self) -> None:
        self.cut()
        self.is_linked = True
        self.link.mend(self.link.far.restart())
        self.owner = self.new_owner()

    def lose(self) -> None:
        if self.is_here:
            self.look()
            self.is_here = False
            self.ann.lose()

    def come(self) -> None:
        if not self.is_here:
            self.is_here = True
            self.ann.come()
            for refusal in self.ann.welcome.refused:
                self.refused |= set(range(refusal.first, refusal.last + 1))
            if not self.ann.welcome.kept:
                self.held.clear()
            for number in self.asked:
                self.ann.request_again(number, "get", queue=ADDRESS, wait_s=5.0)
            self.look()

    def leave(self) -> None:
        """Say goodbye, and begin anew."""
        self.come()
        self.unanswered |= {counter for counter in self.said if counter > self.ann.accepted}
        self.ann.leave()
        self.held.clear()
        self.asked.clear()
        counter, self.ann = self.ann.counter, self.home.client(f"sys{self.made}-{self.owners}")
        self.ann.counter = counter  # so that counters tell all that was ever said apart

    def take(self, step: Step) -> None:
        name, count = step
        if name in ("done", "give back"):
            self.settle(DONE if name == "done" else GIVE_BACK, count)
        elif name == "wait":
            self.home.pass_time(float(count))
        elif name in ("put", "get"):
            getattr(self, name)(count)
        else:
            getattr(self, name)()

    def heal(self) -> None:
        """Let everything be well, and everybody go."""
        self.mend()
        self.come()
        self.home.pass_time(10.0)
        self.look()
        self.leave()
        self.home.pass_time(60.0)


@settings(max_examples=often(150), deadline=None)
@given(steps)
@example([("put", 1), ("get", 1), ("cut", 0), ("done", 0), ("wait", 1), ("leave", 0)])
def test_a_message_is_in_its_queue_until_it_is_done_with(taken: list[Step]) -> None:
    world = World()
    for step in taken:
        world.take(step)
    world.heal()
    left = numbers(world.owner.read("jobs"))
    assert len(left) == len(set(left))
    answered = world.said.keys() - world.refused - world.unanswered
    done = {world.said[counter] for counter in answered}
    said = set(world.said.values())
    assert done.isdisjoint(left)
    assert set(left) | said == set(range(world.made))
    assert world.owner.describe("jobs").get("in_flight", 0) == 0
    assert world.home.rig.queues.in_flight.elsewhere == 0
