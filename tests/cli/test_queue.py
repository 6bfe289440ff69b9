"""`tidings queue`, with a real node beside it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cli.commands import Commands
from hypothesis import given
from hypothesis import strategies as st
from node.peers import ANSWER_S_MAX, SOURCE, Start
from rich.console import Console

from tidings.cli.printing import add_row, new_table, shown, values_text
from tidings.cli.queue import create
from tidings.client import blocking
from tidings.queues.description import REPORTED, Description


@pytest.fixture(scope="module")
def address(start_shared: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    return start_shared("--port", "0", "--dir", str(tmp_path_factory.mktemp("nodes") / "node")).address()


@pytest.fixture
def tidings(address: str) -> Commands:
    """The commands; the node has no queues when a test begins."""
    with blocking.connect(address) as bus:
        for one in bus.lookup():
            if one.alias_of is None:
                bus.delete_queue(one.name)
    return Commands("queue", address)


@pytest.fixture
def jobs(tidings: Commands) -> Commands:
    """The commands, and a queue `jobs` with the messages 1, 2 and 3."""
    tidings.told("create", "jobs")
    lines = "".join(f'{{"type": "job", "n": {n}}}\n' for n in (1, 2, 3))
    assert tidings.told("put", "jobs", lines=lines) == [{"put": 3}]
    return tidings


# Making and finding queues


def test_every_field_of_a_description_can_be_asked_for(tidings: Commands) -> None:
    options = (
        *(
            "--text",
            "things to do",
            "-p",
            "paper=A4",
            "-p",
            "colour=true",
            "--type",
            "sqlite",
            "--persistent",
        ),
        *("--keep", "--priorities", "--priority", "2", "--ageing-s", "60", "--expiry", "--ttl-s", "3600"),
        *(
            "--lease-s-max",
            "7200",
            "--max-messages",
            "10",
            "--max-bytes",
            "100000",
            "--bind",
            "type = 'job'",
            "--passive",
        ),
        *("--redelivery-s", "5", "--deliveries-max", "3", "--compress", "--retry-s", "1,5", "--rate", "9"),
    )
    (told,) = tidings.told("create", "jobs", *options)
    wish = msgspec.convert(told, Description).wish
    assert wish == {
        "name": "jobs",
        "text": "things to do",
        "properties": {"paper": "A4", "colour": True},
        "type": "sqlite",
        "persistent": True,
        "keep": True,
        "priorities": True,
        "priority": 2,
        "ageing_s": 60.0,
        "expiry": True,
        "ttl_s": 3600.0,
        "lease_s_max": 7200.0,
        "max_messages": 10,
        "max_bytes": 100_000,
        "bind": "type = 'job'",
        "passive": True,
        "redelivery_s": 5.0,
        "deliveries_max": 3,
        "retry_s": (1.0, 5.0),
        "rate": 9.0,
        "compress": True,
    }
    assert tidings.told("describe", "jobs") == [told]


def test_no_field_of_a_description_is_without_its_option() -> None:
    assert set(Description.__struct_fields__) - REPORTED <= set(create.__annotations__)


def test_what_is_not_said_is_left_to_the_node(tidings: Commands) -> None:
    (told,) = tidings.told("create", "jobs", "--redelivery-s", "0", "--deliveries-max", "0")
    assert (told["type"], told["keep"], told["redelivery_s"], told["deliveries_max"]) == (
        *("sqlite", True, None, None),
    )
    assert tidings("create", "jobs")[2].startswith(
        "tidings: queue 'jobs': it exists already with another description: redelivery_s"
    )


def test_a_queue_without_a_name_is_called_by_its_id(tidings: Commands) -> None:
    code, output, _ = tidings("create", "--volatile")
    (told,) = tidings.told("list")
    assert (code, output) == (0, f"queue {told['id']} is ready\n")


def test_the_list_is_a_table_of_those_that_agree(jobs: Commands) -> None:
    jobs.told("create", "hall", "--text", "the printer in the hall", "-p", "paper=A4", "--bind", "n > 7")
    jobs.told("alias", "printer", "hall")
    _, output, _ = jobs("list")
    head, *rows = (line.split() for line in output.splitlines())
    assert head == ["queue", "type", "messages", "in", "flight", "readers", "about"]
    assert [row[:5] for row in rows] == [
        ["hall", "sqlite", "0", "0", "0"],
        ["jobs", "sqlite", "3", "0", "0"],
        ["printer", "sqlite", "0", "0", "0"],
    ]
    assert " ".join(rows[0][5:]) == "the printer in the hall, takes n > 7, paper=A4"
    assert " ".join(rows[2][5:]) == "another name of hall"
    assert [one["name"] for one in jobs.told("list", "-p", "paper=A4")] == ["hall", "printer"]
    assert [one["name"] for one in jobs.told("list", "jobs")] == ["jobs"]
    assert jobs("list", "--text", "attic") == (0, "", "no queue agrees\n")


def test_queues_are_listed_by_how_they_work(tidings: Commands) -> None:
    tidings("create", "one", "--priorities", "--max-messages", "5")
    tidings("create", "two", "--volatile", "--expiry")

    def names(*options: str) -> list[str]:
        return [one["name"] for one in tidings.told("list", *options) if one["name"] in ("one", "two")]

    assert names("--priorities") == names("--max-messages", "5") == names("--no-expiry") == ["one"]
    assert names("--volatile") == names("--type", "volatile", "--max-messages", "0") == ["two"]
    assert names("--id", tidings.told("list", "two")[0]["id"]) == ["two"]
    assert tidings("list", "--priorities", "--expiry") == (0, "", "no queue agrees\n")


def test_a_node_without_queues_says_so(tidings: Commands) -> None:
    assert tidings("list") == (0, "", "no queues\n")
    assert "this node has none, 'tidings queue create' makes one" in tidings("get", "jobs")[2]


def test_a_description_is_shown_a_field_a_line(jobs: Commands) -> None:
    code, output, _ = jobs("describe", "jobs")
    facts = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert code == 0
    assert set(facts) == set(Description.__struct_fields__)
    assert (facts["persistent"], facts["messages"], facts["bind"]) == ("yes", "3", "–")
    assert (facts["redelivery_s"], facts["text"]) == ("60", "''")


def test_a_further_name_stands_for_the_queue_and_goes_alone(jobs: Commands) -> None:
    assert jobs("alias", "tasks", "jobs") == (0, "tasks is another name of jobs\n", "")
    assert jobs.numbers("get", "tasks") == [1]
    assert jobs("delete", "tasks") == (0, "deleted tasks\n", "")
    assert jobs.numbers("read", "jobs", "--all") == [2, 3]


def test_a_queue_with_messages_is_deleted_when_that_is_confirmed(jobs: Commands) -> None:
    code, _, errors = jobs("delete", "jobs", lines="n\n")
    assert code == 1
    assert errors.startswith("Delete jobs with 3 messages? [y/N]")
    assert jobs("delete", "jobs", lines="y\n")[0] == 0
    assert jobs.told("list") == []


def test_messages_are_thrown_away_when_that_is_confirmed(jobs: Commands) -> None:
    code, _, errors = jobs("purge", "jobs", "--where", "n > 1")
    assert code == 1
    assert errors.startswith("Throw away the messages of jobs that match? [y/N]")
    assert jobs("purge", "jobs", "--where", "n > 1", lines="y\n")[1].endswith("threw away 2 messages\n")
    assert "Throw away 1 message of jobs?" in jobs("purge", "jobs", lines="y\n")[2]
    assert jobs.told("purge", "jobs", "--yes") == [{"purged": 0}]


# Messages


def test_what_is_put_is_got_in_its_order(tidings: Commands) -> None:
    tidings.told("create", "jobs", "--priorities")
    assert tidings("put", "jobs", "job", "n=1", "note=two words") == (0, "put 1\n", "")
    tidings.told("put", "jobs", "job", "n=2", "priority=9")
    _, output, _ = tidings("get", "jobs", "--count", "2")
    assert [line.split(" ", 1)[1] for line in output.splitlines()] == ["job n=2", "job n=1 note='two words'"]
    assert tidings("get", "jobs") == (1, "", "tidings: queue 'jobs': no matching message\n")


def test_fewer_than_wanted_are_printed_and_told_by_the_exit_code(jobs: Commands) -> None:
    code, output, errors = jobs("get", "jobs", "--count", "5", "--timeout", "0.01", "--where", "n < 3")
    assert (code, output.count("job n=")) == (1, 2)
    assert errors == "tidings: queue 'jobs': no matching message came within 0.01 s\n"


def test_reading_leaves_messages_where_they_are(jobs: Commands) -> None:
    assert jobs.numbers("read", "jobs", "--where", "n > 1") == [2]
    assert jobs.numbers("read", "jobs", "--all") == [1, 2, 3]
    assert jobs.numbers("get", "jobs", "--all", "--where", "n <> 2") == [1, 3]
    assert jobs.numbers("get", "jobs", "--all") == [2]
    assert jobs.numbers("get", "jobs", "--all") == []
    assert jobs("read", "jobs")[0] == 1


def test_all_are_got_page_by_page(tidings: Commands) -> None:
    tidings.told("create", "many")
    assert tidings.told("put", "many", "job", "n=1", "--count", "250") == [{"put": 250}]
    assert len(tidings.numbers("get", "many", "--all")) == 250
    assert tidings.told("describe", "many")[0]["messages"] == 0


def test_what_is_got_as_json_can_be_put_again(jobs: Commands) -> None:
    jobs.told("create", "others")
    jobs.told("put", "jobs", "photo", "n=4", "body=a picture")
    before = jobs("get", "jobs", "--all", "--json")[1]
    jobs.told("put", "others", lines=before)
    events = jobs.told("read", "others", "--all")
    assert [{**event, "received": ""} for event in events] == [
        {**json.loads(line), "received": ""} for line in before.splitlines()
    ]
    assert events[3]["body"] == "a picture"


def test_the_bytes_of_a_file_are_a_body(tidings: Commands, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\x00")
    tidings.told("create", "jobs")
    tidings.told("put", "jobs", "photo", f"body=@{tmp_path}/picture")
    assert tidings.told("read", "jobs")[0]["body_base64"] == "/wA="
    code, _, errors = tidings("put", "jobs", "photo", f"body=@{tmp_path}/none")
    assert (code, errors) == (2, f"tidings: body: {tmp_path}/none can't be read: No such file or directory\n")


def test_a_line_that_is_no_event_is_passed_over(tidings: Commands) -> None:
    tidings.told("create", "jobs")
    code, output, errors = tidings("put", "jobs", lines='nonsense\n{"type": "job"}\n')
    assert (code, output) == (2, "put 1\n")
    assert errors.startswith("line 1: ")


def test_a_full_queue_says_how_many_it_has_taken(tidings: Commands) -> None:
    tidings.told("create", "jobs", "--max-messages", "3")
    tidings.told("put", "jobs", "job")
    code, output, errors = tidings("put", "jobs", "job", "--count", "5")
    assert (code, output) == (2, "")
    assert errors == ("tidings: queue 'jobs': it holds 3 of at most 3 messages; 2 put before that\n")


def test_headers_are_a_table_without_bodies(jobs: Commands) -> None:
    jobs.told("put", "jobs", "photo", "body=secret", "priority=7", "--name", "camera")
    _, output, _ = jobs("headers", "jobs", "--where", "type = 'photo' OR n = 1")
    head, first, second = (line.split() for line in output.splitlines())
    assert head == ["age", "priority", "type", "attributes", "from", "id"]
    assert (first[2:6], second[2:5]) == (["4", "job", "n=1", "–"], ["7", "photo", "camera"])
    assert "secret" not in jobs("headers", "jobs", "--json")[1]
    assert jobs("headers", "jobs", "--where", "n = 9") == (0, "", "no matching message in jobs\n")


def test_a_watch_shows_what_is_put_and_takes_nothing(jobs: Commands) -> None:
    watcher = jobs.begin("watch", "jobs", "--where", "n > 4", "--count", "1")
    assert watcher.stderr is not None
    assert watcher.stderr.readline() == "watching jobs; Ctrl-C ends\n"
    jobs.told("put", "jobs", "job", "n=4")
    jobs.told("put", "jobs", "job", "n=5")
    output, _ = watcher.communicate(timeout=ANSWER_S_MAX)
    assert output.endswith("job n=5\n")
    assert jobs.numbers("read", "jobs", "--all") == [1, 2, 3, 4, 5]


def test_waiting_ends_with_what_comes_or_with_ctrl_c(tidings: Commands) -> None:
    tidings.told("create", "jobs")
    reader = tidings.begin("get", "jobs", "--wait")
    wait_readers(tidings, 1)
    tidings.told("put", "jobs", "job", "n=1")
    assert reader.communicate(timeout=ANSWER_S_MAX)[0].endswith("job n=1\n")
    reader = tidings.begin("get", "jobs", "--wait")
    wait_readers(tidings, 1)
    reader.send_signal(signal.SIGINT)
    output, errors = reader.communicate(timeout=ANSWER_S_MAX)
    assert (reader.returncode, output, errors) == (130, "", "")


def wait_readers(tidings: Commands, count: int) -> None:
    while tidings.told("describe", "jobs")[0]["waiting"] != count:
        pass


def test_what_could_not_be_printed_is_still_there(jobs: Commands) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-c", "from tidings.cli import main; main()", "queue", "get", "jobs", "--all"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **jobs.environment},
        stdout=writer,
        check=False,
    )
    os.close(writer)
    assert process.returncode == 141
    assert jobs.numbers("get", "jobs", "--all") == [1, 2, 3]


def test_on_a_terminal_it_is_said_that_lines_are_awaited(tidings: Commands) -> None:
    tidings.told("create", "jobs")
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from tidings.cli import main; main()", "queue", "put", "jobs"],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **tidings.environment},
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(terminal)
    assert process.stderr is not None
    assert process.stderr.readline() == "events as lines of JSON, please; Ctrl-D ends\n"
    os.write(reader, b'{"type": "job"}\n\x04')
    assert process.communicate(timeout=ANSWER_S_MAX)[0] == "put 1\n"
    os.close(reader)


@given(st.text(), st.binary())
def test_no_attribute_breaks_its_line(text: str, data: bytes) -> None:
    assert values_text({"text": text, "data": data}).isprintable()
    assert shown(text).isprintable()


# Work


def test_a_command_gets_each_event_and_acknowledges_by_its_exit_code(jobs: Commands, tmp_path: Path) -> None:
    command = f"cat >> {tmp_path}/jobs; echo delivery $TIDINGS_DELIVERIES"
    code, output, errors = jobs.apart("work", "jobs", command, "--timeout", "0")
    assert (code, output) == (0, "delivery 1\n" * 3)
    assert errors == "working on jobs; Ctrl-C ends\n3 done\n"
    lines = (tmp_path / "jobs").read_text().splitlines()
    assert [json.loads(line)["attributes"]["n"] for line in lines] == [1, 2, 3]
    assert jobs.told("describe", "jobs")[0]["messages"] == 0


def test_a_command_that_fails_gives_the_message_back(jobs: Commands) -> None:
    code, output, errors = jobs.apart("work", "jobs", "exit 7", "--count", "2", "--pause", "0")
    assert (code, output) == (1, "")
    said = errors.splitlines()
    assert [line.split(": ")[0] for line in said[1:3]] == ["given back, exit code 7"] * 2
    assert said[3] == "0 done, 2 given back"
    _, output, _ = jobs("get", "jobs")
    assert output.endswith("job n=1 (delivery 3)\n")


def test_commands_run_side_by_side(jobs: Commands, tmp_path: Path) -> None:
    command = f"touch {tmp_path}/$$; until [ $(ls {tmp_path} | wc -l) -ge 3 ]; do :; done"
    code, _, errors = jobs.apart("work", "jobs", command, "--count", "3", "--concurrency", "3")
    assert (code, errors.splitlines()[-1]) == (0, "3 done")


def test_work_as_json_tells_what_becomes_of_each_message(jobs: Commands) -> None:
    command = "echo hello; read event; case $event in *'\"n\":2'*) exit 9; esac"
    code, output, errors = jobs.apart("work", "jobs", command, "--reject-on", "9", "--timeout", "0", "--json")
    reports = [json.loads(line) for line in output.splitlines()]
    said = ["working on jobs; Ctrl-C ends", *["hello"] * 3, "2 done, 1 rejected"]
    assert (code, errors.splitlines()) == (1, said)
    assert [(one["outcome"], one["event"]["attributes"]["n"], one["exit"]) for one in reports] == [
        ("taken", 1, None),
        ("done", 1, 0),
        ("taken", 2, None),
        ("rejected", 2, 9),
        ("taken", 3, None),
        ("done", 3, 0),
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_that_is_stopped_gives_its_message_back_and_ends_its_command(
    jobs: Commands, number: signal.Signals, code: int
) -> None:
    worker = jobs.begin("work", "jobs", "echo begun; sleep 1000", "--where", "n = 2")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "begun\n"
    worker.send_signal(number)
    output, errors = worker.communicate(timeout=ANSWER_S_MAX)  # would hang if the command lived on
    assert (worker.returncode, output) == (code, "")
    assert errors == "working on jobs; Ctrl-C ends\n0 done\n"
    assert jobs.numbers("read", "jobs", "--all") == [1, 2, 3]


def test_a_worker_that_is_not_to_wait_ends_with_its_node(start: Start) -> None:
    node = start("--port", "0")
    commands = Commands("queue", node.address())
    commands.told("create", "jobs")
    worker = commands.begin("work", "jobs", "true", "--no-reconnect")
    wait_readers(commands, 1)
    node.stop()
    output, errors = worker.communicate(timeout=ANSWER_S_MAX)
    assert (worker.returncode, output) == (2, "")
    assert errors.splitlines()[:2] == ["working on jobs; Ctrl-C ends", "0 done"]
    assert errors.splitlines()[2].startswith("tidings: ")


def test_a_command_that_takes_too_long_is_late(tidings: Commands) -> None:
    tidings.told("create", "jobs", "--redelivery-s", "0.05", "--deliveries-max", "1")
    tidings.told("put", "jobs", "job")
    node = f"{sys.executable} -c 'from tidings.cli import main; main()' queue"
    waits = f"until {node} dead --json | grep -q job; do :; done"  # by then the node has taken it back
    code, _, errors = tidings.apart("work", "jobs", waits, "--count", "1")
    assert code == 1
    assert errors.splitlines()[-1] == "0 done, 1 late"


# Dead letters


def test_dead_letters_are_shown_with_their_reason_and_put_back(jobs: Commands) -> None:
    assert jobs("dead") == (0, "", "no dead letters\n")
    jobs.apart("work", "jobs", "exit 9", "--reject-on", "9", "--count", "2")
    _, output, _ = jobs("dead")
    head, *rows = (line.split() for line in output.splitlines())
    assert head == ["queue", "reason", "deliveries", "age", "type", "attributes"]
    assert [row[:5] for row in rows] == [["jobs", "exit", "code", "9", "1"]] * 2
    assert [row[-2:] for row in rows] == [["job", "n=1"], ["job", "n=2"]]
    assert jobs.told("dead", "--where", "n = 2")[0]["attributes"]["dead.reason"] == "exit code 9"
    assert jobs("dead", "--where", "n = 9") == (0, "", "no dead letters that match\n")
    assert jobs("dead", "replay", "--where", "n = 2") == (0, "replayed 1 dead letter\n", "")
    jobs.told("create", "others")
    assert jobs.told("dead", "replay", "--queue", "others") == [{"replayed": 1, "left": 0}]
    assert (jobs.numbers("get", "jobs", "--all"), jobs.numbers("get", "others")) == ([3, 2], [1])
    assert jobs("dead") == (0, "", "no dead letters\n")


def test_dead_letters_are_thrown_away_when_that_is_confirmed(jobs: Commands) -> None:
    jobs.apart("work", "jobs", "exit 9", "--reject-on", "9", "--timeout", "0")
    code, _, errors = jobs("dead", "purge", "--where", "n = 1")
    assert code == 1
    assert errors.startswith("Throw away 1 dead letter? [y/N]")
    assert jobs("dead", "purge", "--where", "n = 1", lines="y\n")[1].endswith("threw away 1 dead letter\n")
    assert jobs.told("dead", "purge", "--yes") == [{"purged": 2}]
    assert jobs("dead", "purge") == (0, "threw away 0 dead letters\n", "")


def test_dead_letters_of_a_queue_that_is_gone_need_another(jobs: Commands) -> None:
    jobs.apart("work", "jobs", "exit 9", "--reject-on", "9", "--count", "1")
    jobs.told("delete", "jobs", "--yes")
    assert jobs("dead", "replay") == (
        *(0, "replayed 0 dead letters\n"),
        "left: 1 dead letter of queues that are gone; --queue names another\n",
    )
    jobs.told("create", "others")
    assert jobs.told("dead", "replay", "--queue", "others") == [{"replayed": 1, "left": 0}]


def test_where_there_is_little_room_texts_are_cut_off_and_numbers_are_not() -> None:
    table = new_table("queue", "messages", "about", numbers=("messages",), wide=("queue", "about"))
    add_row(table, "jobs", "1,234", "all that is to be done [today]" * 3)
    console = Console(width=40, file=io.StringIO())
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    head, row = console.file.getvalue().splitlines()
    assert head.split() == ["queue", "messages", "about"]
    assert row.split()[:2] == ["jobs", "1,234"]
    assert row.endswith("…")


# Mistakes


def test_messages_are_put_for_later_and_into_groups(tidings: Commands) -> None:
    (made,) = tidings.told("create", "later", "--retry-s", "1,5,30", "--rate", "50")
    assert (made["retry_s"], made["deliveries_max"], made["rate"]) == ([1.0, 5.0, 30.0], 4, 50.0)
    tidings("put", "later", "job", "n=1", "--delay-s", "3600")
    tidings("put", "later", "job", "n=2", "--not-before", "2100-05-01T08:30:00Z", "--group", "a")
    tidings("put", "later", "job", "n=3", "--group", "a", "--count", "2")
    (told,) = tidings.told("describe", "later")
    assert (told["messages"], told["delayed"], told["groups"]) == (2, 1, 1)
    _, output, _ = tidings("describe", "later")
    assert "retry_s         1, 5, 30" in output
    assert "1 delayed, 1 groups" in tidings("list", "later")[1]
    for wrong in (("--not-before", "soon"), ("--not-before", "2030-05-01T08:30"), ("--delay-s", "1e12")):
        code, _, error = tidings("put", "later", "job", *wrong)
        assert code == 2
        assert wrong[0][2:5] in error
    assert tidings("create", "other", "--retry-s", "1;5")[0] == 2


@pytest.mark.parametrize("command", ["describe", "delete", "get", "read", "headers", "purge", "put", "watch"])
def test_of_a_queue_that_is_not_there_the_close_ones_are_named(jobs: Commands, command: str) -> None:
    assert jobs(command, "jbos") == (
        *(2, "", "tidings: queue 'jbos': there is no such queue; did you mean jobs?\n"),
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("alias", "a", "nothing"), "queue 'nothing': there is no such queue"),
        (("alias", "jobs", "jobs"), "queue 'jobs': it exists already"),
        (("create", "a@b"), "a name has no @"),
        (("create", "a", "--type", "heap"), "there is no type 'heap'"),
        (("create", "a", "--priority", "3"), "priority is for queues with"),
        (("create", "a", "--property", "paper"), "'paper' is not NAME=VALUE"),
        (("put", "jobs", "job", "n"), "'n' is not NAME=VALUE"),
        (("put", "jobs", "job", "priority=10"), "10 is not within 0..9"),
        (("get", "jobs", "--all", "--wait"), "--all does not wait"),
        (("get", "jobs", "--all", "--count", "2"), "--all and --count"),
        (("read", "jobs", "--all", "--timeout", "1"), "--all does not wait"),
        (("work", "jbos", "true"), "did you mean jobs?"),
        (("dead", "--where", "n = 1", "purge", "--yes"), "--where stands behind purge"),
        (("dead", "replay", "--queue", "jbos"), "did you mean jobs?"),
    ],
)
def test_a_mistake_is_one_line_and_no_traceback(
    jobs: Commands, arguments: tuple[str, ...], problem: str
) -> None:
    code, output, errors = jobs(*arguments)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("tidings: ")
    assert problem in errors


@pytest.mark.parametrize("command", [("get", "jobs"), ("purge", "jobs"), ("dead",), ("work", "jobs", "true")])
def test_a_mistake_in_a_filter_is_shown_with_its_place(tidings: Commands, command: tuple[str, ...]) -> None:
    code, _, errors = tidings(*command, "--where", "n => 40")
    assert code == 2
    assert "line 1, column 3" in errors


@pytest.mark.parametrize("command", [("dead",), ("purge", "jobs", "--yes")])
def test_notes_on_a_filter_are_printed_on_standard_error(jobs: Commands, command: tuple[str, ...]) -> None:
    code, _, errors = jobs(*command, "--where", "n BETWEEN 5 AND 1")
    assert code == 0
    assert errors.startswith("note: n BETWEEN 5 AND 1: 5 is greater than 1; write BETWEEN 1 AND 5\n")


def test_where_no_node_is_a_command_says_so(tmp_path: Path) -> None:
    code, _, errors = Commands("queue", f"tidings+unix://{tmp_path}/none")("list")
    assert code == 2
    assert "start one with 'tidings node'" in errors
