"""Nodes that join by one line: real nodes, real certificates, real kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli.commands import run_command
from msgspec.structs import replace
from node.peers import ANSWER_S_MAX, SOURCE, Process, Start, inside, run, running
from node.test_peering import wait_state
from ports import free_port
from security.places import SECRET, cheap

import tidings
from tidings.errors import ConfigError, NotAllowed, Refused, StoreError, UserError
from tidings.node.config import NodeConfig
from tidings.node.joining import join
from tidings.node.server import Node
from tidings.node.settings import as_toml, load
from tidings.security.directory import SecurityDirectory
from tidings.security.invitation import read_line
from tidings.security.known_nodes import remember
from tidings.security.provision import Admin, add_allowance, allowance, make_security, report_on

YEAR_S = 365 * 86_400.0


def made(path: Path, name: str = "kitchen") -> SecurityDirectory:
    make_security(path, name, ["localhost"], Admin("admin", cheap()), os.urandom, datetime.now(UTC))
    return SecurityDirectory(path)


@pytest.fixture
def home(tmp_path: Path) -> SecurityDirectory:
    return made(tmp_path / "sec")


@contextlib.asynccontextmanager
async def kitchen(home: SecurityDirectory) -> AsyncIterator[tuple[Node, tidings.Bus]]:
    """A node with security, and its administrator."""
    async with running(security=str(home.path)) as node:
        credentials = {"user": "admin", "password": SECRET, "ca": home.ca}
        async with tidings.connect(node.addresses[0], **credentials) as bus:
            yield node, bus


async def joins(place: Path, line: str, clock: Any = time.time, **settings: Any) -> str | None:
    config = NodeConfig(**{"dir": str(place), "port": 0, **settings})
    return await asyncio.to_thread(join, config, line, clock)


async def fails(place: Path, line: str, clock: Any = time.time, **settings: Any) -> str:
    """Why it can't join; nothing of the attempt is left."""
    with pytest.raises(UserError) as caught:
        await joins(place, line, clock, **settings)
    assert read_line(line).secret not in str(caught.value)
    assert not (place / "joining").exists()
    return str(caught.value)


# Joining


def test_a_node_joins_by_one_line_and_both_know_each_other(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (node, bus):
            made = await bus.invite("shed")
            port = free_port()
            told = await joins(tmp_path / "shed", made.line, port=port)
            assert told == f"joined kitchen at {node.addresses[0]} as shed"
            settings = load(flags={"dir": str(tmp_path / "shed"), "port": port, "compiled": False})
            shed = Node(settings)
            await shed.start()
            try:
                assert shed.name == "shed"
                here, there = inside(node), inside(shed)
                await here.hello()
                await there.hello()
                await wait_state(there, "kitchen", "there")
                await wait_state(here, "shed", "there")
                here.close()
                there.close()
            finally:
                await shed.close()

    run(work())


def test_the_directory_of_a_node_that_has_joined_is_in_order(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            await joins(tmp_path / "shed", (await bus.invite("shed", hosts=["10.0.0.8"])).line)
        report = report_on(SecurityDirectory(tmp_path / "shed" / "security"), datetime.now(UTC))
        assert report.node.hosts[0] == "10.0.0.8"
        assert not report.has_authority_key
        assert [(user.user, user.node) for user in report.users] == [("kitchen", True)]

    run(work())


def test_what_joining_has_written_is_read_at_each_start_and_shown(
    home: SecurityDirectory, tmp_path: Path
) -> None:
    async def work() -> None:
        async with kitchen(home) as (node, bus):
            await joins(tmp_path / "shed", (await bus.invite("shed")).line)
            settings = load(flags={"dir": str(tmp_path / "shed")})
            assert settings.security == str(tmp_path / "shed" / "security")
            assert f'\npeers = "kitchen={node.addresses[0]}"\n' in as_toml(settings)

    run(work())


def test_peers_of_the_settings_come_first_and_are_stronger(home: SecurityDirectory) -> None:
    remember(home, "shed", ("tidings+tls://10.0.0.8:7300", "tidings+tls://shed.example:7300"))
    remember(home, "attic", ("tidings+tls://10.0.0.9:7300",))
    remember(home, "cellar", ())
    peers = "zoo=tidings+tls://10.0.0.1:7300,attic=tidings+tls://10.0.0.2:7300"
    settings = load(flags={"security": str(home.path), "peers": peers})
    assert settings.peers == (
        "zoo=tidings+tls://10.0.0.1:7300, attic=tidings+tls://10.0.0.2:7300, shed=tidings+tls://10.0.0.8:7300"
    )


def test_a_used_line_does_no_harm_where_it_was_used_and_no_good_elsewhere(
    home: SecurityDirectory, tmp_path: Path
) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            line = (await bus.invite("shed")).line
            await joins(tmp_path / "shed", line)
            assert await joins(tmp_path / "shed", line) is None
            assert "was used already; make another one" in await fails(tmp_path / "other", line)
        assert await joins(tmp_path / "shed", line) is None  # nobody is asked

    run(work())


def test_an_invitation_outlives_a_restart_of_the_node(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with running(security=str(home.path)) as node:
            port = int(node.addresses[0].rpartition(":")[2])
            async with tidings.connect(node.addresses[0], user="admin", password=SECRET, ca=home.ca) as bus:
                line = (await bus.invite("shed")).line
        async with running(security=str(home.path), port=port):
            assert await joins(tmp_path / "shed", line) is not None
        async with running(security=str(home.path), port=port):
            assert "was used already" in await fails(tmp_path / "other", line)

    run(work())


# Refused


def test_revoked_expired_and_altered_invitations_are_refused(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            line = (await bus.invite("shed")).line
            await bus.revoke_invitation("shed")
            assert "'shed' was revoked" in await fails(tmp_path / "shed", line)
            short = (await bus.invite("attic", for_s=1e-3)).line
            assert "'attic' has expired" in await fails(tmp_path / "attic", short)
            good = read_line((await bus.invite("cellar")).line)
            wrong = str(replace(good, secret=good.secret[::-1]))
            assert "is not known here" in await fails(tmp_path / "cellar", wrong)
            other = str(replace(good, name="roof"))
            assert "is for 'cellar', not for 'roof'" in await fails(tmp_path / "roof", other)
            assert await joins(tmp_path / "cellar", str(good)) is not None

    run(work())


def test_a_line_that_was_cut_asks_nobody(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="copy the whole line"):
        join(NodeConfig(dir=str(tmp_path / "shed")), "tdi_AJVSiE")
    assert not (tmp_path / "shed").exists()


def test_a_node_of_another_authority_in_between_gets_nothing(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        stranger = made(tmp_path / "stranger")  # of the same name
        async with kitchen(home) as (_, bus), running(security=str(stranger.path)) as other:
            good = read_line((await bus.invite("shed")).line)
            line = str(replace(good, addresses=other.addresses))
            told = await fails(tmp_path / "shed", line)
            assert "certified by another authority than the invitation's" in told
            assert "someone may be in between" in told
            assert other.driver.broker.tallies["connections", ""] == 1  # which was looked at
            assert ("logins_denied", "invitation") not in other.driver.broker.tallies
            both = str(replace(good, addresses=[*other.addresses, *good.addresses]))
            assert await joins(tmp_path / "shed", both) is not None

    run(work())


def test_another_node_of_the_same_authority_is_not_told_the_secret(
    home: SecurityDirectory, tmp_path: Path
) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            await joins(tmp_path / "shed", (await bus.invite("shed")).line)
            shed = str(tmp_path / "shed" / "security")
            async with running(security=shed) as other:
                good = read_line((await bus.invite("attic")).line)
                told = await fails(tmp_path / "attic", str(replace(good, addresses=other.addresses)))
                assert "the node there is 'shed', not 'kitchen'" in told
                assert not [key for key in other.driver.broker.tallies if key[0] == "logins_denied"]

    run(work())


@pytest.mark.parametrize("off_s", [-YEAR_S, 20 * YEAR_S])
def test_a_clock_by_which_no_certificate_is_valid_is_said_with_both_times(
    home: SecurityDirectory, tmp_path: Path, off_s: float
) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            line = (await bus.invite("shed")).line
            wrong = time.time() + off_s
            told = await fails(tmp_path / "shed", line, lambda: wrong)
            year = datetime.fromtimestamp(wrong, UTC).year
            assert f"the clock of this machine says {year}-" in told
            assert f"is valid from {datetime.now(UTC).year}-" in told
            assert told.endswith("set the clock, then join again")
            assert await joins(tmp_path / "shed", line) is not None  # it was not used up

    run(work())


def test_a_clock_that_is_a_year_ahead_is_said_with_both_times(
    home: SecurityDirectory, tmp_path: Path
) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            line = (await bus.invite("shed")).line
            told = await fails(tmp_path / "shed", line, lambda: time.time() + YEAR_S)
            years = [datetime.fromtimestamp(time.time() + off, UTC).year for off in (YEAR_S, 0.0)]
            assert f"that of shed says {years[0]}-" in told
            assert f"that of kitchen {years[1]}-" in told
            assert await joins(tmp_path / "shed", line) is not None

    run(work())


def test_settings_that_do_not_go_with_joining_are_refused(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            line = (await bus.invite("shed")).line
            place = tmp_path / "shed"
            assert "'attic' is not whom the invitation is for: 'shed'" in await fails(
                place, line, name="attic"
            )
            assert "leave --security out" in await fails(place, line, security=str(home.path))
            assert "give a directory: --dir DIR" in await fails(place, line, dir=None)
            foreign = tmp_path / "foreign"
            foreign.mkdir()
            (foreign / "letter").touch()
            with pytest.raises(StoreError, match="'letter' lies in it"):
                await joins(foreign, line)
            assert await joins(place, line, name="shed") is not None

    run(work())


def test_a_directory_that_is_secured_already_is_refused(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            made(tmp_path / "shed" / "security", "attic")
            told = await fails(tmp_path / "shed", (await bus.invite("shed")).line)
            assert "is there already, for the node 'attic', of another authority" in told
            assert "start without --join, or give another --dir" in told

    run(work())


def test_where_nobody_answers_each_address_is_named(home: SecurityDirectory, tmp_path: Path) -> None:
    async def work() -> None:
        async with kitchen(home) as (_, bus):
            good = read_line((await bus.invite("shed")).line)
            nowhere = [f"tidings+tls://127.0.0.1:{free_port()}" for _ in range(2)]
            told = await fails(tmp_path / "shed", str(replace(good, addresses=nowhere)))
            assert all(address in told for address in nowhere)

    run(work())


def test_an_invitation_takes_the_right_to_manage_everything(home: SecurityDirectory) -> None:
    token = home.path / "device.token"
    add_allowance(home, f'{allowance(["device"], ["manage"])}queues = ["*"]\n')

    async def work() -> None:
        async with (
            running(security=str(home.path)) as node,
            tidings.connect(node.addresses[0], token=token, ca=home.ca) as bus,
        ):
            for ask in (bus.invite("shed"), bus.invitations(), bus.revoke_invitation("shed")):
                with pytest.raises(NotAllowed, match="takes the right to manage everything"):
                    await ask
        assert not home.invitations.exists()

    run(work())


def test_joining_takes_an_invitation(home: SecurityDirectory) -> None:
    async def work() -> None:
        async with running(security=str(home.path)) as node:
            owner = inside(node)
            await owner.hello()
            reply = await owner.ask("security.join", name="shed", request="", time=0.0)
            assert reply.error is not None
            assert reply.error.code == "not-allowed"
            owner.close()

    run(work())


def test_a_node_without_security_says_what_to_do() -> None:
    async def work() -> None:
        async with running() as node, tidings.connect(node.addresses[0]) as bus:
            with pytest.raises(Refused, match=r"'tidings security init DIR'.*--security DIR"):
                await bus.invite("shed")

    run(work())


def test_whoever_joins_may_do_nothing_else(home: SecurityDirectory) -> None:
    async def work() -> None:
        async with kitchen(home) as (node, bus):
            line = read_line((await bus.invite("shed")).line)
            credentials = {"user": f"invitation:{line.id}", "password": line.secret, "ca": home.ca}
            async with tidings.connect(node.addresses[0], **credentials) as invited:
                with pytest.raises(NotAllowed):
                    await invited.publish("a", delivery="reliable")
                with pytest.raises(NotAllowed):
                    await invited.status()
                with pytest.raises(NotAllowed):
                    await invited.advertisements()
                with pytest.raises(NotAllowed):
                    async with invited.subscribe("a = 1"):
                        pass
                with pytest.raises(NotAllowed):
                    await invited.lookup()

    run(work())


def test_by_one_invitation_a_client_may_ask_so_often_and_no_more(
    home: SecurityDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidings.security.inviting.JOINS_MAX", 3)

    async def work() -> None:
        async with kitchen(home) as (node, bus):
            line = read_line((await bus.invite("shed")).line)
            credentials = {"user": f"invitation:{line.id}", "password": line.secret, "ca": home.ca}
            async with tidings.connect(node.addresses[0], **credentials) as invited:
                told = []
                for _ in range(5):
                    asked = {"name": "shed", "request": "none", "time": time.time()}
                    with pytest.raises(Refused) as caught:
                        await invited._link.call("security.join", asked, None)
                    told.append(caught.value.code)
            assert told == ["protocol"] * 3 + ["limit"] * 2

    run(work())


# Commands, and kills


def listing(address: str, *arguments: str) -> list[dict[str, Any]]:
    code, output, errors = run_command(*arguments, "--json", environment={"TIDINGS_NODE": address})
    assert code == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def wait_there(address: str, name: str) -> None:
    while not any(
        one["name"] == name and one["state"] == "there" for one in listing(address, "peer", "list")
    ):
        pass


def invited(address: str, name: str, *options: str) -> str:
    code, output, errors = run_command(
        "security", "invite", name, *options, environment={"TIDINGS_NODE": address}
    )
    assert code == 0, errors
    assert output.count("\n") == 1
    return output.strip()


@pytest.fixture
def address(start: Start, home: SecurityDirectory, tmp_path: Path) -> str:
    """The Unix socket of a node that others can join."""
    socket = tmp_path / "kitchen.sock"
    node = start(
        *("--dir", str(tmp_path / "data"), "--security", str(home.path)),
        *("--port", "0", "--unix", str(socket)),
    )
    node.address()
    node.line()
    return f"tidings+unix://{socket}"


def test_a_node_is_started_by_one_line_and_again_without_it(
    start: Start, address: str, tmp_path: Path
) -> None:
    line, port = invited(address, "shed"), free_port()
    socket = f"tidings+unix://{tmp_path / 'shed.sock'}"
    flags = ("--dir", str(tmp_path / "shed"), "--port", str(port), "--unix", str(tmp_path / "shed.sock"))

    def served(node: Process) -> None:
        node.address()
        node.line()
        wait_there(socket, "kitchen")
        wait_there(address, "shed")

    node = start("--join", line, *flags)
    served(node)
    assert [(one["name"], one["state"]) for one in listing(address, "security", "invitations")] == [
        ("shed", "used")
    ]
    code, errors = node.stop()
    assert code == 0
    assert line not in errors
    for more in ((), ("--join", line)):
        node = start(*more, *flags)
        served(node)
        assert node.stop()[0] == 0


def test_the_line_may_be_in_the_environment_and_is_never_shown(
    start: Start, address: str, tmp_path: Path
) -> None:
    line = invited(address, "shed", "--for", "30min", "--host", "10.0.0.8")
    flags = ("--dir", str(tmp_path / "shed"), "--port", "0")
    code, output, errors = run_command("node", "--show-config", *flags, environment={"TIDINGS_JOIN": line})
    assert code == 0
    assert line not in output + errors
    assert read_line(line).secret not in output + errors
    node = start(*flags, environment={"TIDINGS_JOIN": line})
    node.address()
    environment = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
    assert line.encode() not in environment
    _, errors = node.stop()
    assert "joined kitchen at" in errors
    assert line not in errors


def test_invitations_are_listed_and_revoked(address: str) -> None:
    invited(address, "shed")
    (one,) = listing(address, "security", "invitations")
    assert (one["name"], one["state"], one["hosts"]) == ("shed", "open", ["shed"])
    environment = {"TIDINGS_NODE": address}
    code, output, _ = run_command("security", "invitations", "--revoke", "shed", environment=environment)
    assert (code, output) == (0, "revoked the invitation of shed\n")
    code, output, _ = run_command("security", "invitations", environment=environment)
    assert output.splitlines()[1].split()[:2] == ["shed", "revoked"]


def test_a_join_that_was_not_completed_is_said_at_a_start_without_it(tmp_path: Path) -> None:
    (tmp_path / "shed" / "joining").mkdir(parents=True)
    code, _, errors = run_command("node", "--dir", str(tmp_path / "shed"))
    assert code == 2
    assert "joining: a join was not completed; repeat it with --join LINE, or remove this folder" in errors


KILLED = """
import json, os, signal, sys
from tidings.errors import TidingsError
from tidings.node.config import NodeConfig
from tidings.node.joining import join

base, lines = json.load(sys.stdin)
EVENTS = {"os.rename", "os.mkdir", "socket.connect"}

def attempt(line, place, at):
    child = os.fork()
    if not child:
        left = [at]
        def hook(event, arguments):
            if event in EVENTS:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        if at:
            sys.addaudithook(hook)
        try:
            join(NodeConfig(dir=place, port=0), line)
        except TidingsError as error:
            print(error, file=sys.stderr)
            os._exit(3)
        os._exit(0)
    return os.waitpid(child, 0)[1]

found = []
for number, line in enumerate(lines, 1):
    place = os.path.join(base, f"node-{number}")
    killed, again = attempt(line, place, number), attempt(line, place, 0)
    found.append((killed, again, sorted(os.listdir(place))))
    if killed == 0:
        break
json.dump(found, sys.stdout)
"""


def test_a_node_that_is_killed_at_any_step_of_joining_joins_by_the_same_line(
    address: str, tmp_path: Path
) -> None:
    lines = [invited(address, f"node-{number}") for number in range(1, 21)]
    ran = subprocess.run(
        [sys.executable, "-c", KILLED],
        input=json.dumps([str(tmp_path), lines]),
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=ANSWER_S_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [killed for killed, _, _ in found] == [int(signal.SIGKILL)] * (len(found) - 1) + [0]
    assert len(found) > 10  # directories, key, authority, connections, four files, the last step
    assert {(again, *names) for _, again, names in found} == {(0, "security")}, ran.stderr
    used = [one["name"] for one in listing(address, "security", "invitations") if one["state"] == "used"]
    assert used == [f"node-{number}" for number in range(1, len(found) + 1)]
