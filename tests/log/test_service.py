"""The log of a node, moved by hand: what is kept in it, who reads it, and what is refused."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace
from protocol.guarded import ALL, Book, come, may
from protocol.rig import READ_SIZE, Peer, Rig, event, persistent, reliable, with_header

from tidings.event import Event
from tidings.filters import Filter
from tidings.ids import make_id
from tidings.log import history as history_module
from tidings.log import service
from tidings.log.chunks import CollapsedPart, LivePart, Part
from tidings.log.history import SealedSpan
from tidings.log.retention import RETAIN_S, RetentionTerms
from tidings.log.service import READS_MAX
from tidings.node.assembly import Archiving, CoreSettings
from tidings.protocol.messages import Notice
from tidings.store.interface import Discard, StoredBatch, Trim
from tidings.store.memory import SimulatedDisk

Row = tuple[int, Event]


class LogRig(Rig):
    """A node whose settings have something kept in its log."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        read_size: int = READ_SIZE,
        settings: CoreSettings | None = None,
        where: str | None = None,
        lasts: bool = True,
        retention: RetentionTerms | None = None,
    ) -> None:
        archive = Archiving(where=where, retention=retention or RetentionTerms())
        given = CoreSettings(lasts=lasts, archive=archive)
        super().__init__(disk, read_size, settings or given)


def ask(peer: Peer, operation: str, **arguments: Any) -> dict[str, Any]:
    reply = peer.ask(operation, **arguments)
    assert reply.error is None, reply.error
    answer: dict[str, Any] = reply.result
    return answer


def refusal(peer: Peer, operation: str, **arguments: Any) -> tuple[str, str]:
    reply = peer.ask(operation, **arguments)
    assert reply.error is not None
    return reply.error.code, reply.error.text


def rows(peer: Peer, start: int = 1, **arguments: Any) -> list[Row]:
    """The events of the log from a position on, asked for until there are no more."""
    found: list[Row] = []
    while True:
        answer = ask(peer, "log.read", start=start, **arguments)
        for part in msgspec.convert(answer["parts"], list[Part]):
            assert isinstance(part, LivePart)
            found += zip(part.positions(), part.events(), strict=True)
        if answer["next"] >= answer["end"]:
            return found
        assert answer["next"] > start
        start = answer["next"]


def counters(found: list[Row]) -> list[int]:
    return [one.counter for _, one in found]


# What is kept


def test_persistent_events_are_in_the_log_and_others_are_not() -> None:
    rig = LogRig()
    ann = rig.peer()
    ann.subscribe(durable="all")  # has reliable ones stored, which is not the log
    ann.publish(event(1), reliable(2), persistent(3), reliable(4), persistent(5))
    rig.run()
    assert counters(rows(ann)) == [3, 5]


def test_what_the_settings_name_is_kept_and_asked_of_nobody() -> None:
    rig = LogRig(where="n > 2")
    ann = rig.peer()
    ann.publish(*(event(n, n=n) for n in range(1, 6)))
    rig.run()
    assert counters(rows(ann)) == [3, 4, 5]
    assert ask(ann, "advertise", number=1, filter="n = 3") == {"filters": []}


def test_what_is_kept_under_a_name_is_kept_after_a_restart_until_somebody_ends_it() -> None:
    rig = LogRig()
    ask(rig.peer(), "log.keep", name="dust", where="n > 2")
    rig = rig.restart()
    ann = rig.peer()
    ann.publish(event(1, n=3))
    rig.run()
    ask(ann, "log.leave", name="dust")
    ann.publish(event(2, n=3))
    rig.run()
    assert counters(rows(ann)) == [1]


@pytest.mark.parametrize("operation", ["log.reader", "log.keep"])
def test_names_of_readers_and_of_what_is_kept_have_no_control_characters(operation: str) -> None:
    assert refusal(LogRig().peer(), operation, name="a\x1b[2J", where="")[0] == "protocol"


def test_nothing_is_told_of_the_log_before_it_is_on_disk() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(event(1))
    rig.run()
    ann.publish(event(2))
    rig.tick()
    assert rig.broker.end_logged == 2
    rig.sync()
    assert rig.broker.end_logged == 3
    assert counters(rows(ann)) == [1, 2]


def test_other_stored_events_do_not_move_the_end_of_the_log() -> None:
    rig = LogRig()
    ann = rig.peer()
    ann.publish(persistent(1))
    rig.run()
    ann.subscribe(durable="all", credit=0)
    ann.publish(reliable(2), reliable(3))
    rig.run()
    assert ask(ann, "log.status")["end"] == 2


def test_what_could_not_be_stored_is_not_in_the_log() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(event(1))
    rig.run()
    ann.publish(event(2))
    rig.tick()
    rig.fail()
    bob = rig.peer("other")
    bob.publish(event(7))
    rig.run()
    assert counters(rows(bob)) == [1, 7]


# Reading


def test_the_log_is_read_from_any_position_in_any_size() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    for n in range(1, 40, 3):
        ann.publish(event(n), event(n + 1), event(n + 2))
        rig.run()
    for start in range(1, 42):
        for size in (1, 50, 10_000):
            found = rows(ann, start, size_max=size)
            assert [(position, one.counter) for position, one in found] == [(n, n) for n in range(start, 40)]


def test_a_reading_ends_where_it_is_told_to_and_is_the_same_again() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(*(event(n) for n in range(1, 9)))
    rig.run()
    assert counters(rows(ann, 3, end=6)) == [3, 4, 5]
    ann.publish(event(9))
    rig.run()
    assert counters(rows(ann, 3, end=6)) == [3, 4, 5]
    assert counters(rows(ann, 3, end=600)) == [3, 4, 5, 6, 7, 8, 9]
    assert rows(ann, 50) == []


def test_the_node_filters_what_is_read() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(*(event(n, n=n) for n in range(1, 50)))
    rig.run()
    found = rows(ann, where="n > 10 AND n < 14 OR n = 40")
    assert [(position, one.counter) for position, one in found] == [(n, n) for n in (11, 12, 13, 40)]


def test_events_are_found_by_their_ids() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(*(event(n) for n in range(1, 9)))
    rig.run()
    ids = [one.id for _, one in rows(ann) if one.counter in (2, 7)]
    answer = ask(ann, "log.find", ids=[*ids, "nobody"])
    parts = msgspec.convert(answer["parts"], list[LivePart])
    assert [one.counter for part in parts for one in part.events()] == [2, 7]


def test_a_time_is_the_position_of_the_first_event_stored_since() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    for n in range(1, 4):
        rig.pass_time(10)
        ann.publish(event(n))
        rig.run()
    assert ask(ann, "log.at", time_us=int((rig.now - 10) * 1e6)) == {"position": 2}
    assert ask(ann, "log.at", time_us=int((rig.now + 10) * 1e6)) == {"position": 4}


def test_a_user_reads_only_what_it_may_subscribe_to() -> None:
    rig = LogRig(where="")
    rig.broker.authenticator = Book(
        ann=[may("publish")], bob=[may("subscribe", "n < 3")], eve=[may("publish"), may("get")]
    )
    ann, bob, eve = (come(rig, who) for who in ("ann", "bob", "eve"))
    ann.publish(*(event(n, n=n) for n in range(1, 6)))
    rig.run()
    assert counters(rows(bob)) == [1, 2]
    ids = [f"{one}" for one in (1, 2)]
    assert ask(bob, "log.find", ids=ids) == {"parts": [], "next": 6, "end": 6}
    assert refusal(bob, "log.read", start=1, where="n > 4")[0] == "not-allowed"
    assert refusal(eve, "log.read", start=1)[0] == "not-allowed"
    assert refusal(eve, "log.reader", name="x")[0] == "not-allowed"


def test_a_client_learns_its_own_rights_and_no_others() -> None:
    rig = LogRig(where="")
    bob = [may("subscribe", "n < 3"), may("subscribe", "m > 4"), may("publish")]
    rig.broker.authenticator = Book(bob=bob, eve=[may("get")])
    found = [ask(come(rig, who), "log.rights") for who in ("bob", "eve")]
    nothing = str(~Filter())
    assert found == [
        {"subscribe": "n < 3 OR m > 4", "publish": str(Filter())},
        {"subscribe": nothing, "publish": nothing},
    ]
    assert not Filter(nothing).overlaps(Filter())
    assert ask(LogRig().peer(), "log.rights") == {"subscribe": str(Filter()), "publish": str(Filter())}


COLLAPSE = {"columns": {"n": "bigint", "text": "string"}, "by": ["n"], "rules": {"all": "count()"}}


def collapsed(peer: Peer, **asked: Any) -> list[dict[str, Any]]:
    """Partial rows, by a collapse of all that the peer may read."""
    answer = ask(peer, "log.read", start=1, **{"collapse": COLLAPSE, **asked})
    (part,) = msgspec.convert(answer["parts"], list[CollapsedPart])
    assert answer["next"] == answer["end"]
    found: list[dict[str, Any]] = pa.ipc.open_stream(part.table).read_all().to_pylist()
    return found


def test_a_user_collapses_only_what_it_may_subscribe_to() -> None:
    rig = LogRig(where="")
    rig.broker.authenticator = Book(
        ann=[may("publish")], bob=[may("subscribe", "n < 3")], eve=[may("publish"), may("get")]
    )
    ann, bob, eve = (come(rig, who) for who in ("ann", "bob", "eve"))
    ann.publish(*(event(n, n=n // 2) for n in range(2, 12)))
    rig.run()
    assert collapsed(bob) == [{"n": n, "node": rig.broker.node, "all": 2} for n in (1, 2)]
    assert refusal(bob, "log.read", start=1, where="n > 4", collapse=COLLAPSE)[0] == "not-allowed"
    assert refusal(eve, "log.read", start=1, collapse=COLLAPSE)[0] == "not-allowed"


def test_a_collapse_that_can_not_be_is_refused_with_the_place() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(event(1))
    rig.run()
    for wrong, told in (
        ({"by": ["m"]}, "collapse: m: is no column of the collapse"),
        ({"rules": {"x": "most(n)"}}, "is no rule; the rules are"),
        ({"window_us": 0}, "window_us"),
        ({"by": ["n"] * 100}, "by"),
    ):
        code, text = refusal(ann, "log.read", start=1, collapse={**COLLAPSE, **wrong})
        assert code == "protocol"
        assert told in text


def test_events_come_instead_of_partial_rows_that_would_not_fit_a_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(*(event(n, n=n, text="x" * 100) for n in range(1, 5)))
    rig.run()
    rules = {f"text {number}": "latest(text)" for number in range(50)}
    monkeypatch.setattr(history_module, "ANSWER_SIZE_MAX", 10_000)
    answer = ask(ann, "log.read", start=1, collapse={**COLLAPSE, "rules": rules})
    parts = msgspec.convert(answer["parts"], list[LivePart])
    assert [one.counter for part in parts for one in part.events()] == [1, 2, 3, 4]
    assert answer["next"] == 5


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("log.prune", {"before": 1}),
        ("log.seal", {}),
        ("log.sealed", {"first": 1, "position": 1}),
        ("log.sealed", {"first": 1, "position": 1, "problem": "no space"}),
        ("log.verify", {"start": 1}),
    ],
)
def test_only_who_may_manage_decides_what_becomes_of_the_log(
    operation: str, arguments: dict[str, Any]
) -> None:
    rig = LogRig(where="")
    others = [may("publish"), may("subscribe"), may("put"), may("get"), may("keep")]
    rig.broker.authenticator = Book(boss=ALL, bob=others)
    boss, bob = come(rig, "boss"), come(rig, "bob")
    bob.publish(event(1))
    rig.run()
    assert refusal(bob, operation, **arguments) == ("not-allowed", "'bob' may not manage this node")
    reply = boss.ask(operation, **arguments)
    assert reply.error is None or reply.error.code == "not-found"  # this node seals nothing


def test_answers_to_others_are_not_read_in_the_log_nor_kept_for_who_may_not_hear_them() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(ann=ALL, bob=ALL)
    ann, bob = come(rig, "ann"), come(rig, "bob")
    answers = [with_header(event(n), subject=f"inbox.{who}/1") for n, who in ((1, "ann"), (2, "bob"))]
    rig.broker.authenticator.nodes.add("cid")
    rig.broker.authenticator.users["cid"] = tuple(ALL)
    cid = come(rig, "cid")  # a node, which may say what others have said
    ask(bob, "log.reader", name="spark", lease_s=60)
    cid.publish(*answers, event(3))
    rig.run()
    assert counters(rows(bob)) == [2, 3]
    assert rig.broker.position == 2
    ask(cid, "log.reader", name="all", lease_s=60)
    cid.publish(*(replace(one, counter=one.counter + 3) for one in answers))
    rig.run()
    assert counters(rows(cid)) == [2, 3, 4, 5]
    assert counters(rows(bob)) == [2, 3, 5]
    assert counters(rows(ann)) == [3, 4]
    identity = make_id("sys-cid", 1, 4)
    assert ask(bob, "log.find", ids=[identity])["parts"] == []
    assert len(ask(ann, "log.find", ids=[identity])["parts"]) == 1
    again = rig.restart()
    again.broker.authenticator = rig.broker.authenticator
    again.broker.cursors.review()
    assert [one.subscription.user for one in again.broker.cursors.archives] == ["bob", None]


def test_a_reader_has_kept_only_what_it_may_subscribe_to() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(ann=[may("publish")], bob=[may("subscribe", "n < 3")])
    ann, bob = come(rig, "ann"), come(rig, "bob")
    ask(bob, "log.reader", name="spark", lease_s=60)
    ann.publish(*(event(n, n=n) for n in range(1, 6)))
    rig.run()
    assert counters(rows(bob)) == [1, 2]
    assert ask(bob, "log.status")["end"] == 3


def test_what_was_pruned_is_refused_or_skipped() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    for n in range(1, 6):
        ann.publish(event(n))
        rig.run()
    rig.broker.store(Trim(3))
    rig.run()
    rig.broker.store(Discard(3))
    rig.run()
    assert refusal(ann, "log.read", start=2) == ("pruned", "position 2 was pruned: the log begins at 4")
    assert refusal(ann, "log.read", start=3) == ("pruned", "position 3 was pruned: the log begins at 4")
    assert counters(rows(ann, 4)) == [4, 5]
    assert counters(rows(ann, 2, skip_pruned=True)) == [4, 5]
    assert ask(ann, "log.status")["first"] == 4


def test_a_damaged_batch_is_named_and_skipped_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    for n in range(1, 6):
        ann.publish(event(n))
        rig.run()

    def read(position: int, size_max: int) -> list[StoredBatch]:
        stored = type(rig.store).read(rig.store, position, size_max)
        return [one for one in stored if one.first != 3]

    monkeypatch.setattr(rig.store, "read", read)
    monkeypatch.setattr(rig.store, "corrupt", lambda first, end: [3] if first <= 3 < end else [])
    assert refusal(ann, "log.read", start=1)[1] == "the batch at position 3 is not as it was written"
    assert counters(rows(ann, 1, skip=True)) == [1, 2, 4, 5]


def test_a_client_can_not_have_everything_under_way_at_once() -> None:
    rig = LogRig(where="")
    ann = rig.peer()
    ann.publish(event(1))
    rig.run()
    for _ in range(READS_MAX):
        ann.request("log.read", start=1)
    assert refusal(ann, "log.read", start=1)[0] == "limit"
    assert counters(rows(ann)) == [1]


# Readers


def test_a_reader_has_made_and_kept_what_it_wants_until_it_leaves() -> None:
    rig = LogRig()
    ann, sensor = rig.peer(), rig.peer("sensor")
    assert ask(sensor, "advertise", number=1, filter="n > 0") == {"filters": []}
    ask(ann, "log.reader", name="spark", where="n > 2", lease_s=30)
    assert sensor.notices[-1][2] == {"filters": ["n > 2"]}
    sensor.publish(event(1, n=1), event(2, n=3))
    rig.run()
    ask(ann, "log.leave", name="spark")
    assert sensor.notices[-1][2] == {"filters": []}
    assert counters(rows(ann)) == [2]


def test_a_reader_that_comes_again_may_be_passive_or_no_longer() -> None:
    rig = LogRig()
    ann = rig.peer()
    for passive, demanded in ((True, []), (False, ["n > 2"]), (True, [])):
        ask(ann, "log.reader", name="spark", where="n > 2", passive=passive)
        (told,) = ask(ann, "log.status")["readers"]
        assert told["passive"] is passive
        assert ask(rig.peer("other"), "advertise", number=1, filter="n > 0") == {"filters": demanded}
        rig = rig.restart()
        ann = rig.peer()
        assert ask(rig.peer("other"), "advertise", number=1, filter="n > 0") == {"filters": demanded}


def test_a_reader_is_no_subscription() -> None:
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="spark", where="n > 2", lease_s=30)
    assert refusal(ann, "unsubscribe", durable="spark")[0] == "not-found"
    assert refusal(ann, "subscribe", number=1, filter="n > 2", durable="spark")[0] == "exists"
    ann.subscribe(2, "n > 2", durable="other")
    assert refusal(ann, "log.reader", name="other", where="n > 2") == (
        "exists",
        "'other' is the name of something else",
    )
    rig.pass_time(30)
    assert [one["name"] for one in rig.broker.cursors.status()] == ["other"]


def test_a_reader_that_is_not_heard_of_is_gone_when_its_lease_ends() -> None:
    rig = LogRig()
    ann, sensor = rig.peer(), rig.peer("sensor")
    ask(sensor, "advertise", number=1, filter="n > 0")
    ask(ann, "log.reader", name="spark", where="n > 2", lease_s=30)
    rig.pass_time(20)
    ask(ann, "log.reader", name="spark", where="n > 2", lease_s=30)
    rig.pass_time(20)
    assert sensor.notices[-1][2] == {"filters": ["n > 2"]}
    assert rig.broker.wake_at == pytest.approx(rig.now + 10)
    rig.pass_time(10)
    assert sensor.notices[-1][2] == {"filters": []}
    assert refusal(ann, "log.passed", name="spark", position=3)[0] == "not-found"


def test_a_reader_is_resumed_while_it_is_there_and_not_when_its_lease_has_ended() -> None:
    rig = LogRig()
    ann = rig.peer()
    assert refusal(ann, "log.reader", name="spark", lease_s=30, resume=True)[0] == "gone"
    ask(ann, "log.reader", name="spark", lease_s=30)
    rig.pass_time(29)
    ask(ann, "log.reader", name="spark", lease_s=30, resume=True)
    rig.pass_time(30)
    assert refusal(ann, "log.reader", name="spark", lease_s=30, resume=True)[0] == "gone"


def test_a_reader_that_has_left_to_come_back_wants_nothing_and_is_resumed_after_a_restart_too() -> None:
    rig = LogRig()
    ann, sensor = rig.peer(), rig.peer("sensor")
    ask(sensor, "advertise", number=1, filter="n > 0")
    ask(ann, "log.reader", name="spark", where="n > 2", lease_s=30)
    ask(ann, "log.leave", name="spark", resumable=True)
    assert sensor.notices[-1][2] == {"filters": []}
    sensor.publish(event(1, n=3))
    rig.run()
    assert rows(ann) == []
    assert ask(ann, "log.status")["readers"] == []
    assert rig.broker.cursors.status() == []
    assert refusal(ann, "log.passed", name="spark", position=3)[0] == "not-found"
    assert refusal(ann, "log.leave", name="spark")[0] == "not-found"
    rig.pass_time(3_600)
    rig = rig.restart()
    ann = rig.peer()
    assert ask(ann, "log.reader", name="spark", lease_s=30, start=1, resume=True)["cursor"] == 0
    rig = rig.restart()
    assert [one["lease_s"] for one in ask(rig.peer(), "log.status")["readers"]] == [30]
    rig.pass_time(30)
    assert refusal(rig.peer(), "log.reader", name="spark", lease_s=30, resume=True)[0] == "gone"


def test_of_so_many_readers_it_is_known_that_they_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LEFT_MAX", 2)
    monkeypatch.setattr(service, "KEPT_MAX", 1)
    rig = LogRig()
    ann, bob = rig.peer(), rig.peer("bob", name="bob")
    ask(bob, "log.reader", name="spark", lease_s=30)
    ask(bob, "log.leave", name="spark", resumable=True)
    for name in ("one", "two", "three"):
        ask(ann, "log.reader", name=name, lease_s=30)
        ask(ann, "log.leave", name=name, resumable=True)
        rig.pass_time(1)
    assert refusal(ann, "log.reader", name="one", lease_s=30, resume=True)[0] == "gone"
    ask(ann, "log.keep", name="kept")  # which does not count them
    for peer, name in ((ann, "two"), (ann, "three"), (bob, "spark")):
        ask(peer, "log.reader", name=name, lease_s=30, resume=True)


def test_that_a_reader_has_left_is_forgotten_in_time_though_no_other_lease_ends() -> None:
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="spark")
    ask(ann, "log.leave", name="spark", resumable=True)
    assert rig.broker.wake_at == pytest.approx(rig.now + service.LEFT_S)
    rig.pass_time(service.LEFT_S)
    assert refusal(ann, "log.reader", name="spark", resume=True)[0] == "gone"
    assert rig.broker.wake_at == inf


def test_a_reader_that_can_not_come_back_yet_has_still_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READERS_MAX", 1)
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="spark")
    ask(ann, "log.leave", name="spark", resumable=True)
    ask(ann, "log.reader", name="other")
    assert refusal(ann, "log.reader", name="spark", resume=True)[0] == "limit"
    ask(ann, "log.leave", name="other")
    ask(ann, "log.reader", name="spark", resume=True)


def test_a_reader_that_was_removed_has_not_left() -> None:
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="spark")
    ask(ann, "log.leave", name="spark")
    assert refusal(ann, "log.reader", name="spark", resume=True)[0] == "gone"


def test_a_lease_goes_on_after_a_restart_and_no_longer() -> None:
    rig = LogRig()
    ask(rig.peer(), "log.reader", name="spark", where="n > 2", lease_s=30)
    ask(rig.peer("two"), "log.reader", name="for ever", where="n = 1")
    rig = rig.restart()
    ann = rig.peer()
    assert ask(ann, "advertise", number=1, filter="")["filters"] == ["n > 2", "n = 1"]
    rig.pass_time(30)
    assert ann.notices[-1][2] == {"filters": ["n = 1"]}


@pytest.mark.parametrize("jump_s", [-3_600.0, -5.0, 5.0, 365 * 86_400.0])
def test_a_lease_lasts_as_long_as_it_was_granted_though_the_clock_is_set(jump_s: float) -> None:
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="before", lease_s=30)
    rig.broker.shift = jump_s
    ask(ann, "log.reader", name="while", lease_s=30)
    rig.pass_time(29)
    assert [one["name"] for one in ask(ann, "log.status")["readers"]] == ["before", "while"]
    rig.pass_time(1)
    assert ask(ann, "log.status")["readers"] == []


def test_after_a_restart_a_lease_from_a_clock_that_was_ahead_is_no_longer_than_granted() -> None:
    rig = LogRig()
    rig.broker.shift = 365 * 86_400.0
    ask(rig.peer(), "log.reader", name="spark", lease_s=30)
    rig = rig.restart()
    rig.pass_time(29)
    assert len(rig.broker.cursors.archives) == 1
    rig.pass_time(1)
    assert rig.broker.cursors.archives == []


@pytest.mark.parametrize("jump_s", [365 * 86_400.0, -600.0])
def test_what_is_in_the_log_is_stamped_by_the_wall_clock(jump_s: float) -> None:
    rig = LogRig()
    rig.broker.shift = jump_s
    rig.peer().publish(persistent(1))
    rig.run()
    assert [stored.stored_us for stored in rig.stored] == [int((rig.now + jump_s) * 1e6)]


@pytest.mark.parametrize(
    ("jump_s", "before_s"), [(0.0, -2_600.0), (365 * 86_400.0, -2_600.0), (-50, -2_650.0)]
)
def test_a_clock_that_is_set_ahead_makes_nothing_too_old_for_the_log(
    jump_s: float, before_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    rig = LogRig(retention=RetentionTerms(age_s_max=3_660.0))

    def prune(_limit: int, before_us: int | None, size_max: int | None) -> SealedSpan:
        asked.append(before_us)
        return rig.core.log.custody.span

    monkeypatch.setattr(rig.core.log.custody, "_pruned", prune)
    rig.broker.shift = jump_s
    rig.pass_time(RETAIN_S)
    assert asked == [before_s * 1e6]


def test_a_reader_goes_on_where_it_was_and_never_back() -> None:
    rig = LogRig()
    ann = rig.peer()
    assert ask(ann, "log.reader", name="spark", start=1)["cursor"] == 0
    ann.publish(*(event(n) for n in range(1, 6)))
    rig.run()
    ask(ann, "log.passed", name="spark", position=4)
    ask(ann, "log.passed", name="spark", position=2)
    rig = rig.restart()
    ann = rig.peer()
    assert ask(ann, "log.reader", name="spark", start=1)["cursor"] == 3
    assert rig.core.log.custody.needed == 4


def test_a_reader_may_want_something_else() -> None:
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="spark", where="n = 1", lease_s=9)
    ask(ann, "log.reader", name="spark", where="n = 2", lease_s=9)
    ann.publish(event(1, n=1), event(2, n=2))
    rig.run()
    assert counters(rows(ann)) == [2]
    assert [one["filter"] for one in ask(ann, "log.status")["readers"]] == ["n = 2"]


def test_a_name_is_a_readers_or_a_subscriptions() -> None:
    rig = LogRig()
    ann = rig.peer()
    ann.subscribe(durable="all")
    ask(ann, "log.reader", name="spark")
    assert refusal(ann, "log.reader", name="all")[0] == "exists"
    assert refusal(ann, "log.keep", name="spark")[0] == "exists"
    assert refusal(ann, "subscribe", number=2, durable="spark", credit=1)[0] == "exists"
    assert refusal(ann, "log.leave", name="all")[0] == "not-found"


def test_a_log_in_memory_gives_up_its_oldest_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MEMORY_SIZE_MAX", 2_000)
    rig = LogRig(where="", lasts=False)
    ann = rig.peer()
    for n in range(1, 300):
        ann.publish(event(n))
        rig.run()
    assert sum(len(one.raw) for one in rig.stored) < 2_500
    found = counters(rows(ann, skip_pruned=True))
    assert found == list(range(found[0], 300))
    assert len(found) > 10


# What others may do and see


def test_what_is_kept_for_a_user_is_what_it_may_subscribe_to_after_a_restart_too() -> None:
    book = Book(ann=[may("publish")], bob=[may("subscribe", "n < 3"), may("keep")])
    rig = LogRig()
    rig.broker.authenticator = book
    bob = come(rig, "bob")
    ask(bob, "log.reader", name="spark", where="")
    ask(bob, "log.keep", name="all", where="")
    rig = rig.restart()
    rig.broker.authenticator = book
    rig.broker.cursors.review()  # as a node does when it knows its rules
    ann = come(rig, "ann")
    ann.publish(*(event(n, n=n) for n in range(1, 6)))
    rig.run()
    assert sum(one.count for one in rig.stored) == 2
    book.users["bob"] = (may("subscribe", "n > 4"),)
    rig.broker.review()
    ann.publish(*(event(n, n=n) for n in range(6, 9)))
    rig.run()
    assert sum(one.count for one in rig.stored) == 5
    del book.users["bob"]
    rig.broker.review()
    ann.publish(event(9, n=9))
    rig.run()
    assert sum(one.count for one in rig.stored) == 5


def test_who_reads_is_told_to_itself_and_to_who_may_manage() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(
        ada=[may("subscribe"), may("manage")], bob=[may("subscribe")], eve=[may("publish")]
    )
    ada, bob, eve = (come(rig, who) for who in ("ada", "bob", "eve"))
    ask(ada, "log.reader", name="audit", where="employee = 'bob'")
    ask(bob, "log.reader", name="own")
    assert [one["name"] for one in ask(bob, "log.status")["readers"]] == ["own"]
    assert [one["name"] for one in ask(ada, "log.status")["readers"]] == ["audit", "own"]
    assert refusal(eve, "log.status")[0] == "not-allowed"
    assert refusal(eve, "log.at", time_us=0)[0] == "not-allowed"


def test_who_may_manage_ends_readers_of_others() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(ada=[may("manage"), may("subscribe")], bob=[may("subscribe")])
    ada, bob = come(rig, "ada"), come(rig, "bob")
    ask(bob, "log.reader", name="hog", start=1)
    ask(ada, "log.reader", name="own", start=1)
    assert refusal(bob, "log.leave", name="own", owner="ada")[0] == "not-allowed"
    ask(ada, "log.leave", name="hog", owner="bob")
    assert [one["name"] for one in ask(ada, "log.status")["readers"]] == ["own"]


def test_a_client_has_only_so_many_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READERS_MAX", 2)
    rig = LogRig()
    ann = rig.peer()
    ask(ann, "log.reader", name="a")
    ask(ann, "log.reader", name="b")
    assert refusal(ann, "log.reader", name="c") == (
        "limit",
        "'ann' has READERS_MAX = 2 readers of the log; end one first",
    )
    ask(ann, "log.reader", name="a", lease_s=5)
    ask(ann, "log.keep", name="k", where="")
    assert ask(rig.peer("two", name="bob"), "log.reader", name="c")["cursor"] == 0


def test_who_has_no_right_to_keep_is_told_which_one_it_needs_and_reads_nonetheless() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(
        ann=[may("subscribe"), may("manage")], bob=[may("subscribe"), may("keep")]
    )
    ann, bob = come(rig, "ann"), come(rig, "bob")
    needed = "having what others publish kept in the log needs a rule with the action 'keep'"
    assert refusal(ann, "log.keep", name="k") == ("not-allowed", f"'ann' may not keep: {needed}")
    assert rig.broker.cursors.archives == []
    ask(ann, "log.reader", name="spark", lease_s=60)
    ask(bob, "log.keep", name="k")


def test_an_advertiser_is_told_what_a_reader_asks_for_and_not_the_rules_behind_it() -> None:
    rig = LogRig()
    book = rig.broker.authenticator = Book(ann=ALL, bob=[may("subscribe", "room = 'vault'")])
    ann, bob = come(rig, "ann"), come(rig, "bob")
    ann.ask("advertise", number=1, filter="")
    ask(bob, "log.reader", name="spark", where="n > 1", lease_s=60)
    ask(bob, "log.reader", name="spark", where="n > 2", lease_s=60)
    book.users["bob"] = (may("subscribe", "room = 'hall'"),)
    rig.broker.review()
    rig.run()
    told = {one for notice in ann.got(Notice) for one in notice.details["filters"]}
    assert told == {"n > 1", "n > 2"}
    assert ann.got(Notice)[-1].details["filters"] == ["n > 2"]


def test_a_right_to_keep_reaches_no_further_than_what_may_be_subscribed_to() -> None:
    rig = LogRig()
    rig.broker.authenticator = Book(ann=[may("keep")], bob=[may("subscribe", "n < 3"), may("keep")])
    ann, bob = come(rig, "ann"), come(rig, "bob")
    assert refusal(ann, "log.keep", name="k")[0] == "not-allowed"
    assert refusal(bob, "log.keep", name="k", where="n > 5")[0] == "not-allowed"


def test_a_user_has_only_so_many_filters_kept_whatever_its_clients_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "KEPT_MAX", 2)
    rig = LogRig()
    rig.broker.authenticator = Book(ann=ALL, bob=ALL)
    clients = [come(rig, "ann", f"s{n}", f"ann/{n}") for n in range(3)]
    for client in clients[:2]:
        ask(client, "log.keep", name="k")
    code, text = refusal(clients[2], "log.keep", name="k")
    assert (code, text) == ("limit", "'ann' has KEPT_MAX = 2 filters kept in the log; end one first")
    ask(clients[0], "log.keep", name="k", where="n = 1")  # which is there
    ask(clients[2], "log.reader", name="r", lease_s=60)
    ask(come(rig, "bob"), "log.keep", name="k")
    ask(clients[1], "log.leave", name="k")
    ask(clients[2], "log.keep", name="k")
