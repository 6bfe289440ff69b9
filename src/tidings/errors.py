"""Every error tidings raises, as one tree.

    TidingsError
    ├── UserError                 what the caller did wrong
    │   ├── EventError            a value, name or size that no event may have   (place)
    │   ├── FilterError           a filter that can't be understood or is too large   (line, column, hint)
    │   ├── MissingExtra          a part of tidings that is not installed   (extra)
    │   ├── ConfigError           a setting that can't be   (place, key)
    │   ├── AddressError          a text that is no address of a node
    │   ├── NotAllowed            an action the access list does not grant
    │   ├── QueueError                                                            (queue)
    │   │   ├── QueueEmpty   QueueFull   QueueNotFound   QueueExists   QueueAmbiguous
    │   │   └── MessageNotHeld    a message that the client does not hold, or not any more
    │   └── TransactionLost       a transaction that ended without being committed
    ├── PeerError                 what the other side did wrong
    │   ├── CodecError            bytes that are no event   (place)
    │   ├── DecryptionError       a body that can't be decrypted, or should have been encrypted   (queue, key)
    │   ├── Disconnected          the connection was lost and not found again in time
    │   ├── NoAnswer              whoever was asked did not answer in time
    │   └── Refused               the other side would not do it, for a reason without its own error   (code)
    ├── StoreError                what the disk did, or what lies on it   (path)
    │   ├── StoreInUse            another process has the directory
    │   ├── StoreTooNew           it was written by a newer tidings
    │   ├── StoreDamaged          a record that is not as it was written
    │   └── StoreFailed           the disk is full or broken: nothing was changed
    └── InternalError             what tidings did wrong: please report it

Errors carry fields, and name the place of the bad value: `line 3, column 14`, `$.sensors[2].value`.
"""

from __future__ import annotations


class TidingsError(Exception):
    """The base of all errors raised by tidings."""


class UserError(TidingsError):
    """The caller asked for something that can't be done."""


class PeerError(TidingsError):
    """The other side of a connection, file or stream did something it must not."""


class InternalError(TidingsError):
    """An invariant of tidings itself was broken."""


class EventError(UserError, ValueError):
    """A value, name or size that no event may have; `place` says where it stands."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def __reduce__(self) -> tuple[type[EventError], tuple[str, str]]:
        return type(self), (self.place, self.problem)


class FilterError(UserError, ValueError):
    """A filter that can't be understood or is too large.

    `line` and `column` count from 1 and are None when the filter was not given as text.
    """

    def __init__(
        self, problem: str, line: int | None = None, column: int | None = None, hint: str | None = None
    ) -> None:
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(f"{where}{problem}" + (f" ({hint})" if hint else ""))
        self.problem = problem
        self.line = line
        self.column = column
        self.hint = hint

    def __reduce__(self) -> tuple[type[FilterError], tuple[str, int | None, int | None, str | None]]:
        return type(self), (self.problem, self.line, self.column, self.hint)


class MissingExtra(UserError, ImportError):
    """A part of tidings that is not installed; the message names the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra: pip install 'tidings[{extra}]'")
        self.what = what
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.what, self.extra)


class ConfigError(UserError, ValueError):
    """A setting that can't be; `place` says where it stands, `key` which one it is."""

    def __init__(self, place: str, key: str, problem: str) -> None:
        super().__init__(f"{place}: {key}: {problem}" if key else f"{place}: {problem}")
        self.place = place
        self.key = key
        self.problem = problem

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, str]]:
        return type(self), (self.place, self.key, self.problem)


class AddressError(UserError, ValueError):
    """A text that is no address of a node."""


class NotAllowed(UserError):
    """The access list does not grant this action."""


class QueueError(UserError):
    """A queue can't do what was asked; `queue` is its name."""

    def __init__(self, queue: str, problem: str) -> None:
        super().__init__(f"queue {queue!r}: {problem}")
        self.queue = queue
        self.problem = problem

    def __reduce__(self) -> tuple[type[QueueError], tuple[str, str]]:
        return type(self), (self.queue, self.problem)


class QueueEmpty(QueueError):
    """Nothing that matches is in the queue."""


class QueueFull(QueueError):
    """The queue holds as many messages as it may."""


class QueueNotFound(QueueError):
    """There is no queue of that name or id."""


class QueueExists(QueueError):
    """A queue of that name exists with another description."""


class QueueAmbiguous(QueueError):
    """Several nodes have a queue of that name."""


class MessageNotHeld(QueueError):
    """The message is not in this client's hands, or not any more: it can't be acknowledged or rejected."""


class TransactionLost(UserError):
    """The transaction has ended without being committed; nothing of it was done."""


class CodecError(PeerError, ValueError):
    """Bytes or text that are no event; `place` says where the trouble stands."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem

    def __reduce__(self) -> tuple[type[CodecError], tuple[str, str]]:
        return type(self), (self.place, self.problem)


class DecryptionError(PeerError):
    """A message of a queue with keys can't be decrypted; `key` is the id of the key it asks for, or None."""

    def __init__(self, queue: str, key: str | None, problem: str) -> None:
        which = "" if key is None else f"key {key}: "
        super().__init__(f"queue {queue!r}: {which}{problem}")
        self.queue = queue
        self.key = key
        self.problem = problem

    def __reduce__(self) -> tuple[type[DecryptionError], tuple[str, str | None, str]]:
        return type(self), (self.queue, self.key, self.problem)


class Disconnected(PeerError, ConnectionError):
    """The connection was lost and did not come back in time."""


class NoAnswer(PeerError, TimeoutError):
    """The node, or whoever was asked, did not answer in time."""


class Refused(PeerError):
    """The other side would not do it; `code` is one of the protocol's."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(f"{problem} [{code}]")
        self.code = code
        self.problem = problem

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        return type(self), (self.code, self.problem)


class StoreError(TidingsError):
    """What the disk did, or what lies on it; `path` says where."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[StoreError], tuple[str, str]]:
        return type(self), (self.path, self.problem)


class StoreInUse(StoreError):
    """Another process has the directory."""


class StoreTooNew(StoreError):
    """The directory was written by a newer tidings."""


class StoreDamaged(StoreError):
    """A record is not as it was written."""


class StoreFailed(StoreError):
    """The disk is full or broken; what was to be written is not, and nothing else has changed."""
