"""Sinks at a node, moved by hand: what is staged, what a commit publishes, and what faults do to both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from effort import often
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from protocol.guarded import ALL, Book, come, may
from protocol.rig import Peer, Rig, event, persistent
from queues.rig import Client, pass_time
from queues.rig import job as queued

from tidings.event import Batch, Event, Header
from tidings.event.wire import array_head, encode_events
from tidings.log import sink_staging, sinks
from tidings.log.sinks import IDLE_S, LEFT_S, UNUSED_S, Sinks
from tidings.protocol.messages import Bye, Request


class SinkRig(Rig):
    """A node whose sinks can be looked at."""

    @property
    def sinks(self) -> Sinks:
        (found,) = (one for one in self.broker.services if isinstance(one, Sinks))
        return found

    @property
    def rows(self) -> list[Any]:
        """The attributes n of all events that are stored, in their order."""
        return [one.values["n"] for stored in self.stored for one in Batch(stored.raw)]

    @property
    def staged(self) -> dict[tuple[str, ...], list[Any]]:
        """The attributes n of what is staged, by user, sink, run and attempt."""
        return {
            (*key, attempt): [one.values["n"] for piece in pieces for one in Batch(piece.raw)]
            for key, run in self.sinks._staging.runs.items()
            for attempt, pieces in run.attempts.items()
        }


def raw(*numbers: int) -> bytes:
    """Persistent events, which tests tell by their attribute n, numbered by it."""
    return encode_events([persistent(n, n=n) for n in numbers])


def job(rig: SinkRig | None = None) -> Client:
    return Client(rig or SinkRig())


def stage(client: Client, number: int, *numbers: int, run: str = "r", attempt: str = "a") -> Any:
    return client.ask("sink.stage", sink="s", run=run, attempt=attempt, number=number, raw=raw(*numbers))


def commit(client: Client, batch: int | None, run: str = "r", **attempts: int) -> Any:
    return client.ask("sink.commit", sink="s", run=run, batch=batch, attempts=attempts)


def rig_of(client: Client) -> SinkRig:
    assert isinstance(client.rig, SinkRig)
    return client.rig


PUBLISHED = {"published": 3, "repeated": False}
REPEATED = {"published": 0, "repeated": True}


def test_what_is_staged_is_published_at_the_commit_and_not_before() -> None:
    spark = job()
    reader = Client(spark.rig, "reader")
    reader.subscribe()
    assert stage(spark, 0, 1, 2) == {"rows": 2}
    assert stage(spark, 1, 3) == {"rows": 3}
    assert (reader.told, rig_of(spark).rows) == ([], [])
    assert commit(spark, 0, a=2) == PUBLISHED
    assert reader.told == rig_of(spark).rows == [1, 2, 3]
    assert rig_of(spark).staged == {}


def test_nobody_has_any_row_before_the_commit_is_on_disk() -> None:
    spark = job()
    reader = Client(spark.rig, "reader")
    reader.subscribe()
    transient = encode_events([event(1, n=1), event(2, n=2)])
    spark.ask("sink.stage", sink="s", run="r", attempt="a", number=0, raw=transient)
    number = spark.request("sink.commit", sink="s", run="r", batch=0, attempts={"a": 1})
    spark.rig.tick()
    assert (reader.told, spark.reply(number)) == ([], None)
    spark.rig.sync()
    assert reader.told == [1, 2]
    assert spark.reply(number) is not None


def test_attempts_are_published_in_the_order_in_which_the_commit_names_them() -> None:
    spark = job()
    stage(spark, 0, 1, attempt="one")
    stage(spark, 0, 2, attempt="two")
    commit(spark, 0, two=1, one=1)
    assert rig_of(spark).rows == [2, 1]


def test_the_name_of_a_sink_has_no_control_characters() -> None:
    client = job()
    wanted = {"run": "r", "attempt": "a", "number": 0, "raw": raw(1)}
    assert client.fails("sink.stage", sink="a\x1b[2J", **wanted).code == "protocol"


def test_a_piece_that_is_sent_again_is_staged_once() -> None:
    spark = job()
    stage(spark, 0, 1, 2)
    assert stage(spark, 0, 1, 2) == {"rows": 2}
    stage(spark, 1, 3)
    assert stage(spark, 0, 1, 2) == {"rows": 3}
    commit(spark, 0, a=2)
    assert rig_of(spark).rows == [1, 2, 3]


def test_a_piece_before_which_another_is_missing_is_refused() -> None:
    spark = job()
    failure = spark.fails("sink.stage", sink="s", run="r", attempt="a", number=1, raw=raw(1))
    assert (failure.code, "0 are staged" in failure.text) == ("incomplete", True)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("batch", [7, None])
def test_a_commit_that_is_repeated_does_nothing_and_says_so(batch: int | None, restarts: bool) -> None:
    spark = job()
    stage(spark, 0, 1, 2, 3)
    assert commit(spark, batch, a=1) == PUBLISHED
    if restarts:
        spark.come(rig_of(spark).restart())
    assert commit(spark, batch, a=1) == REPEATED
    assert rig_of(spark).rows == [1, 2, 3]


def test_a_batch_that_was_staged_again_is_not_published_again() -> None:
    spark = job()
    stage(spark, 0, 1, 2, 3)
    commit(spark, 7, a=1)
    stage(spark, 0, 1, 2, 3, run="later")
    assert commit(spark, 7, "later", a=1) == REPEATED
    assert (rig_of(spark).rows, rig_of(spark).staged) == ([1, 2, 3], {})


def test_a_commit_that_is_repeated_while_the_first_is_under_way_waits_for_it() -> None:
    spark = job()
    stage(spark, 0, 1, 2, 3)
    arguments: dict[str, Any] = {"sink": "s", "run": "r", "batch": 0, "attempts": {"a": 1}}
    first, second = spark.request("sink.commit", **arguments), spark.request("sink.commit", **arguments)
    spark.rig.tick()
    assert (spark.reply(first), spark.reply(second)) == (None, None)
    spark.rig.sync()
    replies = [spark.reply(one) for one in (first, second)]
    assert [reply and reply.result for reply in replies] == [PUBLISHED, REPEATED]


def test_a_lower_batch_is_refused_and_the_reason_is_said() -> None:
    spark = job()
    commit(spark, 7)
    failure = spark.fails("sink.commit", sink="s", run="r", batch=6)
    assert failure.code == "passed"
    assert "has batch 7 already" in failure.text
    assert "checkpoint" in failure.text
    assert "another name" in failure.text


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_of_another_query_that_has_the_same_number_is_refused_and_not_lost(restarts: bool) -> None:
    spark = job()
    stage(spark, 0, 1, 2, 3)
    told: dict[str, Any] = {"sink": "s", "batch": 0, "attempts": {"a": 1}}
    assert spark.ask("sink.commit", **told, run="r", query="one") == PUBLISHED
    if restarts:
        spark.come(rig_of(spark).restart())
    stage(spark, 0, 4, run="next")
    failure = spark.fails("sink.commit", **told, run="next", query="two")
    assert failure.code == "passed"
    assert "has batch 0 of another query already" in failure.text
    assert "checkpoint was deleted" in failure.text
    assert "another name" in failure.text
    assert rig_of(spark).staged == {("", "s", "next", "a"): [4]}
    assert spark.ask("sink.commit", **told, run="next", query="one") == REPEATED


def test_a_batch_whose_query_is_not_told_is_known_by_its_number() -> None:
    spark = job()
    spark.ask("sink.commit", sink="s", run="r", batch=0, query="one")
    assert commit(spark, 0) == REPEATED
    commit(spark, 1)
    spark.come(rig_of(spark).restart())
    assert spark.ask("sink.commit", sink="s", run="r", batch=1, query="two") == REPEATED


def test_a_commit_of_what_is_not_all_staged_is_refused_and_publishes_nothing() -> None:
    spark = job()
    stage(spark, 0, 1)
    failure = spark.fails("sink.commit", sink="s", run="r", batch=0, attempts={"a": 2, "b": 1})
    assert failure.code == "incomplete"
    assert "'a' has 1 of 2 pieces; attempt 'b' has 0 of 1" in failure.text
    assert rig_of(spark).rows == []
    stage(spark, 1, 2)
    stage(spark, 0, 3, attempt="b")
    assert commit(spark, 0, a=2, b=1) == PUBLISHED


def test_attempts_that_a_commit_does_not_name_go_with_it() -> None:
    spark = job()
    stage(spark, 0, 1, attempt="failed")
    stage(spark, 0, 1, attempt="a")
    stage(spark, 0, 9, run="other")
    commit(spark, 0, a=1)
    assert rig_of(spark).rows == [1]
    assert rig_of(spark).staged == {("", "s", "other", "a"): [9]}
    assert rig_of(spark).restart().staged == {("", "s", "other", "a"): [9]}


def test_what_is_aborted_leaves_no_trace() -> None:
    spark = job()
    stage(spark, 0, 1)
    stage(spark, 0, 2, attempt="b")
    spark.ask("sink.abort", sink="s", run="r", attempts=["a"])
    assert rig_of(spark).staged == {("", "s", "r", "b"): [2]}
    spark.ask("sink.abort", sink="s", run="r")
    spark.ask("sink.abort", sink="s", run="r")
    assert (rig_of(spark).staged, rig_of(spark).sinks._staging.size) == ({}, 0)
    assert list(rig_of(spark).restart().store.messages()) == []


def test_staged_rows_are_there_after_a_restart() -> None:
    spark = job()
    stage(spark, 0, 1, 2)
    spark.come(rig_of(spark).restart())
    assert stage(spark, 1, 3) == {"rows": 3}
    assert commit(spark, 0, a=2) == PUBLISHED
    assert rig_of(spark).rows == [1, 2, 3]


def test_the_rows_of_the_last_batch_are_the_last_values_of_their_subjects_also_after_a_restart() -> None:
    spark = job()
    for batch, highs in enumerate(({"ACME": 31, "IBM": 120}, {"ACME": 33, "SUN": 7})):
        rows = [persistent(n, n=high) for n, high in enumerate(highs.values(), 1)]
        subjects = [Header(subject=symbol, delivery="persistent") for symbol in highs]
        staged = encode_events([replace(row, header=one) for row, one in zip(rows, subjects, strict=True)])
        run, attempt = f"r{batch}", f"a{batch}"
        spark.ask("sink.stage", sink="s", run=run, attempt=attempt, number=0, raw=staged)
        commit(spark, batch, run, **{attempt: 1})
    for rig in (spark.rig, spark.rig.restart()):
        reader = rig.peer("reader")
        reader.subscribe(last=True)
        assert {one.subject: one["n"] for one in reader.events()} == {"IBM": 120, "ACME": 33, "SUN": 7}
        assert len(reader.events()) == 3


def test_messages_of_queues_and_staged_rows_keep_out_of_each_others_way() -> None:
    spark = job()
    spark.create("jobs")
    spark.put("jobs", 5)
    stage(spark, 0, 1, 2, 3)
    spark.put("jobs", 6)
    spark.rig.run()
    spark.come(rig_of(spark).restart())
    assert [hand.n for hand in spark.read("jobs")] == [5, 6]
    spark.put_again("jobs", 3, queued(7))
    assert commit(spark, 0, a=1) == PUBLISHED
    assert [hand.n for hand in spark.get("jobs", 9)] == [5, 6, 7]


def test_what_nobody_comes_back_for_goes_after_a_time() -> None:
    spark = job()
    stage(spark, 0, 1)
    pass_time(spark.rig, LEFT_S / 2)
    stage(spark, 0, 2, run="later")
    pass_time(spark.rig, LEFT_S / 2)
    assert list(rig_of(spark).staged) == [("", "s", "later", "a")]
    pass_time(spark.rig, LEFT_S / 2)
    assert rig_of(spark).staged == rig_of(spark).restart().staged == {}
    failure = spark.fails("sink.commit", sink="s", run="r", batch=0, attempts={"a": 1})
    assert failure.code == "incomplete"


@pytest.mark.parametrize("jump_s", [-86_400.0, -5.0, 5.0, 365 * 86_400.0])
def test_staged_rows_wait_as_long_as_they_may_though_the_clock_is_set(jump_s: float) -> None:
    spark = job()
    stage(spark, 0, 1)
    spark.rig.broker.shift = jump_s
    stage(spark, 0, 2, run="later")
    pass_time(spark.rig, LEFT_S - 1)
    assert len(rig_of(spark).staged) == 2
    pass_time(spark.rig, 1)
    assert rig_of(spark).staged == {}


def test_rows_staged_by_a_clock_that_was_ahead_wait_no_longer_after_a_restart() -> None:
    spark = job()
    spark.rig.broker.shift = 365 * 86_400.0
    stage(spark, 0, 1)
    again = rig_of(spark).restart()
    assert again.broker.wake_at == pytest.approx(again.now + LEFT_S)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (persistent(4, n={}), "row 3, $.n: "),
        (persistent(4, "a b"), "row 3, $.type: "),
        (persistent(3), "row 3, $.counter: 3 is not above 3"),
    ],
    ids=["value", "type", "counter"],
)
def test_a_bad_row_is_refused_when_it_is_staged_and_named(bad: Event, told: str) -> None:
    spark = job()
    stage(spark, 0, 1, 2)
    events = encode_events([persistent(3, n=3), bad])
    failure = spark.fails("sink.stage", sink="s", run="r", attempt="a", number=1, raw=events)
    assert (failure.code, failure.text[: len(told)]) == ("event", told)
    assert commit(spark, 0, a=1)["published"] == 2


def test_bytes_that_are_no_events_are_refused() -> None:
    failure = job().fails("sink.stage", sink="s", run="r", attempt="a", number=0, raw=b"nothing")
    assert failure.code == "event"


def test_more_than_the_limits_allow_is_refused_and_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = job()
    arguments: dict[str, Any] = {"sink": "s", "run": "r", "attempt": "a", "number": 0, "raw": raw(1)}
    for limit, code in [("SINK_SIZE_MAX", "limit"), ("STAGED_SIZE_MAX", "limit")]:
        with monkeypatch.context() as context:
            context.setattr(sinks, limit, 100)
            failure = spark.fails("sink.stage", **arguments)
            assert (failure.code, limit in failure.text) == (code, True)
    long = array_head(1) + bytes(sinks.PIECE_SIZE_MAX)
    assert spark.fails("sink.stage", **{**arguments, "raw": long}).code == "too-large"
    stage(spark, 0, 1)
    spark.ask("sink.commit", sink="other", run="r", batch=0)
    for limit in ("SINKS_MAX", "SINKS_EACH_MAX"):
        with monkeypatch.context() as context:
            context.setattr(sinks, limit, 1)
            failure = spark.fails("sink.commit", sink="s", run="r", batch=0, attempts={"a": 1})
            assert (failure.code, f"{limit} = 1 " in failure.text) == ("limit", True)
    assert commit(spark, 0, a=1)["published"] == 1


def test_the_sink_that_was_unused_longest_is_forgotten_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "SINKS_EACH_MAX", 2)
    spark = job()
    for name, run, batch in (("one", "r", None), ("two", "r", 4), ("one", "s", None)):
        spark.rig.now += 1
        spark.ask("sink.commit", sink=name, run=run, batch=batch)
    pass_time(spark.rig, UNUSED_S)
    spark.ask("sink.commit", sink="three", run="r", batch=0)
    spark.come(rig_of(spark).restart())
    assert [told["name"] for told in spark.ask("status")["sinks"]] == ["one", "three"]
    pass_time(spark.rig, 2 * UNUSED_S)
    spark.ask("sink.commit", sink="two", run="r", batch=0)
    spark.come(rig_of(spark).restart())
    standing = {told["name"]: told["batch"] for told in spark.ask("status")["sinks"]}
    assert standing == {"three": 0, "two": 0}


def test_a_sink_is_remembered_if_the_commit_for_which_it_was_forgotten_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "SINKS_MAX", 1)
    spark = job()
    commit(spark, 7)
    pass_time(spark.rig, UNUSED_S)
    spark.request("sink.commit", sink="new", run="r", batch=0)
    spark.rig.tick()
    spark.rig.fail()
    spark.come()
    assert commit(spark, 7) == REPEATED


def test_dead_runs_of_a_sink_make_room_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = job()
    stage(spark, 0, 1, run="dead")
    spark.ask("sink.stage", sink="other", run="r", attempt="a", number=0, raw=raw(1))
    monkeypatch.setattr(sinks, "SINK_SIZE_MAX", rig_of(spark).sinks._staging.sizes["", "s"])
    arguments: dict[str, Any] = {"sink": "s", "run": "next", "attempt": "a", "number": 0, "raw": raw(2)}
    failure = spark.fails("sink.stage", **arguments)
    assert "maxOffsetsPerTrigger" in failure.text
    pass_time(spark.rig, IDLE_S)
    assert spark.ask("sink.stage", **arguments) == {"rows": 1}
    left = {("", "other", "r", "a"): [1], ("", "s", "next", "a"): [2]}
    assert rig_of(spark).staged == rig_of(spark).restart().staged == left


def test_the_runs_that_are_remembered_are_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_staging, "RUNS_KEPT", 2)
    spark = job()
    for run in ("one", "two", "three"):
        spark.rig.now += 1
        commit(spark, None, run)
    spark.come(rig_of(spark).restart())
    assert commit(spark, None, "three") == commit(spark, None, "two") == REPEATED
    assert commit(spark, None, "one") == {"published": 0, "repeated": False}
    assert [len(one.runs) for one in sink_staging.DONE.known(rig_of(spark).state).values()] == [2]


def test_events_have_ids_of_their_own_and_the_source_of_who_staged_them() -> None:
    spark = job()
    reader = Client(spark.rig, "reader")
    reader.subscribe(durable="all")
    for batch in (0, 1):
        stage(spark, 0, 1, 2)
        stage(spark, 0, 1, attempt="b")
        commit(spark, batch, a=1, b=1)
    stored = [Batch(one.raw, None) for one in rig_of(spark).stored]
    origins = [(one.system, one.epoch) for one in rig_of(spark).stored]
    ids = [(*origin, e.counter) for origin, batch in zip(origins, stored, strict=True) for e in batch]
    assert len(ids) == len(set(ids)) == 6
    assert {one.source for one in rig_of(spark).stored} == {"ann"}


def guarded(*rules: Any) -> SinkRig:
    rig = SinkRig()
    rig.broker.authenticator = Book(ann=list(rules), bob=ALL)
    return rig


def failure_of(peer: Peer, operation: str, **arguments: Any) -> str:
    error = peer.ask(operation, **arguments).error
    return "" if error is None else error.text


def test_a_row_that_may_not_be_published_is_refused_when_it_is_staged() -> None:
    ann = come(guarded(may("publish", "n < 10")), "ann")
    arguments: dict[str, Any] = {"sink": "s", "run": "r", "attempt": "a"}
    assert failure_of(ann, "sink.stage", **arguments, number=0, raw=raw(1, 2)) == ""
    refused = failure_of(ann, "sink.stage", **arguments, number=1, raw=raw(3, 10))
    assert refused.endswith("may publish only what matches: n < 10; row 3 does not")


def test_what_was_granted_when_it_was_staged_must_be_granted_at_the_commit() -> None:
    rig = guarded(may("publish"))
    ann = come(rig, "ann")
    failure_of(ann, "sink.stage", sink="s", run="r", attempt="a", number=0, raw=raw(1, 10))
    rig.broker.authenticator = Book(ann=[may("publish", "n < 10")], bob=ALL)
    rig.broker.review()
    rig.run()
    ann = come(rig, "ann")
    refused = failure_of(ann, "sink.commit", sink="s", run="r", batch=0, attempts={"a": 1})
    assert refused.endswith("row 1 does not")
    assert rig.rows == []


@pytest.mark.parametrize("operation", ["stage", "commit", "abort"])
def test_one_who_may_not_publish_has_no_sinks(operation: str) -> None:
    rig = guarded(may("subscribe"))
    arguments: dict[str, dict[str, Any]] = {
        "stage": {"attempt": "a", "number": 0, "raw": raw()},
        "commit": {"batch": 0},
        "abort": {},
    }
    ann = come(rig, "ann")
    refused = failure_of(ann, f"sink.{operation}", sink="s", run="r", **arguments[operation])
    assert refused == "'ann' may not publish"
    assert rig.sinks.status() == {"sinks": []}


def test_a_user_with_as_many_sinks_as_there_may_be_leaves_others_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "SINKS_EACH_MAX", 1)
    rig = guarded(*ALL)
    ann, bob = come(rig, "ann"), come(rig, "bob")
    assert failure_of(ann, "sink.commit", sink="s", run="r", batch=0) == ""
    assert "SINKS_EACH_MAX" in failure_of(ann, "sink.commit", sink="more", run="r", batch=0)
    assert failure_of(bob, "sink.commit", sink="more", run="r", batch=0) == ""


def test_sinks_of_two_users_have_nothing_in_common() -> None:
    rig = guarded(*ALL)
    ann, bob = come(rig, "ann"), come(rig, "bob")
    arguments: dict[str, Any] = {"sink": "s", "run": "r"}
    failure_of(ann, "sink.stage", **arguments, attempt="a", number=0, raw=raw(1))
    assert "0 of 1" in failure_of(bob, "sink.commit", **arguments, batch=9, attempts={"a": 1})
    assert (
        failure_of(bob, "sink.abort", **arguments)
        == failure_of(bob, "sink.commit", **arguments, batch=9)
        == ""
    )
    assert failure_of(ann, "sink.commit", **arguments, batch=0, attempts={"a": 1}) == ""
    assert rig.rows == [1]


def test_the_node_tells_how_its_sinks_stand() -> None:
    spark = job()
    stage(spark, 0, 1)
    commit(spark, 4, a=1)
    stage(spark, 0, 2, run="next")
    (told,) = spark.ask("status")["sinks"]
    assert (told["name"], told["owner"], told["batch"], told["staged_bytes"] > 0) == ("s", "", 4, True)


# -- what is said of sinks


def said(head: str) -> dict[str, str]:
    """The first two columns of a table about sinks in docs/protocol.md."""
    document = Path(__file__).parents[2] / "docs" / "protocol.md"
    section = document.read_text().partition("\n## Sinks\n")[2].partition("\n## ")[0]
    table = section.partition(f"| {head} |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1] for row in rows}


def test_the_operations_of_sinks_are_those_there_are() -> None:
    operations = SinkRig().sinks.operations
    assert said("operation") == {
        name: ", ".join(f"`{field}`" for field in kind.__struct_fields__)
        for name, (kind, _) in operations.items()
    }


def test_the_limits_of_sinks_are_those_in_force() -> None:
    assert said("limit") == {
        "PIECE_SIZE_MAX": f"{sinks.PIECE_SIZE_MAX >> 20} MiB",
        "SINK_SIZE_MAX": f"{sinks.SINK_SIZE_MAX >> 20} MiB",
        "STAGED_SIZE_MAX": f"{sinks.STAGED_SIZE_MAX >> 30} GiB",
        "SINKS_MAX": f"{sinks.SINKS_MAX:,}",
        "SINKS_EACH_MAX": f"{sinks.SINKS_EACH_MAX:,}",
        "UNUSED_S": f"{UNUSED_S / 86_400:g} days",
        "RUNS_KEPT": f"{sink_staging.RUNS_KEPT}",
        "LEFT_S": f"{LEFT_S / 3_600:g} h",
        "IDLE_S": f"{IDLE_S / 60:g} min",
    }


# -- faults


def test_a_commit_that_can_not_be_stored_leaves_the_staged_rows_as_they_were() -> None:
    spark = job()
    reader = Client(spark.rig, "reader")
    reader.subscribe()
    stage(spark, 0, 1, 2, 3)
    spark.request("sink.commit", sink="s", run="r", batch=0, attempts={"a": 1})
    spark.rig.tick()
    spark.rig.fail()
    assert rig_of(spark).staged == {("", "s", "r", "a"): [1, 2, 3]}
    assert (reader.told, [bye.code for bye in spark.peer.got(Bye)]) == ([], ["internal"])
    spark.come()
    assert commit(spark, 0, a=1) == PUBLISHED
    assert rig_of(spark).rows == [1, 2, 3]


FAULTS = st.sampled_from(["none", "none", "cut", "failed", "crash before", "crash after"])
RUNS = st.sampled_from(["one", "two"])
ATTEMPTS = st.sampled_from(["a", "b"])
QUERIES = st.sampled_from([None, "mine", "mine", "another"])
Staged = dict[tuple[str, str], list[list[int]]]


class Faults(RuleBasedStateMachine):
    """Requests that meet faults, and a model of what they have done: rows are published once, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.client = job()
        self.reader = Client(self.client.rig, "reader")
        self.made = 0
        self.staged: Staged = {}
        self.published: list[int] = []
        self.batch: int | None = None
        self.query: str | None = None
        self.runs: set[str] = set()

    def do(self, fault: str, operation: str, **arguments: Any) -> bool:
        """Make a request that meets a fault; whether what it changes was stored."""
        rig = rig_of(self.client)
        self.client.peer.send(Request(1_000, operation, {"sink": "s", **arguments}))
        if fault == "none":
            rig.run()
        elif fault == "cut":
            self.client.lose()
            self.client.come()
        elif fault == "failed":
            rig.tick()
            rig.fail()
        else:
            rig.tick()
            if fault == "crash after":
                rig.sync()
            rig = rig.restart()
        for client in (self.client, self.reader):
            if client.rig is not rig or client.peer.got(Bye):
                client.come(rig)
        return fault in ("none", "cut", "crash after")

    @rule(fault=FAULTS, run=RUNS, attempt=ATTEMPTS, count=st.integers(0, 3), is_again=st.booleans())
    def stage(self, fault: str, run: str, attempt: str, count: int, is_again: bool) -> None:
        pieces = self.staged.get((run, attempt), [])
        if is_again and pieces:
            *_, numbers = pieces
            number = len(pieces) - 1
        else:
            numbers, number = list(range(self.made + 1, self.made + 1 + count)), len(pieces)
            self.made += count
        arguments = {"run": run, "attempt": attempt, "number": number, "raw": raw(*numbers)}
        if self.do(fault, "sink.stage", **arguments):
            self.staged[run, attempt] = [*pieces[:number], numbers]

    @rule(
        fault=FAULTS,
        run=RUNS,
        attempts=st.lists(ATTEMPTS, unique=True),
        step=st.sampled_from([None, -1, 0, 1, 1, 1, 2]),
        query=QUERIES,
    )
    def commit(self, fault: str, run: str, attempts: list[str], step: int | None, query: str | None) -> None:
        batch = None if step is None else max(0, (-1 if self.batch is None else self.batch) + step)
        named = {one: len(self.staged.get((run, one), [])) for one in attempts}
        is_done = self.do(fault, "sink.commit", run=run, batch=batch, attempts=named, query=query)
        is_anothers = None not in (query, self.query) and query != self.query
        was_repeated = run in self.runs if batch is None else batch == self.batch and not is_anothers
        if was_repeated:
            if is_done or fault == "failed":  # to forget what is of no use is tried again
                self.forget(run)
            return
        has_passed = batch is not None and self.batch is not None and batch <= self.batch
        if is_done and not has_passed:
            self.published += [
                n for one in attempts for piece in self.staged.get((run, one), []) for n in piece
            ]
            self.forget(run)
            if batch is None:
                self.runs.add(run)
            else:
                self.batch, self.query = batch, query

    @rule(fault=FAULTS, run=RUNS)
    def abort(self, fault: str, run: str) -> None:
        if self.do(fault, "sink.abort", run=run) or fault == "failed":
            self.forget(run)

    def forget(self, run: str) -> None:
        self.staged = {key: pieces for key, pieces in self.staged.items() if key[0] != run}

    @invariant()
    def what_is_there_is_what_the_model_has(self) -> None:
        rig = rig_of(self.client)
        rig.run()
        assert rig.rows == self.published
        flat = {
            ("", "s", *key): [n for piece in pieces for n in piece] for key, pieces in self.staged.items()
        }
        assert rig.staged == rig.restart().staged == flat

    @invariant()
    def nobody_has_what_was_not_published(self) -> None:
        assert set(self.reader.told) <= set(self.published)


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=often(100), stateful_step_count=30, deadline=None)
