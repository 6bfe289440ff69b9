"""`tidings request` and `tidings reply`: ask for something, and answer those who ask.

A request is an event whose sender waits for the first reply. `tidings reply` answers with the attributes of
the command line, or with the output of a command that it runs for each request.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct

from tidings.cli.connection import bus_of, connects, until_terminated
from tidings.cli.events import read_body, read_fields
from tidings.cli.filter import parse
from tidings.cli.options import Fields, Json, Name, argument, option, seconds
from tidings.cli.printing import line_of, print_event, print_json, shown
from tidings.client import Bus, Subscription
from tidings.client.requests import failure_event
from tidings.errors import CodecError, NoAnswer, RequestFailed, UserError
from tidings.event import Event
from tidings.event.json import from_json, to_json
from tidings.filters import Filter
from tidings.processes import shell

TIMEOUT_S = 30.0

RequestKind = Annotated[str, argument("TYPE", "The type of the request.")]
ReplyKind = Annotated[str, argument("TYPE", "The type of the requests to answer.")]
AnswerTimeout = Annotated[float, seconds("--timeout", "How long to wait for the reply.")]
Body = Annotated[bool, option("--body", "Print only the body of the reply, as it is.")]
Command = Annotated[
    str | None,
    option("--command", "-c", "COMMAND", "A shell command, whose output is the body of the reply."),
]
AsEvent = Annotated[bool, option("--event", "The output of COMMAND is the reply itself, an event as JSON.")]
ReplyType = Annotated[
    str | None, option("--type", "TYPE", "The type of the reply.", show_default="TYPE.reply")
]
Where = Annotated[str, option("FILTER", "Only requests that match, such as: value > 40")]
Count = Annotated[int | None, option("End after so many requests.", min=1)]
IdleTimeout = Annotated[float | None, seconds("--timeout", "End when no request has come for so long.")]


@connects
async def request(
    kind: RequestKind,
    fields: Fields = None,
    timeout: AnswerTimeout = TIMEOUT_S,
    body: Body = False,
    name: Name = "",
    json: Json = False,
) -> None:
    """Publish a request and print the first reply: tidings request price item=pear

    The exit code is 1 if no reply comes in time, or if the service reports an error.
    """
    if body and json:
        raise UserError("--body and --json exclude each other; give one of them")
    asked = Event(kind, **read_body(read_fields(fields or [])))
    async with bus_of(name) as bus:
        try:
            reply = await bus.request(asked, timeout_s=timeout)
        except (NoAnswer, RequestFailed) as error:
            typer.echo(f"tidings: {error}", err=True)
            raise typer.Exit(1) from None
    if body:
        typer.echo(reply.body or b"", nl=False)
    else:
        print_event(reply, json)


@connects
async def reply(
    kind: ReplyKind,
    fields: Fields = None,
    command: Command = None,
    is_event: AsEvent = False,
    reply_type: ReplyType = None,
    where: Where = "",
    count: Count = None,
    timeout: IdleTimeout = None,
    name: Name = "",
    json: Json = False,
) -> None:
    """Answer requests of TYPE, until Ctrl-C or --count, with the given attributes or by a command.

    tidings reply price --command 'python price.py' runs the command for each request, one after the other,
    with the request as JSON on its standard input. If the command fails, the requester gets an error, and
    the exit code is 1 in the end.
    """
    if is_event and command is None:
        raise UserError("--event needs --command")
    wanted = parse(where, json) & Filter("type = :kind AND reply_to IS NOT NULL", kind=kind)
    said = read_body(read_fields(fields or []))
    answerer = Answerer(reply_type or f"{kind}.reply", said, command, is_event, json)

    async def serve() -> None:
        async with bus_of(name, reconnect=True) as bus:
            await answerer.serve(bus, wanted, count, timeout)

    await until_terminated(serve())
    if answerer.counts["failed"]:
        raise typer.Exit(1)


class ReplyReport(Struct, frozen=True):
    """Outcome of a request: replied or failed."""

    outcome: str
    request: msgspec.Raw
    problem: str | None = None


class CommandFailed(Exception):
    """The command of a service has failed; its name is sent to the requester."""


class Answerer:
    """Answers requests, and counts what became of them."""

    def __init__(
        self, kind: str, fields: dict[str, Any], command: str | None, is_event: bool, json: bool
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._kind, self._fields = kind, fields
        self._command, self._is_event = command, is_event
        self._json = json
        self._event()  # refuses bad fields before the first request

    async def serve(self, bus: Bus, wanted: Filter, count: int | None, timeout_s: float | None) -> None:
        """Answer requests, so many of them or until none comes."""
        async with bus.subscribe(wanted) as requests:
            typer.echo("waiting for requests; Ctrl-C ends", err=True)
            while count is None or self.counts.total() < count:
                asked = await _next(requests, timeout_s)
                if asked is None:
                    return
                await self._answer(bus, asked)

    async def _answer(self, bus: Bus, asked: Event) -> None:
        problem = None
        try:
            answer = await self._answer_to(asked)
        except (CommandFailed, CodecError, UserError) as error:
            problem, answer = str(error), failure_event(error)
        await bus.reply(asked, answer)
        self.counts["replied" if problem is None else "failed"] += 1
        self._report(asked, problem)

    async def _answer_to(self, asked: Event) -> Event:
        if self._command is None:
            return self._event()
        code, printed = await shell(self._command, to_json(asked) + b"\n", subprocess.PIPE)
        if code != 0:
            raise CommandFailed(f"exit code {code}")
        return from_json(printed) if self._is_event else self._event(printed)

    def _event(self, body: bytes = b"") -> Event:
        said = {"body": body, "content_type": _content_type(body)} if body else {}
        return Event(self._kind, **{**said, **self._fields})

    def _report(self, asked: Event, problem: str | None) -> None:
        outcome = "replied" if problem is None else "failed"
        if self._json:
            print_json(ReplyReport(outcome, msgspec.Raw(to_json(asked)), problem))
        elif problem is None:
            typer.echo(f"replied: {line_of(asked)}")
        else:
            typer.echo(f"failed, {shown(problem)}: {line_of(asked)}", err=True)


async def _next(requests: Subscription, timeout_s: float | None) -> Event | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(requests)
    except TimeoutError:
        return None


def _content_type(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
