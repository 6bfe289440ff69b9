"""The log messages of a running node: one line for each occurrence, with named values.

    2026-05-01T08:30:00.125Z info listening address=tidings://127.0.0.1:7300
    {"time":"2026-05-01T08:30:00.125Z","level":"info","event":"listening","address":"tidings://127.0.0.1:7300"}

The rule kept: values are those of the node itself and the addresses of peers, never what an event carries.

The log does not flood. Trouble that lasts, such as a full disk that fails thousands of commits, is logged
when it begins and when it has passed, and counted in between; of denied logins only some are logged a second.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

QUIET_S = 30.0
"""After so long without a failure the trouble has passed, if something has succeeded since."""
PROBLEMS_MAX = 16
"""Different problems that are logged before one trouble has passed."""
DENIALS_LOGGED_MAX = 10
"""Denials that are logged one by one between two calls of `wake`; the others are counted."""

LogForm = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

_logger = logging.getLogger("tidings.node")


def log(level: Level, event: str, **values: Any) -> None:
    """Log a core's message."""
    _logger.log(logging.getLevelNamesMapping()[level.upper()], event, extra={"values": values})


def info(event: str, **values: Any) -> None:
    """Log an event in the life of a node."""
    _logger.info(event, extra={"values": values})


def warning(event: str, **values: Any) -> None:
    """Log a fault that an operator should know of."""
    _logger.warning(event, extra={"values": values})


def error(event: str, **values: Any) -> None:
    """Log a fault that needs an operator's action."""
    _logger.error(event, extra={"values": values})


def show(level: Level, form: LogForm, stream: TextIO | None = None) -> None:
    """From now on, write lines of this level and above; to standard error unless a stream is given."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLine() if form == "json" else TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextLine(logging.Formatter):
    """A line for people: `name=value`, quoted where a value has blanks."""

    def format(self, record: logging.LogRecord) -> str:
        values = "".join(f" {name}={_word(value)}" for name, value in _values(self, record).items())
        return f"{_moment(record)} {record.levelname.lower()} {_escape(record.getMessage())}{values}"


class JsonLine(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
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


class Lasting:
    """One sort of trouble; `event` is logged for each different problem, `passed` at its end."""

    def __init__(self, event: str, passed: str) -> None:
        self._event = event
        self._passed = passed
        self._logged: set[str] = set()
        self._failures = 0
        self._last = 0.0
        self._has_succeeded = False

    def fail(self, problem: str, now: float) -> None:
        """Log a failure, unless it was logged and has not passed since."""
        self._failures += 1
        self._last, self._has_succeeded = now, False
        if problem not in self._logged and len(self._logged) < PROBLEMS_MAX:
            self._logged.add(problem)
            error(self._event, problem=problem)

    def succeed(self) -> None:
        """The same has succeeded."""
        self._has_succeeded = True

    def look(self, now: float) -> None:
        """See whether it has passed; called now and then."""
        if self._failures and self._has_succeeded and now - self._last >= QUIET_S:
            info(self._passed, failures=self._failures)
            self._logged.clear()
            self._failures = 0


class Logins:
    """Logs denied logins: the peer and the reason, never what was said."""

    def __init__(self) -> None:
        self._logged = 0  # denials that were logged since the last waking
        self._unlogged = 0  # and that were not

    def report(self, peer: str, reason: str) -> None:
        """Log why a client was not let in."""
        if self._logged < DENIALS_LOGGED_MAX:
            self._logged += 1
            warning("a login was denied", peer=peer, reason=reason)
        else:
            self._unlogged += 1

    def wake(self) -> None:
        """Log how many denials were not logged; called by the driver every second."""
        if self._unlogged:
            warning("more logins were denied", count=self._unlogged)
        self._logged = self._unlogged = 0
