"""City pipeline of the demo: Spark in a process of its own, which reports its progress as lines of JSON.

It is `tidings pipeline run city --continuous`, as a user could type it, with windows so short that the first
results come within a minute.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
from msgspec import Struct

from tidings.cli.demo.child import PROGRAM, running
from tidings.cli.demo.people import READINGS
from tidings.errors import InternalError
from tidings.processes import StartedProcess

if TYPE_CHECKING:
    from tidings.cli.demo.views import Note

WINDOW_S, WATERMARK_S, TRIGGER_S = 10, 2, 2
"""Windows over which readings are averaged, how late readings may be, and how often Spark polls."""
QUICK = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java option to compile quickly rather than well: in a life of two minutes that saves half of the work."""
SAYS = "spark"
ERRORS_SHOWN = 15
"""Lines of Spark's standard error that are shown if it ends by itself."""


class Said(Struct, frozen=True):
    """Line of the pipeline's output: the figures of a batch, or its new state."""

    rows: int = 0
    rows_s: float = 0.0
    lag: int | None = None
    state: str = ""


class Query:
    """City pipeline of the demo. `run` it beside everything else; `stop` it once."""

    def __init__(self, address: str, folder: Path, note: Note) -> None:
        """`folder` is for its checkpoint and its standard error."""
        self.batches = 0
        self.rows = 0
        self.last = Said()
        self._address = address
        self._folder = folder
        self._note = note
        self._child: StartedProcess | None = None
        self._is_over = asyncio.Event()
        self._is_stopping = False

    async def run(self) -> None:
        """Run it until `stop`; InternalError with the end of its standard error if it ends by itself."""
        self._folder.mkdir(parents=True)
        errors = self._folder / "errors"
        try:
            with errors.open("wb") as file:
                code = await self._run(file)
        finally:
            self._is_over.set()
        if not self._is_stopping:
            lines = errors.read_text(errors="replace").splitlines()[-ERRORS_SHOWN:]
            raise InternalError("\n".join([f"the pipeline ended with exit code {code}", *lines]))

    async def _run(self, errors: IO[bytes]) -> int:
        short = f"the demo uses windows of {WINDOW_S} s, to show something soon"
        self._note(SAYS, "starts", f"which takes a while; {short}")
        command = (*PROGRAM, *arguments(self._address, self._folder / "checkpoint"))
        folder = str(self._folder)
        place = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": folder, "TMPDIR": folder}
        async with running(*command, errors=errors, environment=place) as child:
            self._child = child
            if self._is_stopping:  # `stop` was called before it had started
                await child.end()
            async for line in child.lines():
                with suppress(msgspec.DecodeError):  # lines that Spark itself prints
                    self._hear(msgspec.json.decode(line, type=Said))
            return (await child.wait()).code

    def _hear(self, said: Said) -> None:
        if said.state == "running":
            self._note(SAYS, "is running", f"it reads {READINGS}, and publishes alarms")
        elif said.state:
            self._note(SAYS, f"is {said.state}", f"after {self.batches:,} batches with {self.rows:,} rows")
        else:
            self.batches += 1
            self.rows += said.rows
            self.last = said

    async def stop(self) -> None:
        """Terminate it, and wait until it has ended."""
        self._is_stopping = True
        self._note(SAYS, "stops", "the query is asked to end")
        if self._child is not None:
            await self._child.end()
        await self._is_over.wait()


def arguments(address: str, checkpoint: Path) -> list[str]:
    """Return the arguments of `tidings` that run the pipeline."""
    spans = {"window": WINDOW_S, "watermark": WATERMARK_S, "trigger": TRIGGER_S}
    options = [part for name, span_s in spans.items() for part in (f"--{name}", f"{span_s} seconds")]
    place = ["--node", address, "--where", READINGS, "--checkpoint", str(checkpoint), "--master", "local[2]"]
    return ["pipeline", "run", "city", "--continuous", "--json", *place, *options, "--conf", QUICK]
