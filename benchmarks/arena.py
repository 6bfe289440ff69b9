"""A node with good clients and a hostile one, each a process of its own.

The hostile process has a lower priority than the others: what it takes of the processor by itself is not the
node's doing. What the rest of the machine takes is not kept away, but counted: `starved_s`. With security
there are three users with rules of their own; the hostile one may do what it likes with events and queues of
its own names, and hear what the canary publishes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import canary, fair_gateway, neighbours, peers, steady
from benchmarks.hostile import Load, OutOfTime, Parted, Place, Tally
from benchmarks.load import HOST, Child, Pipe
from benchmarks.wires import MARKER
from tidings.errors import PeerError
from tidings.security.directory import SecurityDirectory, edited
from tidings.security.passwords import Token, hash_token, make_password, make_token
from tidings.security.provision import Admin, add_allowance, make_security

NICE = 10
"""By how much the priority of the hostile process is lower."""
RATE_S = 2.0
"""How long the rate of the node is looked for."""
PREPARE_S_MAX = 60.0
"""How long a hostile client may take to prepare what it then does."""
START_S_MAX = 20.0
"""How long a hostile process may take to be there."""
GRACE_S = 5.0
"""How long a hostile process may take to end beyond its time."""
RULES = f"""
[[allow]]
users = ["canary"]
actions = ["publish", "subscribe"]
where = "type LIKE 'canary.%'"

[[allow]]
users = ["publisher"]
actions = ["publish", "subscribe"]
where = "type = '{MARKER.decode()}'"

[[allow]]
users = ["hostile"]
actions = ["publish"]
where = "type LIKE 'hostile.%'"

[[allow]]
users = ["hostile"]
actions = ["publish", "subscribe"]
where = "type LIKE 'agent.%' AND group_name LIKE 'hostile-%'"

[[allow]]
users = ["hostile"]
actions = ["subscribe"]
where = "type LIKE 'hostile.%' OR type LIKE 'canary.%'"

[[allow]]
users = ["hostile"]
actions = ["put", "get", "manage"]
queues = ["hostile-*"]

[[allow]]
users = ["hostile"]
actions = ["block"]
"""
USERS = ("canary", "publisher", "hostile")

Act = Callable[[Load], None]
Calls = list[tuple[float, float | None]]
"""When each call was made and how long it took; None: there was no answer."""


@dataclass(frozen=True)
class Pace:
    """What the good clients do: the part of the node's rate that is published, how long answers may take."""

    part: float
    answer_s: float
    is_compiled: bool = False  # whether it is waited for the node to use compiled code


@dataclass(frozen=True)
class Stage:
    """What a hostile process is to do: first what is not counted, then what is."""

    prepare: Act | None
    attack: Act
    sizes: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What was seen while a hostile client was at work, and for a while after."""

    longest_s: float  # of the canary's round trips
    unanswered: int  # of them
    longest_store_s: float
    unstored: int
    asked: int
    share: float | None  # of its rate that the publisher has kept, None if it was sent away
    took_s: float  # by the hostile client
    tally: Tally
    memory_before_mb: float
    memory_peak_mb: float
    memory_after_mb: float
    starved_s: float  # how long the node has waited for a processor


class Arena:
    """See the module; made by `arena`."""

    def __init__(self, node: peers.Broker, places: dict[str, Place], pace: Pace) -> None:
        self.node = node
        self._place = places["hostile"]
        self._stack = ExitStack()
        self._hostile: Child | None = None
        self._publisher = self._start(steady.publish, places["publisher"], RATE_S, pace.part)
        self._publisher.receive()
        if pace.is_compiled:
            node.wait_log(peers.COMPILED)
        self._publisher.send("go")
        self.rate: float = self._publisher.receive()
        sing = fair_gateway.sense if places["canary"].sensor_port else canary.sing
        self._canary = self._start(sing, places["canary"], pace.answer_s)
        self._canary.receive()
        self._answer_s = pace.answer_s

    def _start(self, run: Callable[..., None], *arguments: Any) -> Child:
        return self._stack.enter_context(Child(run, *arguments))

    def close(self) -> None:
        """Have all clients end."""
        self._stack.close()

    def run(self, stage: Stage, linger_s: float) -> Outcome:
        """Let a hostile client do its worst, and see what the good ones get meanwhile and after."""
        hostile = self._hostile or self._start(_be_hostile, self._place)
        self._hostile = None
        hostile.send(stage)
        is_ready = _heard(hostile, PREPARE_S_MAX + START_S_MAX) is not None
        before_mb = self._begin()
        began = time.monotonic()
        if is_ready:
            hostile.send("go")
        heard = _heard(hostile, stage.seconds + GRACE_S) if is_ready else None
        time.sleep(linger_s / 2)  # while it is still there
        if heard is None:
            hostile.kill()
        else:
            hostile.send("leave")
            self._hostile = hostile
        time.sleep(linger_s)
        took_s, tally = heard or (stage.seconds, Tally({"killed": 1}))
        return self._look(began, before_mb, took_s, tally)

    def wait_well(self, seconds: float) -> bool:
        """Wait until the canary gets answers; whether it does within so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.node.process.poll() is None:
            now = time.monotonic()
            self._canary.send("tell")
            seen: canary.Seen = self._canary.receive()
            if any(took_s is not None and at > now - 1.0 for at, took_s in seen.asked):
                return True
            time.sleep(canary.EVERY_S)
        return False

    def _begin(self) -> float:
        """Have all count from now on; the memory of the node in MB."""
        Path(f"/proc/{self.node.process.pid}/clear_refs").write_text("5")
        self._canary.send("clear")
        self._publisher.send("tell")
        self._kept()
        self._starved_s = starved_s(self.node)
        return self.node.memory_kb / 1e3

    def _look(self, began: float, before_mb: float, took_s: float, tally: Tally) -> Outcome:
        self._canary.send("tell")
        seen: canary.Seen = self._canary.receive()
        self._publisher.send("tell")
        kept, now = self._kept(), time.monotonic()
        asked = _since(seen.asked, began)
        stored = _since(seen.stored, began)
        return Outcome(
            longest_s=self._longest(asked, now),
            unanswered=self._unanswered(asked, now),
            longest_store_s=self._longest(stored, now),
            unstored=self._unanswered(stored, now),
            asked=len(asked),
            share=None if kept is None else kept.share,
            took_s=took_s,
            tally=tally,
            memory_before_mb=before_mb,
            memory_peak_mb=peak_kb(self.node) / 1e3,
            memory_after_mb=self.node.memory_kb / 1e3,
            starved_s=starved_s(self.node) - self._starved_s,
        )

    def _longest(self, calls: Calls, now: float) -> float:
        """The longest of them; one without an answer took as long as one is waited for, or until now."""
        return max(
            (min(now - at, self._answer_s) if took_s is None else took_s for at, took_s in calls),
            default=0.0,
        )

    def _unanswered(self, calls: Calls, now: float) -> int:
        """Calls that were given up; the last one may just be under way."""
        given_up = sum(took_s is None for _, took_s in calls[:-1])
        return given_up + any(took_s is None and now - at >= self._answer_s for at, took_s in calls[-1:])

    def _kept(self) -> steady.Kept | None:
        try:
            kept: steady.Kept = self._publisher.receive()
        except PeerError:
            return None
        return kept


def _since(calls: Calls, began: float) -> Calls:
    """The calls that were under way at a moment, or made later."""
    return [(at, took_s) for at, took_s in calls if took_s is None or at + took_s > began]


def _heard(child: Child, seconds: float) -> Any:
    """What a child says within so many seconds, None if nothing."""
    return child.receive() if child.wait(seconds) else None


def peak_kb(node: peers.Broker) -> int:
    """The most memory that the process has had since `clear_refs`."""
    return peers.memory_kb(node.process.pid, "VmHWM")


def starved_s(node: peers.Broker) -> float:
    """How long the process was ready to run, and had to wait for others."""
    told = Path(f"/proc/{node.process.pid}/schedstat").read_text().split()
    return int(told[1]) / 1e9


# The hostile process


def _be_hostile(pipe: Pipe, place: Place) -> None:
    """For each Stage that comes: prepare, say so, attack when told to begin, and send what came of it."""
    os.nice(NICE)
    with contextlib.suppress(EOFError):
        while True:
            _play(pipe, place, pipe.recv())


def _play(pipe: Pipe, place: Place, stage: Stage) -> None:
    """One stage; its connections last until it is told to leave, and are then ended without a word."""
    load = Load(place, stage.sizes, time.monotonic() + PREPARE_S_MAX)
    if stage.prepare is not None:
        _act(stage.prepare, load)
        load.tally.clear()
    pipe.send("ready")
    pipe.recv()
    began = time.monotonic()
    load.allow(stage.seconds)
    _act(stage.attack, load)
    pipe.send((time.monotonic() - began, load.tally))
    pipe.recv()
    load.close()


def _act(act: Act, load: Load) -> None:
    """Do it, as long as there is time, and as long as the node lets it."""
    try:
        act(load)
    except OutOfTime:
        load.tally["out of time"] += 1
    except Parted as error:
        load.tally[f"parted {error}"] += 1
    except OSError as error:
        load.tally[f"failed {error.__class__.__name__}"] += 1


# The node


@contextmanager
def arena(*, secured: bool, compiled: bool, pace: Pace, has_gateway: bool = False) -> Iterator[Arena]:
    """A node with a directory, perhaps with a gateway, and its good clients."""
    with TemporaryDirectory(prefix="tidings-fair-") as home, ExitStack() as stack:
        port = peers.free_port()
        places = make_users(Path(home) / "security", port) if secured else dict.fromkeys(USERS, Place(port))
        settings: dict[str, Any] = {"security": f"{home}/security"} if secured else {}
        if has_gateway:
            ports = peers.free_port(), peers.free_port()
            places = {user: place.with_sensors(*ports) for user, place in places.items()}
            settings |= {"sensor_port": ports[0], "sensor_http_port": ports[1], "sensor_plain": secured}
        directory = {"dir": f"{home}/node", "log_seal_s": 0.0}
        node = stack.enter_context(neighbours.node(port, compiled=compiled, **directory, **settings))
        made = Arena(node, places, replace(pace, is_compiled=compiled))
        stack.callback(made.close)
        yield made


def make_users(path: Path, port: int) -> dict[str, Place]:
    """A security directory with the users of an arena; where each of them finds the node."""
    admin = Admin("admin", make_password(secrets.token_urlsafe(24), os.urandom))
    make_security(path, "fair", [HOST], admin, os.urandom, datetime.now(UTC))
    home = SecurityDirectory(path)
    tokens = {user: make_token(os.urandom) for user in USERS}
    with edited(home) as lines:
        for user, token in tokens.items():
            lines.add_token(user, Token("first", hash_token(token)))
    add_allowance(home, RULES)
    return {user: Place(port, path / "ca.pem", token) for user, token in tokens.items()}
