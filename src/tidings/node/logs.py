"""What the node says of itself while it runs: one line for each thing that happened, with named values.

    2026-05-01T08:30:00.125Z info listening address=tidings://127.0.0.1:7300
    {"time":"2026-05-01T08:30:00.125Z","level":"info","event":"listening","address":"tidings://127.0.0.1:7300"}

The rule kept: values are those of the node itself and the addresses of peers, never what an event carries.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

Form = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

_logger = logging.getLogger("tidings.node")


def log(level: Level, event: str, **values: Any) -> None:
    """Something that a core has to say."""
    _logger.log(logging.getLevelNamesMapping()[level.upper()], event, extra={"values": values})


def debug(event: str, **values: Any) -> None:
    """Something that only matters while looking for a fault."""
    _logger.debug(event, extra={"values": values})


def info(event: str, **values: Any) -> None:
    """Something that happens in the life of a node."""
    _logger.info(event, extra={"values": values})


def warning(event: str, **values: Any) -> None:
    """Something that someone should know of."""
    _logger.warning(event, extra={"values": values})


def error(event: str, **values: Any) -> None:
    """Something that someone must do something about."""
    _logger.error(event, extra={"values": values})


def show(level: Level, form: Form, stream: TextIO | None = None) -> None:
    """From now on, write lines of this level and above; to standard error unless a stream is given."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextLine(logging.Formatter):
    """A line for people: `name=value`, quoted where a value has blanks."""

    def format(self, record: logging.LogRecord) -> str:
        """Called by logging for each line."""
        values = "".join(f" {name}={_word(value)}" for name, value in _values(self, record).items())
        return f"{_moment(record)} {record.levelname.lower()} {_escape(record.getMessage())}{values}"


class JsonLine(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Called by logging for each line."""
        line = {"time": _moment(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return msgspec.json.encode(line | _values(self, record), enc_hook=str).decode()


def _values(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = dict(getattr(record, "values", {}))
    if record.name != _logger.name:
        values["logger"] = record.name
    if record.exc_info:
        values["traceback"] = formatter.formatException(record.exc_info)
    return values


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(" \"='") and text else repr(text)


def _escape(text: str) -> str:
    """One line, whatever a message contains."""
    return text if text.isprintable() else repr(text)
