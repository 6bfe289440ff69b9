"""A database that is away: what can wait does, what can't is told so, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from postgres.rig import Answered, Client, Node, job, numbers
from postgres.server import Server
from tidings.errors import ConfigError, Disconnected, MessageNotHeld
from tidings.postgres import backend, worker
from tidings.postgres.connection import Conninfo
from tidings.queues.description import Description

Start = Callable[..., Node]


def cut(server: Server) -> None:
    """Break the connections of all nodes."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidings'"
        )


def test_a_server_that_is_started_again_finds_everybody_where_he_was(server: Server, start: Start) -> None:
    first, second = start("a"), start("b")
    first.create()
    client = Client()
    first.put(client, job(1), job(2))
    (held,) = first.get()
    server.stop("immediate")
    first.until(lambda: first.shared.problem)
    sent = first.send(client.batch([job(3)]))
    waiting = second.ask(where="number = 3", wait_s=None)
    server.start()
    first.until(lambda: sent)
    second.until(lambda: waiting.is_there)
    assert (sent, numbers(waiting.hands)) == ({0: None}, [3])
    first.settle(held)
    assert numbers(first.get(count=5)) == [2]


def test_a_connection_that_breaks_again_and_again_loses_and_doubles_nothing(
    server: Server, start: Start
) -> None:
    first, second = start("a"), start("b")
    first.create(deliveries_max=None)
    second.way("jobs")
    client, got, total = Client(), [], 200
    sent = []
    for number in range(total):
        sent.append(first.send(client.batch([job(number)])))
        if number % 40 == 20:
            cut(server)
            hands = second.get(count=15, wait_s=30)
            cut(server)
            for hand in hands:
                second.settle(hand)
            got += numbers(hands)
    first.until(lambda: all(sent))
    assert all(done == {0: None} for done in sent)
    while len(got) < total:
        got += numbers(second.take(count=50, wait_s=30))
    assert sorted(got) == list(range(total))
    assert second.describe().messages + second.describe().in_flight == 0


def test_a_settlement_that_was_made_when_the_connection_broke_is_not_an_error(
    server: Server, node: Node
) -> None:
    node.create()
    node.put(Client(), job(1))
    (hand,) = node.get()
    cut(server)
    node.settle(hand)
    with pytest.raises(MessageNotHeld):
        node.settle(hand)


def test_what_cannot_wait_for_a_database_is_told_that_it_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CALL_S", 0.3)
    monkeypatch.setattr(backend, "SEARCH_S", 0.1)
    node = Node(f"host={tmp_path} user=tidings dbname=none", "a")
    try:
        way = node.shared.resolve("jobs")
        assert way is not None  # it may be there
        told, got = Answered(way.describe()), node.ask(wait_s=0.2)
        for answered in (told, got):
            with pytest.raises(Disconnected, match=r"the database postgresql://tidings@.*/none is away"):
                node.wait(answered)
        with pytest.raises(Disconnected):
            node.search()
        assert node.states
        assert node.shared.absent == (f"postgresql://tidings@{tmp_path}/none",)
    finally:
        node.close()


def test_what_is_put_waits_until_the_database_is_there(server: Server) -> None:
    server.stop()
    node = Node(server.conninfo, "a")
    try:
        node.until(lambda: node.states)
        node.shared.create(Description(name="jobs", type="postgres"))
        sent = node.send(Client().batch([job(1)]))
        assert not sent
        server.start()
        node.until(lambda: sent)
        assert sent == {0: None}
    finally:
        node.close()


def test_a_server_that_says_nothing_does_not_keep_a_node_from_closing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "CLOSE_S", 0.1)
    node = Node(server.conninfo, "a")
    node.create()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'tidings'")
        (pid,) = found.fetchone() or (0,)
    os.kill(pid, signal.SIGSTOP)
    try:
        told = Answered(node.way("jobs").describe())
        node.close()
        assert not told.is_there
    finally:
        os.kill(pid, signal.SIGCONT)


def test_tables_of_a_newer_tidings_are_left_alone(server: Server, start: Start) -> None:
    start("a").create()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("UPDATE tidings.format SET version = 99")
    later = start("b")
    later.until(lambda: later.states)
    assert "format 99" in str(later.shared.problem)
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("UPDATE tidings.format SET version = 1")


def test_a_life_that_others_have_ended_is_not_gone_on_with(server: Server, node: Node) -> None:
    node.create()
    node.put(Client(), job(1))
    (hand,) = node.get()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("DELETE FROM tidings.lives")
        connection.execute("UPDATE tidings.messages SET holder = NULL, held_until = NULL")
    cut(server)
    with pytest.raises(MessageNotHeld):
        node.settle(hand)
    assert numbers(node.get(wait_s=None)) == [1]


@pytest.mark.parametrize("text", ["postgresql://u:hidden@[", "password=hidden nonsense", "://u:hidden@host"])
def test_what_is_no_conninfo_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a conninfo string nor a URI") as caught:
        Conninfo(text)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["postgresql://u:hidden@host/db", "sslpassword=hidden", "password='hidden'"])
def test_a_password_in_a_conninfo_is_refused_and_the_file_named_where_it_belongs(text: str) -> None:
    with pytest.raises(ConfigError, match="PGPASSFILE") as caught:
        Conninfo(text)
    assert "hidden" not in str(caught.value)


def test_a_conninfo_is_shown_as_an_address() -> None:
    conninfo = Conninfo("host=db.example port=5433 user=alice dbname=events passfile=/etc/secret")
    assert repr(conninfo) == "Conninfo('postgresql://alice@db.example:5433/events')"


def test_a_password_that_the_server_does_not_take_is_not_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = server.home / "data" / "pg_hba.conf"
    trusting = rules.read_text()
    rules.write_text("local all all scram-sha-256\n")
    (tmp_path / "pgpass").write_text("*:*:*:*:s3cret\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    server.reload()
    node = Node(server.conninfo, "a")
    try:
        node.until(lambda: node.states)
        assert "password authentication failed" in str(node.states)
        assert "s3cret" not in f"{node.states} {node.shared!r}"
    finally:
        rules.write_text(trusting)
        server.reload()
        node.close()
