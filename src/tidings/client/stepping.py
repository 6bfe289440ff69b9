"""One step of an agent: in the location's loop, or in a process of its own with limits.

A process is given the image of the agent on its standard input, connects to the node itself, and writes what
came of the step into a file. It ends with all that it has started; its lease is renewed by its location.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from tidings import processes
from tidings.agents.arguments import LeaseTerms, encode_result
from tidings.agents.images import AgentImage
from tidings.client.agent import Agent
from tidings.client.mobile import MobileAgent, Next, load_class, pack_state, wake
from tidings.client.renewals import HeldLife
from tidings.errors import AgentError

if TYPE_CHECKING:
    from tidings.client.bus import Bus

MEGABYTE = 1_000_000
PROGRAM = "import sys; from tidings.client.stepping import main; main(sys.argv[1])"


class StepTask(Struct, frozen=True):
    """What a process is to do."""

    image: AgentImage
    terms: LeaseTerms
    where: str
    address: str


class StepDone(Struct, frozen=True):
    """What came of it: what comes next, or a result."""

    state: bytes
    next: Next | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    problem: str = ""


async def run_step(
    cls: type[MobileAgent], image: AgentImage, bus: Bus, handle: Agent, address: str
) -> tuple[Any, bytes]:
    """Run a step; what it returns, and the state after it. AgentError if the class does not fit."""
    if cls.limits.is_apart:
        return await _run_apart(cls, image, handle, address)
    return await _run_here(cls, image, bus, handle)


async def _run_here(cls: type[MobileAgent], image: AgentImage, bus: Bus, handle: Agent) -> tuple[Any, bytes]:
    agent = wake(cls, image)
    agent.agent, agent.bus = handle, bus
    value = await getattr(agent, image.step)()
    return value, pack_state(image.name, agent.state)


async def _run_apart(
    cls: type[MobileAgent], image: AgentImage, handle: Agent, address: str
) -> tuple[Any, bytes]:
    """Run it in a process, which is ended with all below it when this is cancelled."""
    limits = processes.ProcessLimits(
        memory=None if cls.limits.memory_mb is None else int(cls.limits.memory_mb * MEGABYTE),
        processes=cls.limits.processes,
    )
    life = handle._life
    with tempfile.TemporaryDirectory(prefix="tidings-step-") as folder:
        done = Path(folder) / "done"
        task = StepTask(image, life.terms, life.where, address)
        command = sys.executable, "-P", "-c", PROGRAM, str(done)
        path = os.pathsep.join(sys.path)
        options: dict[str, Any] = {"environment": {"PYTHONPATH": path}, "limits": limits, "linger_s": 0.0}
        process = processes.start(*command, stdin=processes.PIPE, stdout=processes.DEVNULL, **options)
        try:
            await process.open()
            await process.write(msgspec.json.encode(task))
            ended = await process.wait()
            process.close()
        except BaseException:
            await process.end("the step is over", life.terms.grace_s)
            raise
        return _outcome(image, done, ended)


def _outcome(image: AgentImage, done: Path, ended: processes.ProcessEnd) -> tuple[Any, bytes]:
    if ended.reason:
        raise AgentError(image.name, f"its process was ended: {ended.reason}")
    if ended.code or not done.exists():
        raise AgentError(image.name, f"its process has ended with exit code {ended.code}")
    found = msgspec.json.decode(done.read_bytes(), type=StepDone)
    if found.problem:
        raise AgentError(image.name, found.problem)
    return found.next or msgspec.json.decode(found.result), found.state


async def _work(task: StepTask) -> StepDone:
    import tidings

    image = task.image
    life = HeldLife(task.terms, image.cookie, task.where, lambda _reason, _grace_s: None)
    async with tidings.connect(task.address) as bus:
        handle = Agent(bus.join_group(f"{image.group}@{image.home}"), life, image.name)
        try:
            value, state = await _run_here(load_class(image.kind), image, bus, handle)
        except Exception as error:
            return StepDone(image.state, problem=f"{type(error).__name__}: {error}"[:400])
    if isinstance(value, Next):
        return StepDone(state, value)
    return StepDone(state, None, msgspec.Raw(encode_result(value)))


def main(done: str) -> None:
    """Do the step that stands on the standard input."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=StepTask)
    Path(done).write_bytes(msgspec.json.encode(asyncio.run(_work(task))))
