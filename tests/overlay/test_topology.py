"""What one node knows, and says, of the topology."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import msgspec
import pytest
from msgspec.structs import replace
from overlay.cores import Network

from tidings.errors import CodecError, UserError
from tidings.overlay import comparing, known_records, pacing, topology
from tidings.overlay.records import LINKS_MAX, SINCE_MAX, SLOTS, Digest, LinkRecord, NodeRecord, Stamps
from tidings.overlay.topology import FORGET_S, LOOK_S, Topology
from tidings.overlay.topology_effects import (
    Approach,
    Effect,
    IdentityClash,
    NodesExceeded,
    SendDigest,
    SendOwn,
    SendRecords,
    SendStamps,
    StoreAdjacency,
    TakeEpoch,
    TreeChanged,
)

PAUSE_S = 1 / pacing.CHANGES_A_SECOND_MAX


def record(node: str, *neighbours: str, version: int = 1, epoch: int = 1, since: int = 5) -> NodeRecord:
    links = tuple(LinkRecord(one, since) for one in sorted(neighbours))
    return NodeRecord(node, node, epoch, version, links)


def linked(node: str, *neighbours: str) -> Topology:
    core = Topology(node, node, 1)
    for one in neighbours:
        core.link_up(one, 1, 0.0)
    return core


def sent(effects: list[Effect], neighbour: str) -> list[NodeRecord]:
    return [
        one
        for effect in effects
        if isinstance(effect, SendRecords) and effect.neighbour == neighbour
        for one in effect.records
    ]


def line(*nodes: str) -> Network:
    network = Network(1)
    for node in nodes:
        network.start(node)
    for one, other in pairwise(nodes):
        network.now += 1
        network.connect(one, other)
        network.settle()
    return network


# -- links of a node


def test_a_new_link_is_stored_before_anything_is_said_of_it() -> None:
    core = linked("a", "b")
    effects = core.link_up("c", 9, 1.0)
    assert [type(one) for one in effects] == [StoreAdjacency, SendRecords, SendDigest]
    assert effects[0] == StoreAdjacency(core.own)
    assert effects[1] == SendRecords("b", (core.own,))
    assert isinstance(effects[2], SendDigest)
    assert effects[2].digest.record == core.own


def test_a_link_that_is_cut_stays_in_the_record_and_in_the_tree() -> None:
    network = line("a", "b", "c")
    tree = network.cores["a"].tree
    network.cut("b", "c")
    network.settle()
    assert [link.is_up for link in network.cores["b"].own.links] == [True, False]
    assert network.cores["a"].tree is tree
    assert network.cores["a"].way("c") == "b"
    assert network.cores["b"].is_active("c")
    assert network.stored["b"].links[1].is_up  # only links that come or go are stored


def test_a_link_that_is_removed_goes_and_the_neighbour_is_told() -> None:
    network = line("a", "b", "c")
    effects = network.cores["b"].link_removed("c", network.now)
    assert isinstance(effects[0], StoreAdjacency)
    assert sent(effects, "c") == sent(effects, "a") == [network.cores["b"].own]
    network.do("b", effects)
    network.settle()
    assert network.cores["a"].way("c") is None
    assert network.cores["c"].tree.nodes == {"c"}  # though its own record still names b
    assert network.cores["b"].link_removed("c", network.now) == []


def test_a_link_keeps_its_first_moment_when_the_connection_comes_back() -> None:
    core = linked("a", "b")
    since = core.own.links[0].since
    core.link_down("b", 1.0)
    core.link_up("b", since + 1_000, 2.0)
    assert core.own.links == (LinkRecord("b", since),)


def test_a_node_that_starts_again_has_its_links_cut_with_their_moments() -> None:
    network = line("a", "b", "c")
    before = network.stored["b"]
    network.stop("b")
    network.now += 1
    own = network.start("b").own
    assert own.links == tuple(replace(link, is_up=False) for link in before.links)
    assert own.epoch > before.epoch
    tree = network.cores["a"].tree
    network.connect("a", "b")
    network.connect("b", "c")
    network.settle()
    assert network.cores["a"].tree is tree
    assert network.cores["a"].own.links[0].is_up


def test_a_new_link_is_younger_than_all_others_whatever_the_clocks_say() -> None:
    network = line("a", "b", "c", "d")
    edges = network.cores["a"].tree.edges
    for core in network.cores.values():
        core.tree  # noqa: B018  # so that a change would be reported
    network.now = -1_000_000.0
    network.connect("a", "d", skew_us=-(10**12))
    network.settle()
    assert network.cores["a"].tree.edges == network.cores["c"].tree.edges == edges
    assert not network.cores["d"].is_active("a")


def test_a_node_refuses_a_link_to_itself_and_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "LINKS_MAX", 2)
    core = linked("a", "b", "c")
    with pytest.raises(UserError, match="at most 2 links"):
        core.link_up("d", 1, 0.0)
    core.link_up("b", 1, 0.0)
    with pytest.raises(UserError, match="no link to itself"):
        core.link_up("a", 1, 0.0)
    assert len(core.own.links) == 2


# -- flooding


def test_a_newer_record_goes_to_all_other_neighbours_and_an_old_one_to_none() -> None:
    core = linked("a", "b", "c", "d")
    news = record("x", version=2)
    effects = core.hear("b", [news], 1.0)
    assert sent(effects, "b") == []
    assert sent(effects, "c") == sent(effects, "d") == [news]
    assert core.hear("c", [news, record("x", version=1)], 2.0) == []
    later = record("x", version=1, epoch=2)
    assert sent(core.hear("c", [later], 3.0), "b") == [later]


def test_of_two_records_with_one_number_all_nodes_keep_the_same() -> None:
    one, other = record("x", "y"), record("x", "z")
    kept = []
    for order in ([one, other], [other, one]):
        core = linked("a", "b")
        for number, each in enumerate(order):
            core.hear("b", [each], float(number))
        kept.append(core.records[-1])
    assert kept[0] == kept[1]


def test_a_node_hears_nothing_from_a_neighbour_that_is_not_connected() -> None:
    core = linked("a", "b")
    core.link_down("b", 1.0)
    assert core.hear("b", [record("x")], 1.0) == []
    assert core.comparing.hear_digest("b", Digest(record("b"), (0,) * SLOTS), 1.0) == []
    assert core.comparing.hear_stamps("b", Stamps(0, {})) == []
    assert len(core.records) == 1


def test_a_tree_change_is_told_once_until_the_tree_is_read() -> None:
    core = linked("a", "b")
    assert TreeChanged() in core.hear("b", [record("b", "a", "c")], 1.0)
    assert TreeChanged() not in core.hear("b", [record("c", "b")], 2.0)
    assert core.tree.nodes == {"a", "b", "c"}
    tree = core.tree
    cut = replace(record("c", "b", version=2), links=(LinkRecord("b", 5, is_up=False),))
    assert TreeChanged() not in core.hear("b", [cut], 3.0)
    assert TreeChanged() not in core.hear("b", [record("d", "b", "c")], 3.0)  # that only one end names
    assert core.tree is tree
    assert TreeChanged() in core.hear("b", [record("c", "b", "d", version=3)], 4.0)
    assert core.way("d") == "b"


def test_names_lead_to_the_ids_of_nodes_in_the_tree_and_a_name_of_two_to_none() -> None:
    core = linked("a", "b")
    named = [
        replace(record("b", "a", "c", "d"), name="hall"),
        replace(record("c", "b"), name="shed"),
        replace(record("d", "b"), name="shed"),
        replace(record("x"), name="far"),
    ]
    core.hear("b", named, 1.0)
    assert core.names == {"a": "a", "hall": "b", "shed": None}
    core.hear("b", [replace(record("d", "b", version=2), name="barn")], 2.0)
    assert core.names == {"a": "a", "hall": "b", "shed": "c", "barn": "d"}


# -- comparing after a cut


def traffic(network: Network, start: int) -> int:
    return sum(len(msgspec.msgpack.encode(message)) for *_, message in network.sent[start:])


def test_an_unchanged_link_that_comes_back_exchanges_its_ends_only_within_1_kb() -> None:
    network = Network(1)
    links = [("ab"[number % 2], f"node-{number:03}") for number in range(300)]
    others = [record(node, end, since=number + 1) for number, (end, node) in enumerate(links)]
    for end, other in ("ab", "ba"):
        names = [node for one, node in links if one == end]
        own = replace(record(end, other, *names[:10]), version=1)
        network.cores[end] = Topology(end, end, 2, known=[own, *others])
    network.connect("a", "b")
    network.settle()
    network.cut("a", "b")
    network.settle()
    for greets, kind, most in ((False, Digest, 1024), (True, tuple, 64)):
        start = len(network.sent)
        network.connect("a", "b", greets=greets)
        network.settle()
        assert [type(message) for *_, message in network.sent[start:]] == [kind, kind]
        assert traffic(network, start) / 2 < most
        network.cut("a", "b")
        network.settle()
    network.connect("a", "b")
    network.settle()
    assert all(link.is_up for link in network.cores["a"].records[-1].links if link.neighbour == "a")


def test_two_nodes_that_meet_again_send_only_what_the_other_has_not() -> None:
    network = line("a", "b", "c", "d")
    network.cut("b", "c")
    network.settle()
    network.start("e")
    network.connect("d", "e")
    network.settle()
    start = len(network.sent)
    network.connect("b", "c")
    network.settle()
    to_b = [message for _, to, message in network.sent[start:] if to == "b" and isinstance(message, list)]
    assert {one.node for message in to_b for one in message} == {"d", "e"}
    assert {core.tree.edges for core in network.cores.values()} == {network.cores["a"].tree.edges}
    assert len(network.cores["a"].tree) == 5


def test_a_neighbour_that_asks_again_and_again_is_answered_once_over_each_connection() -> None:
    core = linked("a", "b")
    core.hear("b", [record("b", "a", "x"), record("x", "b")], 1.0)
    digest = Digest(record("b", "a", "x"), (1,) * SLOTS)
    assert sum(isinstance(one, SendStamps) for one in core.comparing.hear_digest("b", digest, 1.0)) == SLOTS
    assert core.comparing.hear_digest("b", digest, 1.0) == []
    answers = [core.comparing.hear_stamps("b", Stamps(slot, {})) for slot in range(SLOTS)]
    assert sorted(one.node for effects in answers for one in sent(effects, "b")) == ["a", "b", "x"]
    assert [core.comparing.hear_stamps("b", Stamps(slot, {})) for slot in range(SLOTS)] == [[]] * SLOTS
    assert core.comparing.repeated == 1 + SLOTS
    core.link_up("b", 1, 2.0)
    assert core.comparing.hear_digest("b", digest, 2.0) != []


def test_after_a_cut_a_record_is_known_by_its_stamp() -> None:
    core, other = linked("a", "b"), linked("b", "a")
    core.hear("b", [other.own], 1.0)
    theirs = core.comparing.digest("b")
    assert theirs == other.comparing.digest("a")
    before = other.own
    other.link_down("a", 2.0)
    (effect,) = (one for one in other.link_up("a", 9, 3.0, theirs) if isinstance(one, SendOwn))
    core.link_up("b", 9, 3.0, theirs)
    core.comparing.hear_own("b", effect.stamp, 3.0)
    assert other.own in core.records
    assert (other.own.version, other.own.links) == (before.version + 2, before.links)
    assert core.comparing.hear_own("b", effect.stamp, 3.0) == []
    assert core.comparing.repeated == 1


def test_a_record_that_has_changed_while_the_link_was_cut_is_asked_for() -> None:
    core, other = linked("a", "b"), linked("b", "a")
    core.hear("b", [other.own], 1.0)
    other.link_down("a", 2.0)
    other.set_address("tidings://10.0.0.7", 2.0)
    (effect,) = (
        one for one in other.link_up("a", 9, 3.0, core.comparing.digest("b")) if isinstance(one, SendOwn)
    )
    core.link_up("b", 9, 3.0, other.comparing.digest("a"))
    (asked,) = core.comparing.hear_own("b", effect.stamp, 3.0)
    assert isinstance(asked, SendStamps)
    assert other.own in sent(other.comparing.hear_stamps("a", asked.stamps), "a")


def test_a_neighbour_whose_stamp_is_of_a_former_life_is_sent_its_newer_record() -> None:
    core = linked("a", "b")
    newer = record("b", "a", epoch=7)
    core.hear("b", [newer], 1.0)
    core.link_up("b", 9, 3.0, core.comparing.digest("b"))
    assert core.comparing.hear_own("b", record("b", "a", epoch=6).stamp, 3.0) == [SendRecords("b", (newer,))]


def test_a_neighbour_that_has_other_records_is_sent_the_digest_of_all() -> None:
    core = linked("a", "b")
    kinds = [type(one) for one in core.link_up("b", 9, 3.0, b"another ")]
    assert SendDigest in kinds
    assert SendOwn not in kinds


# -- one identity, several lives


def test_a_node_restored_from_a_backup_takes_a_later_epoch_than_its_former_life() -> None:
    network = line("a", "b")
    network.stored["b"] = replace(network.stored["b"], epoch=1)
    former = network.cores["b"].own.epoch
    network.stop("b")
    network.start("b", epoch=2)
    network.connect("a", "b")
    network.settle()
    assert ("b", TakeEpoch(former + 1)) in network.reported
    assert network.cores["b"].own.epoch == former + 1
    assert network.cores["b"].own in network.cores["a"].records
    assert network.cores["b"].clashes == 1
    assert not any(isinstance(one, IdentityClash) for _, one in network.reported)


def test_two_programs_with_one_identity_are_reported_and_flood_nobody() -> None:
    programs = linked("a", "b"), linked("a", "b", "c")
    effects: list[Effect] = []
    for number in range(1_000):  # 10 s, in which each hears of every record of the other
        for one, other in (programs, programs[::-1]):
            effects += one.hear("b", [other.own], number / 100)
            if one.wake_at <= number / 100:
                effects += one.wake(number / 100)
    assert programs[0].clashes > 900
    assert any(isinstance(one, IdentityClash) for one in effects)
    assert len(sent(effects, "b")) <= 2 * (10 * pacing.CHANGES_A_SECOND_MAX + 1)


def test_a_forged_record_that_nothing_exceeds_is_reported_and_not_answered() -> None:
    core = linked("a", "b")
    forged = record("a", epoch=2**63 - 1, version=2**63 - 1)
    assert core.hear("b", [forged], 1.0) == [IdentityClash("b", forged)]
    assert core.own.epoch == 1


# -- what bad input gets


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (replace(record("x"), node="no id"), "$.records[1].node"),
        (replace(record("x"), node=""), "$.records[1].node"),
        (replace(record("x"), name="x" * 65), "$.records[1].name"),
        (replace(record("x"), name="x\x1b[2J"), "$.records[1].name"),
        (replace(record("x"), address="x" * 256), "$.records[1].address"),
        (replace(record("x"), epoch=-1), "$.records[1].epoch"),
        (replace(record("x"), version=2**63), "$.records[1].version"),
        (record("x", *(f"n{number}" for number in range(LINKS_MAX + 1))), "$.records[1].links"),
        (record("x", "y", "x"), "$.records[1].links[0].neighbour"),
        (replace(record("x"), links=(LinkRecord("y", 1),) * 2), "$.records[1].links[1].neighbour"),
        (
            replace(record("x"), links=(LinkRecord("y", 1), LinkRecord("b", 1))),
            "$.records[1].links[1].neighbour",
        ),
        (replace(record("x"), links=(LinkRecord("y\n", 1),)), "$.records[1].links[0].neighbour"),
        (replace(record("x"), links=(LinkRecord("y", SINCE_MAX + 1),)), "$.records[1].links[0].since"),
        (
            replace(record("x"), links=(LinkRecord("w", 1), LinkRecord("y", -1))),
            "$.records[1].links[1].since",
        ),
    ],
)
def test_an_absurd_record_is_refused_by_its_place_and_none_beside_it_is_taken(
    bad: NodeRecord, place: str
) -> None:
    core = linked("a", "b")
    with pytest.raises(CodecError) as caught:
        core.hear("b", [record("fine"), bad], 1.0)
    assert caught.value.place == place
    assert [one.node for one in core.records] == ["a"]


@pytest.mark.parametrize(
    ("digest", "place"),
    [
        (Digest(record("c"), (0,) * SLOTS), "$.record.node"),
        (Digest(replace(record("b"), epoch=-1), (0,) * SLOTS), "$.record.epoch"),
        (Digest(record("b"), (0,) * (SLOTS + 1)), "$.slots"),
    ],
)
def test_an_absurd_digest_is_refused_by_its_place(digest: Digest, place: str) -> None:
    with pytest.raises(CodecError) as caught:
        linked("a", "b").comparing.hear_digest("b", digest, 1.0)
    assert caught.value.place == place


def test_stamps_of_no_slot_or_of_too_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "NODES_MAX", 1)
    core = linked("a", "b")
    with pytest.raises(CodecError, match=r"\$\.slot: 32 is not within"):
        core.comparing.hear_stamps("b", Stamps(SLOTS, {}))
    with pytest.raises(CodecError, match=r"\$\.stamps: has 2 nodes"):
        core.comparing.hear_stamps("b", Stamps(0, {"x": (1, 1, 1), "y": (1, 1, 1)}))


def test_of_a_node_that_changes_too_often_some_changes_are_taken_and_in_the_end_the_newest() -> None:
    core = linked("a", "b", "c")
    core.hear("b", [record("x")], 0.0)
    passed_on = []
    for number in range(1_000):  # in one second
        now = number / 1_000
        effects = core.hear("b", [record("x", version=number + 2)], now)
        if core.wake_at <= now:
            effects += core.wake(now)
        passed_on += sent(effects, "c")
    passed_on += sent(core.wake(now + PAUSE_S), "c")
    assert len(passed_on) <= pacing.CHANGES_A_SECOND_MAX + 2
    assert passed_on[-1].version == 1_001
    assert core.records[-1] == passed_on[-1]


def test_a_link_that_flaps_makes_the_node_send_its_record_only_so_often() -> None:
    core = linked("a", "b", "c")
    times = 0
    for number in range(1_000):
        now = 1 + number / 1_000
        effects = core.link_down("c", now) + core.link_up("c", 1, now)
        if core.wake_at <= now:
            effects += core.wake(now)
        times += len(sent(effects, "b"))
    assert times <= pacing.CHANGES_A_SECOND_MAX + 2
    assert sent(core.wake(now + PAUSE_S), "b") == [core.own]


def test_a_node_that_is_drained_says_so_at_once_after_many_changes() -> None:
    core = linked("a", "b", "c")
    for _ in range(10):
        core.link_down("c", 1.0)
        core.link_up("c", 1, 1.0)
    assert sent(core.link_down("c", 1.0), "b") == []
    assert sent(core.drain(1.0), "b") == [core.own]
    assert all(link.lost for link in core.own.links)


def test_a_neighbour_that_says_it_stops_after_many_changes_is_gone_round() -> None:
    """What it says waits for its turn, and is taken when the link is cut already."""
    core = linked("b", "x")
    core.hear("x", [replace(record("a", "x"), address="tidings://a:1"), record("x", "a", "b")], 0.0)
    for version in range(2, 9):
        core.hear("x", [record("x", "a", "b", version=version)], 0.0)
    last = record("x", "a", "b", version=9)
    core.hear("x", [replace(last, links=tuple(replace(link, lost=7) for link in last.links))], 0.0)
    core.link_down("x", 0.0)
    effects = core.wake(2 * PAUSE_S)
    assert [one.record.node for one in effects if isinstance(one, Approach)] == ["a"]


def test_records_beyond_the_limits_are_refused_and_counted_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(known_records, "NODES_MAX", 3)
    core = linked("a", "b")
    core.hear("b", [record("b", "a"), record("x")], 0.0)
    assert core.hear("b", [record("y"), record("z")], 1.0) == [NodesExceeded("b", record("y"))]
    assert core.refused == 2
    core.hear("b", [record("b", "a", version=2)], 1.0)  # a known node still changes
    core.wake(1.0 + LOOK_S)
    core.hear("b", [record("y", "b")], 10.0)  # x is out of reach and makes room
    assert [one.node for one in core.records] == ["a", "b", "y"]


def test_links_of_all_records_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_records, "ALL_LINKS_MAX", 5)
    core = linked("a", "b")
    core.hear("b", [record("b", "a", "x", "y")], 0.0)
    big = record("x", "b", "y")
    assert core.hear("b", [big], 1.0) == [NodesExceeded("b", big)]
    assert core.refused == 1
    core.hear("b", [record("x", "b")], 2.0)
    assert core.records[-1] == record("x", "b")


# -- nodes that are out of reach


def test_a_node_out_of_reach_is_kept_for_a_while_and_then_forgotten() -> None:
    network = line("a", "b", "c")
    network.remove("b", "c")
    network.settle()
    core = network.cores["a"]
    network.settle(FORGET_S - 2 * LOOK_S)
    assert {one.node for one in core.records} == {"a", "b", "c"}
    network.settle(3 * LOOK_S)
    assert {one.node for one in core.records} == {"a", "b"}
    assert core.wake_at == inf


def test_a_node_that_is_cut_is_never_forgotten() -> None:
    network = line("a", "b", "c")
    network.cut("b", "c")
    network.settle(3 * FORGET_S)
    assert {one.node for one in network.cores["a"].records} == {"a", "b", "c"}


def test_a_node_out_of_reach_is_not_sent_to_others() -> None:
    network = line("a", "b", "c")
    network.remove("b", "c")
    network.settle()
    network.start("d")
    network.connect("a", "d")
    network.settle()
    assert {one.node for one in network.cores["d"].records} == {"a", "b", "d"}


def test_a_record_out_of_reach_at_one_end_leaves_the_digests_equal() -> None:
    network = line("a", "b")
    network.cores["a"].hear("b", [record("x")], network.now)
    network.cut("a", "b")
    network.settle()
    start = len(network.sent)
    network.connect("a", "b", greets=True)
    network.settle()
    assert [type(message) for *_, message in network.sent[start:]] == [tuple, tuple]
    assert {one.node for one in network.cores["a"].records} == {"a", "b", "x"}


def test_a_node_that_is_in_reach_again_is_sent_to_all_and_not_forgotten() -> None:
    core = linked("a", "b", "c")
    x = record("x", "y")
    core.hear("b", [record("b", "a"), x], 0.0)
    core.wake(LOOK_S)
    effects = core.hear("b", [record("b", "a", "y", version=2), record("y", "b", "x")], 10.0)
    assert x not in sent(effects, "c")
    assert sent(core.wake(10.0 + LOOK_S), "c") == [x]
    assert core.wake_at == inf
    assert core.way("x") == "b"


def test_a_new_link_is_younger_than_all_that_were_known_before_a_restart() -> None:
    core = Topology("a", "a", 1, newest=1_000)
    core.link_up("b", 5, 0.0)
    assert [link.since for link in core.own.links] == [1_001]
    assert core.newest == 1_001
