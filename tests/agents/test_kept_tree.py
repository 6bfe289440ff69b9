"""One node of those that keep a group: what is agreed, who is granted a generation, and bad messages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidings.agents.conditions import any_of
from tidings.agents.events import Opened, Sealed
from tidings.agents.kept_tree import (
    COPIED_AT_ONCE,
    KeepGroups,
    Kept,
    KeptRecord,
    KeptTree,
    StandForHome,
    parts_of,
)
from tidings.agents.ledger import GroupLedger
from tidings.errors import AgentError

VOTERS = {one: one.upper() for one in "abcde"}
OPENED = Opened(group="g", name="trip", user="", condition=any_of(), grace_s=1.0)


def deputy(node: str) -> KeptTree:
    return KeptTree(node, "g", KeptRecord(voters=VOTERS, home=""))


def home() -> KeptTree:
    tree = deputy("a")
    tree.begin(1)
    tree.ledgers["g"] = GroupLedger.opened(OPENED)
    tree.propose("g", [OPENED])
    return tree


def give(tree: KeptTree, other: KeptTree, node: str) -> Kept:
    """Have a deputy take all that it lacks."""
    while tree.lacks(node):
        question, message = tree.message(node)
        answer = other.hear(message)
        assert tree.hear_answer(node, question, answer)
    return answer


def test_of_five_nodes_three_must_have_what_is_agreed_and_answer_what_is_asked() -> None:
    tree, others = home(), {node: deputy(node) for node in "bcde"}
    tree.ask()
    give(tree, others["b"], "b")
    assert (tree.agreed, tree.answered) == (0, 0)
    give(tree, others["c"], "c")
    assert (tree.agreed, tree.answered) == (1, 1)
    tree.ask()
    tree.propose("g", [Sealed()])
    give(tree, others["b"], "b")
    assert (tree.agreed, tree.answered) == (1, 1)
    give(tree, others["d"], "d")
    assert (tree.agreed, tree.answered) == (2, 2)


def test_a_generation_is_granted_once_and_to_a_node_that_has_all() -> None:
    tree, voter = home(), deputy("b")
    give(tree, voter, "b")
    wish = StandForHome("g", "c", 2, 1, 1)
    assert voter.vote(replace(wish, is_probe=True), is_home_there=False).granted
    assert not voter.vote(wish, is_home_there=True).granted
    assert not voter.vote(replace(wish, index=0), is_home_there=False).granted
    assert not voter.vote(replace(wish, of_generation=0, index=9), is_home_there=False).granted
    assert not voter.vote(replace(wish, node="x"), is_home_there=False).granted
    assert voter.vote(wish, is_home_there=False).granted
    assert not voter.vote(replace(wish, node="d"), is_home_there=False).granted
    assert voter.vote(replace(wish, node="d", generation=3), is_home_there=False).granted
    assert not tree.hear_answer("b", 1, voter.hear(tree.message("c")[1]))  # a later generation is known
    assert not tree.vote(replace(wish, generation=9), is_home_there=False).granted  # it is the home itself


def test_a_copy_goes_on_where_it_was_cut_off_and_replaces_what_was_never_agreed() -> None:
    tree, stale = home(), home()
    stale.ledgers["h"] = GroupLedger.opened(replace(OPENED, group="h"))
    stale.step_back()
    tree.begin(2)
    for number in range(COPIED_AT_ONCE + 1):
        entered = tree.ledgers["g"].enter(f"{number}", cookie=f"cookie {number}", lease_s=30, now_us=1)
        tree.propose("g", entered)
    first, second = parts_of(tree.ledgers)
    about = 2, tree.record.index
    message = KeepGroups("g", "a", VOTERS, *about, copy=first, part=0, parts=2)
    assert stale.hear(message) == Kept(2, -1, 1)
    assert stale.hear(message) == Kept(2, -1, 1)  # again
    assert stale.hear(replace(message, copy=second, part=1)) == Kept(*about)
    assert len(stale.ledgers["g"].members) == COPIED_AT_ONCE + 1
    assert list(stale.ledgers) == ["g"]
    assert ("h", "") in stale.changed  # its record goes
    assert stale.ledgers["g"].totals == tree.ledgers["g"].totals


def test_what_does_not_follow_is_refused_and_what_is_missing_is_asked_for() -> None:
    tree, other = home(), deputy("b")
    give(tree, other, "b")
    message = KeepGroups("g", "a", VOTERS, 1, 1)
    assert other.hear(replace(message, before=5)) == Kept(1, -1)
    assert other.hear(replace(message, generation=0)) == Kept(1, -1)
    for body in (b"", b"{}", b'{"is":"spent","agent":"g.7","amounts":{}}', b'{"is":"opened"}'):
        with pytest.raises(AgentError, match="does not follow"):
            other.hear(replace(message, events=[("g", body)]))
    with pytest.raises(AgentError, match="does not follow"):
        other.hear(replace(message, events=[("unknown", b'{"is":"sealed"}')]))
    with pytest.raises(AgentError, match="can't be read"):
        other.hear(replace(message, generation=2, copy=b"\x01", parts=1))
    assert other.record.index == 1
    tree.begin(3)
    assert give(tree, other, "b") == Kept(3, 1)
