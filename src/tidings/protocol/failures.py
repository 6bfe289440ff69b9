"""Errors on their way to a client: what a node says of a refusal, and which error that is there."""

from __future__ import annotations

from msgspec import DecodeError

from tidings.errors import (
    Disconnected,
    FilterError,
    MessageNotHeld,
    MissingExtra,
    NotAllowed,
    QueueAmbiguous,
    QueueEmpty,
    QueueError,
    QueueExists,
    QueueFull,
    QueueNotFound,
    Refused,
    TidingsError,
    TransactionLost,
)
from tidings.protocol.messages import Failure

_QUEUE_ERRORS: dict[str, type[QueueError]] = {
    "queue-empty": QueueEmpty,
    "queue-full": QueueFull,
    "queue-not-found": QueueNotFound,
    "queue-exists": QueueExists,
    "queue-ambiguous": QueueAmbiguous,
    "not-yours": MessageNotHeld,
    "queue": QueueError,
}
_QUEUE_CODES = {kind: code for code, kind in _QUEUE_ERRORS.items()}


def failure_of(error: TidingsError | DecodeError) -> Failure:
    """What is said to the client of an error that is its own."""
    match error:
        case FilterError():
            place = {"problem": error.problem, "line": error.line, "column": error.column, "hint": error.hint}
            return Failure("filter", str(error), place)
        case MissingExtra():
            return Failure("extra", str(error), {"what": error.what, "extra": error.extra})
        case QueueError():
            details = {"queue": error.queue, "problem": error.problem}
            return Failure(_QUEUE_CODES[type(error)], str(error), details)
        case TransactionLost():
            return Failure("rolled-back", str(error))
        case NotAllowed():
            return Failure("not-allowed", str(error))
        case Disconnected():
            return Failure("away", str(error))
        case Refused():
            return Failure(error.code, error.problem)
        case _:
            return Failure("protocol", str(error))


def error_of(failure: Failure) -> TidingsError:
    """The error that a node's refusal is here."""
    code, text, details = failure.code, failure.text, failure.details
    if code == "filter":
        problem = details.get("problem", text)
        return FilterError(problem, details.get("line"), details.get("column"), details.get("hint"))
    if code == "extra" and {"what", "extra"} <= details.keys():
        return MissingExtra(details["what"], details["extra"])
    if code in _QUEUE_ERRORS:
        return _QUEUE_ERRORS[code](str(details.get("queue", "")), str(details.get("problem", text)))
    if code == "rolled-back":
        return TransactionLost(text)
    if code == "not-allowed":
        return NotAllowed(text)
    if code == "away":
        return Disconnected(text)
    return Refused(code, text)
