"""Groups of agents, as programs use them.

    async with bus.group("trip", any_of(), timeout_s=600, budget={"usd": 5}) as group:
        await group.spawn(search, "hotel", budget={"usd": 2})
        await group.run("python", "flights.py", name="flights", budget={"usd": 3})
    print(group.results)

At the end of its block a group waits until its condition is met, its time is up or its members have ended;
then all that is left of it ends too. If the block is left by an error or cancelled, the group ends at once.
An agent that has to end is cancelled: it may take the grace for a last step, such as a partial result. A
process gets SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from tidings.agents.arguments import AgentInfo, GroupInfo, LeaseTerms
from tidings.agents.conditions import Condition, all_of
from tidings.agents.events import AgentKind, Reason
from tidings.agents.images import AGENTS, AgentClassInfo, AgentImage, packed
from tidings.agents.orphans import AliveTimes
from tidings.client.agent import Agent, AgentFunction, Amount, Member
from tidings.client.enterable import enterable
from tidings.client.get import check_time
from tidings.client.members import RunningMembers
from tidings.client.mobile import MobileAgent, kind_of, pack_state
from tidings.client.put import Putter
from tidings.client.renewals import HeldLife, OnOrder, Renewals
from tidings.client.sessions import read_as
from tidings.errors import AgentError, Disconnected, GroupEnded, NoAnswer, TidingsError, UserError
from tidings.transport.link import Link

GRACE_S = 5.0
LEASE_S = 30.0
COOKIE_SIZE = 16

Watching = Callable[[GroupInfo], bool]
"""A condition of one's own: called with the group whenever it has changed; true ends it."""


def new_cookie() -> str:
    """Return a secret by which a life is known, and which can't be guessed."""
    return secrets.token_hex(COOKIE_SIZE)


class AgentGroup:
    """A group of agents; made by `Bus.group`, and used inside `async with`."""

    def __init__(
        self,
        link: Link,
        renewals: Callable[[], Renewals],
        wanted: dict[str, Any],
        lease_s: float,
        until: Watching | None = None,
    ) -> None:
        self._link = link
        self._renewals = renewals
        self._wanted = wanted
        self._lease_s = lease_s
        self._until = until
        self._is_joined = "condition" not in wanted
        self._members = RunningMembers(link, renewals)
        self._given_up: set[asyncio.Task[None]] = set()  # say that agents have left which never started
        self._watcher: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._info: GroupInfo | None = None

    @property
    def id(self) -> str:
        """The id of the group, by which others find it: `tidings lease run --group ID`."""
        return str(self._wanted["group"])

    @property
    def info(self) -> GroupInfo:
        """What was last heard of the group."""
        if self._info is None:
            raise UserError("a group is used inside `async with`")
        return self._info

    @property
    def results(self) -> dict[str, Any]:
        """The results of members by name, partial ones too; complete when the block has ended."""
        return {one.name: one.result for one in self.info.agents if one.result is not None}

    @property
    def reason(self) -> Reason | None:
        """Why the group has ended; None while it has not."""
        return self.info.reason

    async def __aenter__(self) -> Self:
        if self._is_joined:
            self._info = await show_group(self._link, self.id)
        else:
            reply = await self._link.call("agent.open", self._wanted, None, "again")
            self._info = read_as(reply, GroupInfo, "$.group")
        self._wanted["group"] = self._info.group
        self._watcher = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> bool:
        """End it.

        A block that still started members when the group had what it wanted ends without an error.
        """
        assert self._watcher is not None
        is_over = isinstance(error, GroupEnded) and error.agent == self.info.name
        kind = None if is_over else kind
        try:
            if self._is_joined:
                if kind is None:
                    await self._wait_left()
            elif kind is None:
                with suppress(AgentError):
                    await self._link.call("agent.seal", {"group": self.id}, None, "again")
                await self._over.wait()
            else:
                interrupted = issubclass(kind, asyncio.CancelledError | KeyboardInterrupt)
                reason: Reason = "user" if interrupted else "error"
                with suppress(NoAnswer, Disconnected, AgentError):
                    await self.stop(reason)
        except BaseException:
            if not self._is_joined:
                with suppress(NoAnswer, Disconnected, AgentError):
                    await self.stop("user")
            raise
        finally:
            self._members.order_all(str(self.info.reason or "user"), self.info.grace_s)
            await self._wait_left()
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
            with suppress(NoAnswer, Disconnected, AgentError):
                await self.refresh()
        return is_over

    # For a location, where members come and go without a block

    @property
    def has_members(self) -> bool:
        """Whether anybody who was started here has not ended."""
        return bool(self._members)

    async def listen(self, agent: str = "", order: OnOrder | None = None) -> None:
        """Hear from now on when members here have to end; also an agent that was started otherwise.

        A group that is joined is listened to from when its home can be asked.
        """
        if order is not None:
            self._members.add(agent, order)
        if self._watcher is None and self._is_joined:
            self._watcher = asyncio.ensure_future(self._watch())
        elif self._watcher is None:
            await self.__aenter__()

    def forget(self, agent: str) -> None:
        """An agent that was started otherwise is over."""
        self._members.forget(agent)

    async def hang_up(self) -> None:
        """End what was started here, and listen no more."""
        self._members.order_all("user", GRACE_S)
        await self._wait_left()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])

    async def _wait_left(self) -> None:
        """Wait until all members that are here have left."""
        leaving = [*self._members.tasks, *self._given_up]
        if leaving:
            await asyncio.wait(leaving)

    async def stop(self, reason: Reason = "user") -> None:
        """End the group, with all its members."""
        await self._link.call("agent.stop", {"which": self.id, "reason": reason}, None, "again")

    async def set_deputies(self, *nodes: str) -> GroupInfo:
        """Have these nodes keep the group with its home, and no others: two to six, or none.

        Raises AgentError if one can't be asked, and Disconnected if too few of those that keep it can.
        """
        asked = {"group": self.id, "deputies": nodes}
        reply = await self._link.call("agent.deputies", asked, None, "again")
        return read_as(reply, GroupInfo, "$.group")

    async def refresh(self) -> GroupInfo:
        """Ask the node how the group stands."""
        self._info = await show_group(self._link, self.id)
        return self._info

    async def wait(self) -> GroupInfo:
        """Wait until the group has ended, without sealing it."""
        await self._over.wait()
        return await self.refresh()

    # Members

    async def spawn(
        self,
        function: AgentFunction,
        /,
        *arguments: Any,
        name: str = "",
        budget: Amount | None = None,
        lease_s: float | None = None,
        parent: str = "",
    ) -> Member:
        """Start an agent: a coroutine function, called with its `Agent` and the arguments.

        It is entered before it starts. What it returns is its result, unless it is None; an error is the
        reason of its end. Its budget comes out of that of the group, or of its parent.
        """
        agent, life = await self._enter(
            "task", name or getattr(function, "__name__", ""), budget, lease_s, parent
        )

        async def work() -> Any:
            return await function(agent, *arguments)

        return self._members.run_task(agent, life, work)

    async def run(
        self,
        *command: str,
        name: str = "",
        budget: Amount | None = None,
        lease_s: float | None = None,
        parent: str = "",
        environment: Mapping[str, str] | None = None,
        **files: Any,
    ) -> Member:
        """Start a program. Exit code 0 is its result; any other one is an error.

        It ends with all that it has started. It finds its group in TIDINGS_GROUP, and itself in
        TIDINGS_AGENT.
        """
        agent, life = await self._enter("process", name or Path(command[0]).name, budget, lease_s, parent)
        options = {"stdout": None, **files, "environment": {**(environment or {}), **agent_environment(life)}}
        return self._members.run_process(agent, life, command, options)

    async def start(
        self,
        kind: type[MobileAgent] | str,
        state: object = None,
        *,
        name: str = "",
        at: str = "",
        step: str = "",
        budget: Amount | None = None,
        lease_s: float | None = None,
        parent: str = "",
    ) -> str:
        """Start an agent that moves, of a class or its import path; return its id.

        It is put into the queue `agents` of this node, or of the node `at`, whose location must trust the
        class. It begins with the first step, or with `step`.
        """
        known = await self.class_at(kind, at)
        packed_state = pack_state(name or known.kind, state)
        name = name or known.kind.rpartition(":")[2]
        _, life = await self._enter("mobile", name, budget, lease_s, parent)
        agent, _, home = life.terms.agent.partition("@")
        image = AgentImage(
            agent=agent,
            home=home or self._link.core.node,
            group=agent.rpartition(".")[0],
            name=name,
            kind=known.kind,
            version=known.version,
            step=step or known.first,
            state=packed_state,
            cookie=life.cookie,
            life=life.terms.life,
        )
        await Putter(self._link, f"{AGENTS}@{at}" if at else AGENTS).put(packed(image), None, None)
        return life.terms.agent

    async def class_at(self, kind: type[MobileAgent] | str, at: str) -> AgentClassInfo:
        """What a location says of a class; AgentError if none trusts it."""
        wanted = kind if isinstance(kind, str) else kind_of(kind)
        reply = await self._link.call("agent.classes", {"node": at}, None, "again")
        classes = read_as(reply, list[AgentClassInfo], "$.classes")
        found = next((one for one in classes if one.kind == wanted), None)
        if found is None:
            raise AgentError(wanted, f"no location {f'of node {at}' if at else 'here'} trusts this class")
        if not isinstance(kind, str) and found.version != kind.version:
            raise AgentError(wanted, f"the location has version {found.version!r}, not {kind.version!r}")
        return found

    @enterable
    async def group(
        self,
        name: str,
        condition: Condition | Watching | None = None,
        *,
        budget: Amount | None = None,
        timeout_s: float | None = None,
        grace_s: float = GRACE_S,
        alive: AliveTimes | None = None,
        parent: str = "",
    ) -> AgentGroup:
        """Return a group that is a member of this one, to be entered with `async with`.

        Its budget comes out of this group's. Met, its condition is its result here; it ends with this group.
        """
        _, life = await self._enter("group", name, budget, None, parent)
        money = {"budget": None, "rates": None, "step_rates": None}
        limits = {"timeout_s": timeout_s, "grace_s": grace_s, "soft": 0.2, "alive": alive, **money}
        asked, until = group_request(name, condition, limits)
        asked |= {"parent": life.terms.agent, "parent_cookie": life.cookie}
        return AgentGroup(self._link, self._renewals, asked, self._lease_s, until)

    async def _enter(
        self, kind: AgentKind, name: str, budget: Amount | None, lease_s: float | None, parent: str
    ) -> tuple[Agent, HeldLife]:
        cookie, where = new_cookie(), location()
        asked = {
            "group": self.id,
            "cookie": cookie,
            "name": name,
            "parent": parent,
            "kind": kind,
            "where": where,
            "lease_s": self._lease_s if lease_s is None else lease_s,
            "share": dict(budget or {}),
        }

        async def enter() -> tuple[Agent, HeldLife]:
            reply = await self._link.call("agent.enter", asked, None, "again")
            terms = read_as(reply, LeaseTerms, "$.agent")
            life = HeldLife(terms, cookie, where, lambda _reason, _grace_s: None)
            return Agent(self, life, name), life

        async def give_up() -> None:
            with suppress(TidingsError):
                agent, life = await entering
                await self._members.leave(agent, life, "user", "it was not started")

        entering = asyncio.ensure_future(enter())
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:  # the node may have entered it all the same, and waits for its end
            giving_up = asyncio.ensure_future(give_up())
            self._given_up.add(giving_up)
            giving_up.add_done_callback(self._given_up.discard)
            raise

    # Changes

    async def _watch(self) -> None:
        """Hear of changes until the group has ended; those that have to end are ended."""
        version = -1
        while not self._over.is_set():
            try:
                reply = await self._link.call(
                    "agent.watch", {"group": self.id, "after": version}, 60.0, "again"
                )
            except (NoAnswer, Disconnected):
                if self._link.core.failure is not None:
                    self._over.set()
                await asyncio.sleep(0.1)
                continue
            except AgentError:  # the group was forgotten, or its node has begun anew without it
                self._over.set()
                return
            info = read_as(reply, GroupInfo, "$.group")
            version, self._info, self._wanted["group"] = info.version, info, info.group
            for agent, reason in info.orders.items():
                self._members.order(agent, reason, info.grace_s)
            if info.phase == "ended":
                self._over.set()
            elif self._until is not None and info.phase == "open" and self._until(await self.refresh()):
                await self.stop("condition")


async def show_group(link: Link, group: str) -> GroupInfo:
    """Return a group with its members, which may take several requests."""
    agents: list[AgentInfo] = []
    while True:
        reply = await link.call("agent.show", {"group": group, "first": len(agents)}, None, "again")
        info = read_as(reply, GroupInfo, "$.group")
        agents += info.agents
        if not info.more:
            return msgspec.structs.replace(info, agents=agents)
        group = info.group  # a name may be another group's meanwhile


def group_request(
    name: str, condition: Condition | Watching | None, limits: dict[str, Any]
) -> tuple[dict[str, Any], Watching | None]:
    """Return the arguments that open a group, and the condition that its program evaluates itself."""
    wanted: Any = all_of() if condition is None else condition
    until = None
    if not isinstance(wanted, Condition):
        if not callable(wanted):
            problem = f"a condition is any_of(), all_of(), at_least(2) or a function, not {condition!r}"
            raise UserError(problem)
        wanted, until = all_of(), wanted
    check_time(limits["timeout_s"])
    if limits["alive"] is not None:
        limits["alive"].check()
        limits["alive"] = msgspec.to_builtins(limits["alive"])
    amounts = {one: dict(limits[one] or {}) for one in ("budget", "rates", "step_rates")}
    about = {"group": secrets.token_hex(6), "name": name, "condition": msgspec.to_builtins(wanted)}
    return {**about, **limits, **amounts}, until


def location() -> str:
    """Return where agents of this process are: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"[:255]


def agent_environment(life: HeldLife) -> dict[str, str]:
    """Return what the program of an agent finds in its environment."""
    return {"TIDINGS_GROUP": life.terms.group, "TIDINGS_AGENT": life.terms.agent}
