"""A location: runs the agents that rest in the queue `agents` of its node, step by step.

    async with bus.location(Hotels, Flights) as location:
        await location.wait()

A step is one transaction: the agent is taken out of the queue, its step runs, and the transaction has the
agent put where it goes on, here or in `agents@node-b`. So it is at one place at any time, also if the
location or its node is killed meanwhile: then the step begins again elsewhere, in a new life, and what the
old one still asks for is refused. Only classes that the location was given run, and only in their version.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import structs

from tidings.agents.arguments import TOGETHER_MAX, LeaseTerms
from tidings.agents.images import AGENTS, PROBLEM_LENGTH_MAX, AgentClassInfo, AgentImage, packed, unpacked
from tidings.client.agent import Agent
from tidings.client.members import report_end
from tidings.client.mobile import MobileAgent, Next, about_class, kind_of
from tidings.client.renewals import HeldLife, OnOrder
from tidings.client.sessions import read_as
from tidings.client.stepping import run_step
from tidings.errors import (
    AgentError,
    Disconnected,
    MessageNotHeld,
    NoAnswer,
    NotAllowed,
    QueueEmpty,
    TidingsError,
    TransactionLost,
    UserError,
)

if TYPE_CHECKING:
    from tidings.client.agents import AgentGroup
    from tidings.client.bus import Bus
    from tidings.client.message import Message
    from tidings.client.transaction import Transaction

STEPS_MAX = 100
"""Steps that run side by side at one location."""
GETTERS = 40
"""Requests for agents that wait side by side."""
GET_S = 20.0
STEP_TRANSACTION_S = 300.0
"""How long the transaction of a step may last, waiting and the last step included."""
TRIES_MAX = 5
"""Locations that may die at a step before the agent ends with an error."""
SOON_S = 0.2
"""A step that takes no longer needs no watch of its group, and no renewal."""
AWAY_S = 5.0
"""After so long an agent tries again whose home could not be asked."""
REPORT_S = 1.0
"""After so long homes hear of agents that have left; most have arrived by then, which says the same."""
KNOWN_S = 2.0
"""How long the classes of another node are remembered."""


class Lives(msgspec.Struct):
    """An answer of a home: the terms of each life, or a problem."""

    agents: list[dict[str, Any]]


class StepOutcome(msgspec.Struct):
    """What came of a step."""

    value: Any = None
    reason: str = "done"
    problem: str = ""


class Location:
    """Runs agents; made by `Bus.location`, and used inside `async with`."""

    def __init__(
        self, bus: Bus, classes: tuple[type[MobileAgent], ...], address: str, steps_max: int
    ) -> None:
        if any(cls.limits.is_apart for cls in classes) and not address:
            raise UserError("agents with limits of memory or processes need `address`, by which they connect")
        self._bus = bus
        self._classes = {kind_of(cls): cls for cls in classes}
        self._about = [about_class(cls) for cls in classes]
        self._address = address
        self._slots = asyncio.Semaphore(steps_max)
        self._getters: list[asyncio.Task[None]] = []
        self._steps: set[asyncio.Task[None]] = set()
        self._groups: dict[str, AgentGroup] = {}
        self._used: Counter[AgentGroup] = Counter()  # steps of each that run
        self._arriving: dict[str, list[tuple[dict[str, Any], asyncio.Future[Any]]]] = {}  # by group
        self._asking: set[asyncio.Task[None]] = set()
        self._left: dict[str, list[dict[str, Any]]] = {}  # by group, agents that have left
        self._reporting: asyncio.Task[None] | None = None
        self._known: dict[str, tuple[float, list[AgentClassInfo]]] = {}
        self.node = ""
        """What its node is called."""
        self.counts: Counter[str] = Counter()
        """How many steps, moves, results, ends, and refused agents there were."""

    async def __aenter__(self) -> Self:
        await self._bus.create_queue(AGENTS)
        await self._say_classes()
        self._getters = [asyncio.ensure_future(self._serve()) for _ in range(GETTERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no more agents; those whose steps run go back, and begin these again elsewhere."""
        for task in (*self._getters, *self._steps, *self._asking):
            task.cancel()
        if self._getters or self._steps:
            await asyncio.wait([*self._getters, *self._steps])
        if self._reporting is not None:
            await asyncio.wait([self._reporting], timeout=SOON_S)
            self._reporting.cancel()
        for group in self._groups.values():
            await group.hang_up()

    async def wait(self) -> None:
        """Wait until it is over, which is an error."""
        await asyncio.gather(*self._getters)

    async def _say_classes(self) -> None:
        asked = {"classes": msgspec.to_builtins(self._about)}
        self.node = str(await self._bus._link.call("agent.locate", asked, None, "again"))

    # Agents come

    async def _serve(self) -> None:
        """Take agents out of the queue, and run their steps."""
        session = self._bus._link.core.session
        while True:
            await self._slots.acquire()
            try:
                if session != self._bus._link.core.session:  # the node knows nothing of this location
                    await self._say_classes()
                    session = self._bus._link.core.session
                is_taken = await self._take()
            except (TransactionLost, NoAnswer, Disconnected, MessageNotHeld):
                is_taken = False
                if self._bus._link.core.failure is not None:
                    raise
                await asyncio.sleep(SOON_S)
            except BaseException:
                self._slots.release()
                raise
            if not is_taken:
                self._slots.release()

    async def _take(self) -> bool:
        """Wait a while for an agent, and let its step begin; whether one came."""
        transaction = self._bus.transaction(STEP_TRANSACTION_S)
        transaction.begin_soon()
        try:
            message = await transaction.get(AGENTS, timeout_s=GET_S)
        except QueueEmpty:
            await transaction.rollback()
            return False
        except BaseException:
            with suppress(TidingsError):
                await asyncio.shield(transaction.rollback())
            raise
        step = asyncio.ensure_future(self._attempt(transaction, message))
        self._steps.add(step)
        step.add_done_callback(self._over)
        return True

    def _over(self, step: asyncio.Task[None]) -> None:
        self._steps.discard(step)
        self._slots.release()

    async def _attempt(self, transaction: Transaction, message: Message) -> None:
        """Do a step of an agent; if it can't be done, the agent is in the queue as it was."""
        try:
            image = unpacked(message.event)
        except AgentError as error:
            await transaction.rollback()
            await self._reject(message, str(error))
            return
        try:
            await self._go_on(transaction, image, message.deliveries)
            await transaction.commit()
        except (TransactionLost, NoAnswer, Disconnected):
            self.counts["lost"] += 1
        except BaseException:
            with suppress(TidingsError):
                await asyncio.shield(transaction.rollback())
            raise

    async def _reject(self, message: Message, problem: str) -> None:
        """Make a dead letter of what is no agent."""
        queue = await self._bus.queue(AGENTS)
        with suppress(TidingsError):
            _holder, again = await queue.hold(f"id = '{message.event.id}'", timeout_s=0)
            await again.reject(problem)
        self.counts["refused"] += 1

    # One step

    async def _go_on(self, transaction: Transaction, image: AgentImage, deliveries: int) -> None:
        cls = self._classes.get(image.kind)
        if cls is None or cls.version != image.version:
            has = "no such class" if cls is None else f"version {cls.version!r}"
            problem = f"{self.node} has {has} of {image.kind}, version {image.version!r}"
            if image.origin and image.origin != self.node:
                await self._return(transaction, image, problem)
            else:
                await self._fail(image, problem)
            return
        life = await self._arrive(transaction, image)
        if life is None:
            return
        if deliveries > TRIES_MAX:
            await self._end(life, StepOutcome(None, "error", f"its step has ended {TRIES_MAX} locations"))
            return
        self.counts["steps"] += 1
        image = structs.replace(image, life=life.terms.life)
        outcome, state = await self._work(cls, image, life)
        if isinstance(outcome.value, Next) and outcome.reason == "done":
            await self._pass_on(transaction, image, life, outcome.value, state)
        else:
            await self._end(life, outcome)

    async def _arrive(self, transaction: Transaction, image: AgentImage) -> HeldLife | None:
        """Begin a life of the agent at its home; None if it may not, or nobody can be asked."""
        try:
            return await self._begin_life(image)
        except (AgentError, NotAllowed):  # it was ended while it rested, or is a copy: it is thrown away
            self.counts["refused"] += 1
            return None
        except (Disconnected, NoAnswer):
            if self._bus._link.core.failure is None and self._bus._link.core.is_up:
                await transaction.put(AGENTS, packed(image), delay_s=AWAY_S)
                return None
            raise

    async def _begin_life(self, image: AgentImage) -> HeldLife:
        """Begin a life of an agent at its home; AgentError if it may not."""
        where, group = f"node {self.node}", f"{image.group}@{image.home}"
        asked = {"agent": image.address, "life": image.life, "cookie": image.cookie, "where": where}
        reply = self._bus._link.future()
        arriving = self._arriving.setdefault(group, [])
        arriving.append(({**asked, "what": image.step}, reply))
        if len(arriving) == 1:
            asking = asyncio.ensure_future(self._ask_home(group))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        terms = await reply
        if "problem" in terms:
            raise AgentError(image.agent, terms["problem"])
        return HeldLife(read_as(terms, LeaseTerms, "$.agent"), image.cookie, where, lambda _reason, _s: None)

    async def _ask_home(self, group: str) -> None:
        """Ask for all lives of a group that have arrived in this turn of the loop, by one request."""
        arriving = self._arriving.pop(group)
        for first in range(0, len(arriving), TOGETHER_MAX):
            some = arriving[first : first + TOGETHER_MAX]
            asked = {"group": group, "lives": [life for life, _reply in some]}
            try:
                answer = await self._bus._link.call("agent.arrive-all", asked, None, "again")
                found = read_as(answer, Lives, "$.agents").agents
                for (_life, reply), terms in zip(some, found, strict=True):
                    if not reply.done():
                        reply.set_result(terms)
            except Exception as error:
                for _life, reply in some:
                    if not reply.done():
                        reply.set_exception(error)

    async def _work(
        self, cls: type[MobileAgent], image: AgentImage, life: HeldLife
    ) -> tuple[StepOutcome, bytes]:
        """Run a step, which ends when the agent is ordered to, or takes too long."""
        group = self._group_of(image)
        handle = Agent(group, life, image.name)
        working = asyncio.ensure_future(run_step(cls, image, self._bus, handle, self._address))
        order, overdue = _ordering(handle, working)
        life.on_order = order
        try:
            await asyncio.wait([working], timeout=SOON_S)
            if not working.done():
                await self._watch(working, overdue, handle, group, cls.limits.seconds)
            if not working.done():
                return StepOutcome(
                    None, handle.stop_reason or "error", "it did not end within its grace"
                ), b""
            value, state = working.result()
            return StepOutcome(value), state
        except asyncio.CancelledError:
            if handle.stop_reason is None:  # the location ends: the step begins again at another
                working.cancel()
                await asyncio.wait([working], timeout=life.terms.grace_s)
                raise
            return StepOutcome(None, handle.stop_reason, handle.problem), b""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:PROBLEM_LENGTH_MAX]
            return StepOutcome(None, handle.stop_reason or "error", problem), b""
        finally:
            overdue.cancel()
            await self._let_go(group)

    async def _watch(
        self,
        working: asyncio.Future[Any],
        overdue: asyncio.Future[None],
        handle: Agent,
        group: AgentGroup,
        limit_s: float,
    ) -> None:
        """Wait for a step that takes longer: its lease is renewed, and it hears when it has to end."""
        renewals, life = self._bus._renewing(), handle._life
        problem = f"a step took more than {limit_s:g} s"

        def too_late() -> None:
            handle.problem = handle.problem or problem
            life.on_order("error", life.terms.grace_s)

        late = asyncio.get_running_loop().call_later(limit_s, too_late)
        renewals.add(life)
        try:
            await group.listen(handle.id, life.on_order)
            await asyncio.wait([working, overdue], return_when=asyncio.FIRST_COMPLETED)
        finally:
            late.cancel()
            group.forget(handle.id)
            renewals.remove(life)

    def _group_of(self, image: AgentImage) -> AgentGroup:
        """The group of an agent, for as long as one of its members is here."""
        address = f"{image.group}@{image.home}"
        group = self._groups.get(address)
        if group is None:
            group = self._groups[address] = self._bus.join_group(address)
        self._used[group] += 1
        return group

    async def _let_go(self, group: AgentGroup) -> None:
        """A step of a group is over: what it has started is watched, if there is anything."""
        self._used[group] -= 1
        if group.has_members:
            await group.listen()
        elif not self._used[group]:
            del self._used[group]
            self._groups = {name: one for name, one in self._groups.items() if one is not group}
            await group.hang_up()

    # What comes after it

    async def _pass_on(
        self, transaction: Transaction, image: AgentImage, life: HeldLife, goes: Next, state: bytes
    ) -> None:
        """Put an agent where it goes on; if it can't go there, it goes on here."""
        node = "" if goes.node == self.node else goes.node
        problem = await self._problem_at(node, image) if node else ""
        target = "" if problem else node
        changed = {"step": goes.step, "state": state, "problem": problem[:PROBLEM_LENGTH_MAX]}
        moved = structs.replace(image, **changed, origin=self.node, moves=image.moves + bool(target))
        where = f"on its way to {target}" if target else f"node {self.node}"
        asked = {**life.arguments, "where": where, "rests_s": goes.rests_s, "what": goes.step}
        if goes.rests_s:  # its lease does not end meanwhile
            try:
                await self._bus._link.call("agent.rest", asked, None, "again")
            except AgentError:  # it was ordered to end meanwhile, and has ended now
                self.counts["refused"] += 1
                return
            except (NoAnswer, Disconnected):  # its home can't be asked: its lease decides
                pass
        else:
            self._report_soon(life.terms.group, asked)
        self.counts["moves" if target else "rests"] += 1
        queue = f"{AGENTS}@{target}" if target else AGENTS
        await transaction.put(queue, packed(moved), delay_s=goes.rests_s or None)

    def _report_soon(self, group: str, left: dict[str, Any]) -> None:
        """Let the home of a group hear of an agent that has left, with others that leave soon."""
        self._left.setdefault(group, []).append(left)
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.ensure_future(self._report())

    async def _report(self) -> None:
        """Report agents that have left; where nobody can be asked, their arrival says it, or their lease."""
        await asyncio.sleep(REPORT_S)
        while self._left:
            group, lives = self._left.popitem()
            for first in range(0, len(lives), TOGETHER_MAX):
                asked = {"group": group, "lives": lives[first : first + TOGETHER_MAX]}
                with suppress(TidingsError):
                    await self._bus._link.call("agent.rest-all", asked, AWAY_S, "again")

    async def _problem_at(self, node: str, image: AgentImage) -> str:
        """Why an agent can't go on at a node; empty if it can."""
        try:
            classes = await self._classes_at(node)
        except TidingsError as error:
            return f"{node} can't be asked: {error}"
        found = next((one for one in classes if one.kind == image.kind), None)
        if found is None:
            return f"{node} has no class {image.kind}"
        if found.version != image.version:
            return f"{node} has version {found.version!r} of {image.kind}, not {image.version!r}"
        return ""

    async def _classes_at(self, node: str) -> list[AgentClassInfo]:
        now = self._bus._link.now
        asked_at, classes = self._known.get(node, (-KNOWN_S, []))
        if now - asked_at >= KNOWN_S:
            reply = await self._bus._link.call("agent.classes", {"node": node}, None, "again")
            classes = read_as(reply, list[AgentClassInfo], "$.classes")
            self._known[node] = now, classes
        return classes

    async def _return(self, transaction: Transaction, image: AgentImage, problem: str) -> None:
        """Send an agent back to where it came from."""
        self.counts["returned"] += 1
        back = structs.replace(image, problem=problem[:PROBLEM_LENGTH_MAX], origin="")
        await transaction.put(f"{AGENTS}@{image.origin}", packed(back))

    async def _fail(self, image: AgentImage, problem: str) -> None:
        """End an agent that nobody can run."""
        with suppress(AgentError, NotAllowed):
            await self._end(await self._begin_life(image), StepOutcome(None, "error", problem))

    async def _end(self, life: HeldLife, outcome: StepOutcome) -> None:
        """Say that an agent has ended; a home that can't be reached finds out by its lease."""
        self.counts[f"ended: {outcome.reason}"] += 1
        agent = Agent(self._bus.join_group(life.terms.group), life, "")
        value = outcome.value if outcome.reason == "done" else None
        await report_end(self._bus._link, agent, life, outcome.reason, outcome.problem, value)


def _ordering(handle: Agent, working: asyncio.Future[Any]) -> tuple[OnOrder, asyncio.Future[None]]:
    """What has a step end, within its grace for a last thing, and what is done when that is over."""
    loop = asyncio.get_running_loop()
    overdue: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not overdue.done():
            overdue.set_result(None)

    def order(reason: str, grace_s: float) -> None:
        if handle.stop_reason is None:
            handle.stop_reason = reason
            working.cancel()
            loop.call_later(grace_s, end)

    return order, overdue
