"""Groups that three nodes keep: whichever dies or is cut off, one is the home, and nothing is spent twice."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from effort import SEED, often
from overlay.network import Network

from tidings.agents.conditions import seen
from tidings.agents.keeping import Keeping
from tidings.agents.kept_tree import KeptTree
from tidings.errors import AgentError, Disconnected, GroupEnded, TidingsError
from tidings.event import Event

EDGES = ("a", "b"), ("a", "c"), ("b", "c")
ALL = {"is": "at_least", "count": None, "parts": []}
STANDS_IN_S = 20.0
"""Longer than a deputy waits, finds out and is agreed to."""


class Swarm:
    """Nodes of which a, b and c keep the group `trip`, whose home is a; with an application at each."""

    def __init__(self, *more: tuple[str, str], seed: int = 1, **options: Any) -> None:
        self.network = Network(*EDGES, *more, seed=seed)
        self.apps = {name: self.network.app(name) for name in self.network.names}
        opened = {"condition": ALL, "grace_s": 1.0, "budget": {"usd": 100}, "deputies": ["b", "c"], **options}
        found = self.ask("a", "agent.open", group="g", name="trip", **opened)
        assert found["kept_by"] == ["a", "b", "c"]

    def ask(self, node: str, operation: str, **arguments: Any) -> Any:
        """Return the answer; an error is raised."""
        told = self.apps[node].ask(operation, **arguments)
        for _ in range(100):
            if told:
                break
            self.network.run(0.2)
        if isinstance(told[0], TidingsError):
            raise told[0]
        return told[0]

    def enter(self, node: str, usd: float = 20) -> dict[str, Any]:
        """Enter an agent by way of a node; return how it is named in requests."""
        cookie = f"the very cookie of {node}"
        made = {"group": "g" if node == "a" else "g@a", "cookie": cookie, "name": node, "lease_s": 3_600.0}
        terms = self.ask(node, "agent.enter", **made, share={"usd": usd})
        return {"agent": terms["agent"], "life": 1, "cookie": cookie}

    def spend(self, node: str, life: dict[str, Any], step: int, usd: float = 1) -> float:
        """Spend something; return what is left."""
        reply = self.ask(node, "agent.spend", **life, amounts={"usd": usd}, step=step)
        return float(reply["budget"]["usd"])

    def keeping(self, node: str) -> Keeping:
        return self.network[node].core.agents.keeping

    def tree(self, node: str) -> KeptTree:
        return self.keeping(node).trees["g"]

    @property
    def homes(self) -> list[str]:
        """The nodes that take themselves for the home."""
        return [name for name in "abc" if self.network[name].is_up and self.tree(name).is_home]

    def cut_off(self, node: str, undo: bool = False) -> None:
        """Let nothing through between a node and the others, or all again."""
        for other in set("abc") - {node}:
            (self.network.heal if undo else self.network.part)(node, other)

    def money(self, node: str) -> dict[str, float]:
        info = self.ask(node, "agent.show", group="g" if node in "abc" else "g@a")
        kinds = "given", "spent", "refunded", "held", "written_off"
        return {kind: info[kind].get("usd", 0) for kind in kinds}


def test_a_deputy_stands_in_for_a_home_that_dies_and_members_anywhere_go_on() -> None:
    swarm = Swarm(("d", "a"), ("d", "b"), ("d", "c"))
    lives = {node: swarm.enter(node) for node in "bd"}
    assert swarm.spend("b", lives["b"], 1, 5) == swarm.spend("d", lives["d"], 1, 5) == 15
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    (home,) = swarm.homes
    assert home in "bc"
    assert swarm.spend("b", lives["b"], 1, 5) == 15  # what was spent there counts once here
    assert swarm.spend("b", lives["b"], 2) == 14
    assert swarm.spend("d", lives["d"], 2) == 14  # it keeps nothing, and asks those who do
    swarm.network["a"].start()
    swarm.network.run(STANDS_IN_S)
    assert swarm.homes == [home]
    assert swarm.spend("d", lives["d"], 3) == 13
    assert swarm.money("a") == {"given": 100, "spent": 13, "refunded": 0, "held": 87, "written_off": 0}
    assert swarm.tree("a").ledgers["g"].running_count == 2
    swarm.network[home].crash()
    swarm.network.run(STANDS_IN_S)
    assert swarm.homes not in ([], [home])
    assert swarm.spend("d", lives["d"], 4) == 12


def test_those_who_watch_a_group_hear_of_its_end_at_once_when_it_has_another_home() -> None:
    """A member that does not hear in time that it has to end is taken for lost, with what it holds."""
    swarm = Swarm(("d", "a"), ("d", "b"), ("d", "c"))
    version = swarm.ask("d", "agent.show", group="g@a")["version"]
    watches = {node: swarm.apps[node].ask("agent.watch", group="g@a", after=version) for node in "bcd"}
    swarm.network.run(1)
    assert not any(watches.values())
    swarm.network["a"].crash()
    while not swarm.homes:
        swarm.network.run(0.2)
    swarm.network.run(1)
    for node, told in watches.items():
        assert isinstance(told[0], Disconnected), node  # and watches again
        assert swarm.ask(node, "agent.show", group="g@a")["phase"] == "open"


def test_a_home_that_is_cut_off_spends_nothing_and_steps_back() -> None:
    swarm = Swarm()
    at_a, at_b = swarm.enter("a"), swarm.enter("b")
    swarm.cut_off("a")
    told = swarm.apps["a"].ask("agent.spend", **at_a, amounts={"usd": 7}, step=1)
    swarm.network.run(2)
    assert told == []
    swarm.network.run(60)
    assert isinstance(told[0], Disconnected)
    assert swarm.network.count("a", "agent_events", "spent") == 0  # it is not published, either
    (home,) = set(swarm.homes) - {"a"}
    assert swarm.spend("b", at_b, 1) == 19
    assert swarm.tree(home).ledgers["g"].members[at_a["agent"]].account.held == {"usd": 20_000_000}
    swarm.cut_off("a", undo=True)
    swarm.network.run(STANDS_IN_S)
    assert swarm.homes == [home]
    assert swarm.spend("a", at_a, 1, 7) == 13  # asked for again, at the new home: once
    assert swarm.money("a") == {"given": 100, "spent": 8, "refunded": 0, "held": 92, "written_off": 0}
    assert swarm.network.count("a", "agent_homes", "stepped-back") == 1


def test_leases_are_renewed_together_wherever_the_home_is_and_one_that_is_over_is_named() -> None:
    swarm = Swarm(together=True)
    lives = [swarm.enter("b"), {**swarm.enter("c"), "life": 9}]
    for _ in range(2):
        answer = swarm.ask("b", "agent.renew-all", group="g@a", lives=lives)
        going, over = answer["agents"]
        assert (going["agent"], going["goes_on"], going["together"]) == ("g.1@a", True, True)
        assert over == {"agent": "g.2@a", "problem": "life 9 is over; the agent has life 1"}
        swarm.network["a"].crash()
        swarm.network.run(STANDS_IN_S)


def test_a_home_that_is_away_or_not_known_just_now_can_not_be_asked_and_ends_nobody() -> None:
    swarm = Swarm(("a", "d"))
    life = swarm.enter("d")
    swarm.network["a"].crash()
    swarm.network["d"].crash()
    swarm.network["d"].start()
    swarm.network.run(STANDS_IN_S)
    with pytest.raises(Disconnected, match="node a is away"):
        swarm.spend("d", life, 1)
    with pytest.raises(Disconnected, match="node x is not known here just now"):
        swarm.spend("d", {**life, "agent": "g.1@x"}, 1)
    with pytest.raises(Disconnected, match="node x is not known here just now"):
        swarm.ask("d", "agent.watch", group="g@x")
    swarm.network["a"].start()
    swarm.network.run(STANDS_IN_S)
    assert swarm.spend("d", life, 1) == 19


def test_of_two_nodes_that_take_a_group_over_at_once_one_is_its_home() -> None:
    swarm = Swarm()
    swarm.network["a"].crash()
    swarm.network.run(2)
    told = [swarm.apps[node].ask("agent.take", group="trip") for node in "bc"]
    swarm.network.run(STANDS_IN_S)
    (home,) = swarm.homes
    assert all(isinstance(told["bc".index(one)][0], TidingsError) for one in {"b", "c"} - {home})
    assert swarm.tree("b").record == swarm.tree("c").record


def test_nobody_takes_the_place_of_a_home_that_others_reach() -> None:
    swarm = Swarm()
    swarm.network.part("a", "b")
    swarm.network.run(2 * STANDS_IN_S)
    assert swarm.homes == ["a"]
    with pytest.raises(AgentError, match="its home lives: a"):
        swarm.ask("b", "agent.take", group="g")
    swarm.spend("a", swarm.enter("a"), 1)
    swarm.network.heal("a", "b")
    swarm.network.run(5)
    assert swarm.money("b")["spent"] == 1


def test_what_a_home_decides_last_is_agreed_by_the_next_one_or_never_was() -> None:
    """A result whose giver was not answered: it is given again, and ends the group once."""
    swarm = Swarm(condition={"is": "at_least", "count": 1, "parts": []})
    at_b, idle = swarm.enter("b"), swarm.enter("c")
    swarm.cut_off("a")
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    swarm.ask("b", "agent.result", **at_b, result=b"42")
    swarm.network.run(1)
    assert swarm.ask("c", "agent.show", group="g@a")["phase"] == "ending"
    for node, life in (("b", at_b), ("c", idle)):
        swarm.ask(node, "agent.leave", **life)
    late = {"group": "g@a", "cookie": "the cookie of one that comes late", "lease_s": 60.0}
    with pytest.raises(GroupEnded):
        swarm.ask("b", "agent.enter", **late)
    swarm.cut_off("a", undo=True)
    swarm.network["a"].start()
    swarm.network.run(STANDS_IN_S)
    assert all(swarm.tree(node).has_ended for node in "abc")
    assert swarm.money("a") == {"given": 100, "spent": 0, "refunded": 100, "held": 0, "written_off": 0}


def test_groups_below_a_kept_one_are_kept_with_it() -> None:
    swarm = Swarm()
    cookie = "the cookie of a group below"
    made = {"group": "g", "cookie": cookie, "name": "below", "kind": "group", "lease_s": 3_600.0}
    agent = swarm.ask("a", "agent.enter", **made, share={"usd": 40})["agent"]
    about = {"condition": ALL, "parent": agent, "parent_cookie": cookie}
    swarm.ask("a", "agent.open", group="h", name="below", **about)
    member = {"group": "h@a", "cookie": "the cookie of a member", "name": "one", "lease_s": 3_600.0}
    life = swarm.ask("b", "agent.enter", **member, share={"usd": 10})
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    named = {"agent": life["agent"], "life": 1, "cookie": member["cookie"]}
    assert swarm.ask("b", "agent.spend", **named, amounts={"usd": 4}, step=1)["budget"] == {"usd": 6}
    swarm.ask("b", "agent.stop", which="g@a")
    swarm.network.run(1)
    swarm.ask("b", "agent.leave", **named)
    swarm.network.run(5)
    (home,) = swarm.homes
    assert {one.group.phase for one in swarm.tree(home).ledgers.values()} == {"ended"}
    assert swarm.money(home) == {"given": 100, "spent": 4, "refunded": 96, "held": 0, "written_off": 0}


def test_a_home_that_is_started_again_goes_on_and_all_nodes_at_once_too() -> None:
    swarm = Swarm()
    life = swarm.enter("b")
    swarm.spend("b", life, 1)
    swarm.network["a"].crash()
    swarm.network["a"].start()
    swarm.network.run(5)
    assert swarm.homes == ["a"]
    assert swarm.spend("b", life, 2) == 18
    for node in "abc":
        swarm.network[node].crash()
    for node in "abc":
        swarm.network[node].start()
    swarm.network.run(STANDS_IN_S)
    assert len(swarm.homes) == 1
    assert swarm.spend("b", life, 3) == 17


def test_a_group_that_is_opened_again_where_its_home_was_is_the_one_that_has_moved() -> None:
    swarm = Swarm()
    life = swarm.enter("b")
    swarm.cut_off("a")
    swarm.network.run(3 * STANDS_IN_S)
    swarm.cut_off("a", undo=True)
    swarm.network.run(STANDS_IN_S)
    assert "a" not in swarm.homes
    again = swarm.ask("a", "agent.open", group="g", name="trip", condition=ALL, budget={"usd": 5})
    assert (again["members"], again["given"]) == (1, {"usd": 100})
    assert swarm.spend("b", life, 1) == 19


def test_a_group_whose_id_is_taken_at_a_deputy_is_not_kept_there() -> None:
    swarm = Swarm()
    swarm.ask("c", "agent.open", group="h", name="of c", condition=ALL, budget={"usd": 3})
    about = {"group": "h", "name": "of a", "condition": ALL, "budget": {"usd": 7}, "deputies": ["b", "c"]}
    assert swarm.ask("a", "agent.open", **about)["given"] == {"usd": 7}
    swarm.network["c"].crash()
    swarm.network["c"].start()
    swarm.network.run(5)
    assert "h" not in swarm.keeping("c").trees
    found = swarm.ask("c", "agent.show", group="h")
    assert (found["name"], found["given"]) == ("of c", {"usd": 3})


def test_a_condition_counts_events_that_come_before_a_restarted_home_knows_that_it_still_is_it() -> None:
    swarm = Swarm(condition=msgspec.to_builtins(seen("type = 'found'", 100)))

    def publish(*nodes: str) -> None:
        for node in nodes:
            event = Event("found", {"group": "g"}, delivery="reliable")
            swarm.apps[node].connection.publish(event)
            swarm.apps[node].pump()

    publish("a", "b")
    swarm.network.run(3)
    swarm.network["a"].crash()
    publish("b", "c")  # their nodes keep it for the home
    swarm.network["a"].start()
    swarm.network.run(STANDS_IN_S)
    publish("c")
    swarm.network.run(3)
    assert swarm.homes == ["a"]
    assert list(swarm.tree("a").ledgers["g"].group.counts.values()) == [5]


def test_deputies_that_can_not_be_are_refused() -> None:
    swarm = Swarm()
    for deputies, problem in (
        (["b", "x"], "x: it is no other node"),
        (["a", "b"], "a: it is no other node"),
        (["b", "b"], "b: it is no other node"),
        (["b"], "name 2 to 6 others"),
    ):
        with pytest.raises(AgentError, match=problem):
            swarm.ask("a", "agent.open", group="h", name="h", condition=ALL, deputies=deputies)


def test_a_deputy_that_was_away_for_long_gets_a_copy_and_can_stand_in() -> None:
    swarm = Swarm()
    life = swarm.enter("b", 90)
    swarm.network["c"].crash()
    for step in range(1, 40):
        swarm.spend("b", life, step)
    swarm.network["c"].start()
    swarm.network.run(5)
    swarm.network["b"].crash()
    assert swarm.tree("c").record.index == swarm.tree("a").record.index
    swarm.network["b"].start()
    swarm.network.run(5)
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    assert swarm.spend("b", life, 40) == 50


# -- storms


class Spender:
    """An agent at a node that spends 1 usd after the other, each until it is answered, whatever happens."""

    def __init__(self, swarm: Swarm, node: str) -> None:
        self.swarm = swarm
        self.node = node
        self.life = swarm.enter(node, 100)
        self.step = 0
        self._told: list[Any] = [None]

    def work(self) -> None:
        """Ask for the next, or again, if the last was answered."""
        if not self._told:
            return
        answer = self._told.pop()
        assert isinstance(answer, dict | Disconnected | None), answer
        if not isinstance(answer, Disconnected):
            self.step += 1
        self._told = self.swarm.apps[self.node].ask(
            "agent.spend", **self.life, amounts={"usd": 1}, step=self.step
        )


def storm(seed: int, rounds: int = 40, changes: bool = False) -> None:
    """Cut, crash and heal at random while agents at all nodes spend; then all is whole again.

    With `changes`, other nodes are to keep the group every now and then.
    """
    random = Random(seed)
    nodes = "abcde" if changes else "abc"
    swarm = with_more(seed=seed, budget={"usd": 300}) if changes else Swarm(seed=seed, budget={"usd": 300})
    spenders = [Spender(swarm, node) for node in "abc"]
    for _ in range(rounds):
        one, other = random.sample(nodes, 2)
        chance = random.random()
        if chance < 0.25:
            (swarm.network.part if chance < 0.1 else swarm.network.cut)(one, other)
        elif chance < 0.35 and swarm.network[one].is_up:
            swarm.network[one].crash()
        elif chance < 0.75:
            swarm.network.heal(one, other)
            if not swarm.network[one].is_up:
                swarm.network[one].start()
        if changes and random.random() < 0.3 and swarm.network[one].is_up:
            names = random.sample(nodes, random.choice((2, 2, 3, 4)))
            deputies = [name for name in names if name != home_of(swarm)]
            swarm.apps[one].ask("agent.deputies", group="g@a", deputies=deputies)
        for spender in spenders:
            spender.work()
        swarm.network.run(random.choice((0.05, 0.5, 3.0, 8.0)))
        check(swarm, nodes)
    for node in nodes:
        for far in set(nodes) - {node}:
            swarm.network.heal(node, far)
        if not swarm.network[node].is_up:
            swarm.network[node].start()
    swarm.network.run(2 * STANDS_IN_S)
    assert len(homes_of(swarm, nodes)) == 1
    for _ in range(3):
        for spender in spenders:
            spender.work()
        swarm.network.run(10)
    check(swarm, nodes)
    home = swarm.tree(home_of(swarm))
    records = [swarm.tree(name).record for name in home.record.voters.values()]
    assert all(one == records[0] for one in records)
    for spender in spenders:
        account = home.ledgers["g"].members[spender.life["agent"].removesuffix("@a")].account
        assert account.spent == {"usd": spender.step * 1_000_000}, spender.node


def homes_of(swarm: Swarm, nodes: str) -> list[str]:
    up = [node for node in nodes if swarm.network[node].is_up and "g" in swarm.keeping(node).trees]
    return [node for node in up if swarm.tree(node).is_home]


def home_of(swarm: Swarm) -> str:
    """The home of the latest generation, or nothing."""
    homes = homes_of(swarm, "".join(swarm.network.names))
    return max(homes, key=lambda one: swarm.tree(one).record.generation, default="")


def check(swarm: Swarm, nodes: str) -> None:
    """No generation has two homes, and wherever the group is kept its money adds up."""
    keeping = [swarm.keeping(node).trees.get("g") for node in nodes if swarm.network[node].is_up]
    up = [tree for tree in keeping if tree is not None and "g" in tree.ledgers]
    generations = [tree.record.generation for tree in up if tree.is_home]
    assert len(set(generations)) == len(generations)
    for tree in up:
        ledger = tree.ledgers["g"]
        assert ledger.totals.is_conserved
        assert all(one.account.is_sound for one in ledger.members.values())


def test_in_storms_nothing_is_spent_twice_and_what_was_answered_is_kept() -> None:
    for number in range(often(5, at_least=2)):
        storm(SEED + number)


def test_in_storms_in_which_deputies_change_nothing_is_spent_twice_either() -> None:
    for number in range(often(5, at_least=1)):
        storm(SEED + number, changes=True)


# -- deputies that change


def with_more(**options: Any) -> Swarm:
    """A group of a, b and c, and nodes d and e, which all know each other."""
    more = [(one, other) for one in "de" for other in "abcde" if one < other or other in "abc"]
    return Swarm(*more, **options)


def kept_by(swarm: Swarm, node: str, *deputies: str) -> list[str]:
    """Have other nodes keep the group; return those that do."""
    found = swarm.ask(node, "agent.deputies", group="g@a" if node not in "abc" else "g", deputies=deputies)
    return list(found["kept_by"])


def test_a_deputy_that_is_gone_is_replaced_while_members_go_on_and_the_new_one_stands_in() -> None:
    swarm = with_more()
    life = swarm.enter("e")
    swarm.network["c"].crash()
    assert swarm.spend("e", life, 1) == 19
    assert kept_by(swarm, "a", "b", "d") == ["a", "b", "d"]
    assert swarm.spend("e", life, 2) == 18
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    assert [name for name in "bd" if swarm.tree(name).is_home]
    assert swarm.spend("e", life, 3) == 17
    swarm.network["c"].start()  # it knows of nothing, and is not asked
    swarm.network.run(STANDS_IN_S)
    assert swarm.spend("e", life, 4) == 16
    assert not swarm.tree("c").is_home


def test_a_node_that_keeps_a_group_no_more_forgets_it_and_passes_requests_on() -> None:
    swarm = with_more()
    at_b = swarm.enter("b")
    swarm.network["a"].crash()
    swarm.network.run(STANDS_IN_S)
    (home,) = swarm.homes
    swarm.network["a"].start()
    swarm.network.run(STANDS_IN_S)
    assert kept_by(swarm, home, *sorted({"b", "c", "d"} - {home})) == ["b", "c", "d"]
    swarm.network.run(2)
    assert swarm.tree("a").record.is_out
    assert not swarm.tree("a").ledgers
    assert swarm.money("a") == {"given": 100, "spent": 0, "refunded": 0, "held": 100, "written_off": 0}
    for node in "ae":  # by the name of the node that has forgotten it
        reply = swarm.ask(node, "agent.show", group="g@a")
        assert reply["kept_by"] == ["b", "c", "d"]
    with pytest.raises(AgentError, match="keeps it no more"):
        swarm.ask("a", "agent.take", group="g")
    swarm.network["a"].crash()
    swarm.network["a"].start()
    swarm.network.run(5)
    assert swarm.spend("b", at_b, 1) == 19
    assert kept_by(swarm, home, *sorted({"a", "b", "c", "d"} - {home})) == ["a", "b", "c", "d"]
    assert swarm.tree("a").ledgers["g"].running_count == 1


def test_a_group_gets_deputies_while_it_runs_and_does_without_them_again() -> None:
    swarm = with_more()
    cookie = "the cookie of a group below"
    swarm.ask("a", "agent.open", group="h", name="alone", condition=ALL, budget={"usd": 9}, deputies=[])
    made = {"group": "h", "cookie": cookie, "name": "below", "kind": "group", "lease_s": 3_600.0}
    agent = swarm.ask("a", "agent.enter", **made, share={"usd": 4})["agent"]
    about = {"condition": ALL, "parent": agent, "parent_cookie": cookie}
    swarm.ask("a", "agent.open", group="i", name="below", **about)
    with pytest.raises(AgentError, match="the group above it"):
        swarm.ask("a", "agent.deputies", group="i", deputies=["b", "c"])
    found = swarm.ask("a", "agent.deputies", group="h", deputies=["d", "e"])
    assert found["kept_by"] == ["a", "d", "e"]
    assert set(swarm.keeping("d").trees["h"].ledgers) == {"h", "i"}
    assert swarm.ask("d", "agent.deputies", group="h@a", deputies=[])["kept_by"] == []
    swarm.network.run(2)
    assert swarm.keeping("d").trees["h"].record.is_out
    for other in "bcde":
        swarm.network.part("a", other)
    swarm.ask("a", "agent.stop", which="h")  # nobody else has to agree
    swarm.network.run(10)
    assert swarm.ask("a", "agent.show", group="h")["phase"] == "ended"


def test_of_a_home_that_is_cut_off_while_its_deputies_change_and_the_others_only_one_side_decides() -> None:
    """All of those before are on the other side; a change of both deputies at once would let both decide."""
    swarm = with_more()
    lives = {node: swarm.enter(node) for node in "ab"}
    before = swarm.tree("a").record.voters
    told = swarm.apps["a"].ask("agent.deputies", group="g", deputies=["d", "e"])
    while swarm.tree("a").record.voters == before:
        swarm.network.run(0.001)
    for other in "bc":
        for node in "ade":
            swarm.network.part(node, other)
    swarm.network.run(3 * STANDS_IN_S)
    assert isinstance(told[0], Disconnected)
    with pytest.raises(Disconnected):
        swarm.spend("a", lives["a"], 1)
    assert swarm.spend("b", lives["b"], 1) == 19
    for other in "bc":
        for node in "ade":
            swarm.network.heal(node, other)
    swarm.network.run(2 * STANDS_IN_S)
    assert swarm.spend("a", lives["a"], 1) == 19
    assert swarm.money("a") == {"given": 100, "spent": 2, "refunded": 0, "held": 98, "written_off": 0}


def test_deputies_are_not_changed_to_such_as_can_not_be_nor_by_a_home_that_is_cut_off() -> None:
    swarm = with_more()
    for deputies, problem in ((["b"], "name 2 to 6 others"), (["b", "x"], "it is no other node")):
        with pytest.raises(AgentError, match=problem):
            swarm.ask("a", "agent.deputies", group="g", deputies=deputies)
    swarm.network["d"].crash()
    told = swarm.apps["a"].ask("agent.deputies", group="g", deputies=["b", "c", "d"])
    with pytest.raises(AgentError, match="being changed already"):
        kept_by(swarm, "a", "b", "e")
    swarm.network.run(11)
    assert "d: it has not got a copy of the group within 10 s" in str(told[0])
    assert set(swarm.tree("a").record.voters.values()) == {"a", "b", "c"}
    swarm.cut_off("a")
    told = swarm.apps["a"].ask("agent.deputies", group="g", deputies=["b", "e"])
    swarm.network.run(60)
    assert isinstance(told[0], Disconnected)
    assert set(swarm.tree("a").record.voters.values()) == {"a", "b", "c"}
