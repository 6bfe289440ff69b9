"""Events as commands take them: from words of the command line, or from lines of JSON on standard input.

`send_all` hands them over in chunks and shows how far it is; what is done with them is the command's own.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import islice, repeat
from pathlib import Path
from typing import Any, cast

import msgspec
import typer

from tidings.cli.printing import progress_bar
from tidings.errors import CodecError, UserError
from tidings.event import Event
from tidings.event.json import from_json

READ_SIZE = 64 << 10
CHUNK = 1_000
"""Events that are handed over, and counted on the screen, at once."""


def read_fields(fields: Iterable[str]) -> dict[str, Any]:
    """Names and values; UserError for what is not NAME=VALUE or comes twice."""
    read: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals or not name:
            raise UserError(f"{field!r} is not NAME=VALUE, such as value=41.2")
        if name in read:
            raise UserError(f"{name} is given twice")
        read[name] = read_value(text)
    return read


def read_value(text: str) -> Any:
    """The number, truth or quoted text that this is as JSON; otherwise the text itself."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if isinstance(value, bool | int | float | str) else text


def source_of(kind: str | None, fields: Iterable[str], count: int, **changes: Any) -> EventSource:
    """One event so many times if it has a type, else the lines of standard input.

    The changes are header fields that each event gets.
    """
    event = None if kind is None else Event(kind, **{**read_body(read_fields(fields)), **changes})
    return EventSource(event, count, changes)


def read_body(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with the body as bytes: those of a file if it is given as @FILE, else its text."""
    if "body" not in fields:
        return fields
    text = str(fields["body"])
    if text.startswith("@"):
        try:
            return {**fields, "body": Path(text[1:]).read_bytes()}
        except OSError as error:
            raise UserError(f"body: {text[1:]} can't be read: {error.strerror}") from None
    return {"content_type": "text/plain", **fields, "body": text.encode(errors="surrogateescape")}


class EventSource:
    """Events in chunks: one event many times, or the lines of standard input.

    `total` is their number, if it is known; `bad` counts lines that were no event.
    """

    def __init__(self, event: Event | None, count: int, changes: dict[str, Any]) -> None:
        """`event` None: each line is an event as JSON, which gets the changes."""
        self.bad = 0
        self.total = None if event is None else count
        self._event = event
        self._changes = changes
        self._number = 0

    async def chunks(self) -> AsyncIterator[list[Event]]:
        """The events. Lines are read beside the loop: the program that writes them may take its time."""
        if self._event is not None:
            remaining = repeat(self._event, self.total or 0)
            while chunk := list(islice(remaining, CHUNK)):
                yield chunk
            return
        rest = b""
        stdin = cast("io.BufferedReader", sys.stdin.buffer)
        if stdin.isatty():
            typer.echo("events as lines of JSON, please; Ctrl-D ends", err=True)
        while data := await asyncio.to_thread(stdin.read1, READ_SIZE):
            *lines, rest = (rest + data).split(b"\n")
            yield self._events(lines)
        yield self._events([rest])

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            self._number += 1
            if not line.strip():
                continue
            try:
                event = from_json(line)
                events.append(event.evolve(**self._changes) if self._changes else event)
            except (CodecError, UserError) as error:
                self.bad += 1
                typer.echo(f"line {self._number}: {error}", err=True)
        return events


async def send_all(source: EventSource, doing: str, send: Callable[[list[Event]], Awaitable[None]]) -> int:
    """Send all there is, chunk by chunk; how many events there were."""
    from rich.progress import MofNCompleteColumn

    sent = 0
    with progress_bar(doing, MofNCompleteColumn()) as show:
        async for chunk in source.chunks():
            await send(chunk)
            sent += len(chunk)
            show(sent, source.total)
    return sent
