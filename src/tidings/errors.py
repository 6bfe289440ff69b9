"""The errors of tidings, as one tree.

    TidingsError
    ├── UserError                 a mistake of the caller
    │   ├── EventError            a value, name or size that no event may have   (place)
    │   ├── FilterError           a filter that can't be parsed or is too large   (line, column, hint)
    │   │   └── PatternError      a pattern that can't be parsed, or has no end   (line, column, hint)
    │   ├── MissingExtra          a part of tidings that is not installed   (extra)
    │   ├── ConfigError           an invalid setting   (place, key)
    │   ├── FlowError             a flow graph that can't run: column, kind, key, cycle   (place)
    │   ├── AddressError          an invalid address of a node
    │   ├── NotAllowed            an action the access list does not grant
    │   ├── MoveRefused           a move to a node that can't be made, or a cookie that is not valid   (node)
    │   ├── QueueError                                                            (queue)
    │   │   ├── QueueEmpty   QueueFull   QueueNotFound   QueueExists   QueueAmbiguous
    │   │   └── MessageNotHeld    a message that the client does not hold, or not any more
    │   ├── ChannelError                                                          (channel)
    │   │   └── ChannelNotFound   ChannelExists   ChannelAmbiguous
    │   ├── AgentError                                                            (agent)
    │   │   ├── GroupNotFound   GroupEnded
    │   │   ├── LifeEnded         an agent that has ended, or whose life is an earlier one
    │   │   └── BudgetExceeded    more than an agent or group holds
    │   └── TransactionLost       a transaction that ended without being committed
    ├── PeerError                 a fault of the other side
    │   ├── CodecError            bytes that are no event   (place)
    │   ├── DecryptionError       a body that can't be decrypted, or should have been encrypted   (queue, key)
    │   ├── Disconnected          the connection was lost and not restored in time
    │   ├── NoAnswer              the node or another client did not answer in time
    │   ├── RequestFailed         a request whose handler has raised an error   (error, problem)
    │   └── Refused               a refusal by the other side that has no error class of its own   (code)
    ├── StoreError                a fault of the disk or of the files on it   (path)
    │   ├── StoreInUse            another process has the directory
    │   ├── StoreTooNew           it was written by a newer tidings
    │   ├── StoreDamaged          a record that is not as it was written
    │   ├── IndexFileError        a saved index that is cut, damaged or of another version
    │   └── StoreFailed           the disk is full or broken: nothing was changed
    └── InternalError             a fault of tidings itself: please report it

Errors carry fields, and name the place of the bad value: `line 3, column 14`, `$.sensors[2].value`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Self


class TidingsError(Exception):
    """The base of all errors raised by tidings."""

    may_be_accepted: bool = False
    """Whether the change that failed may have taken effect, or may yet: the node's answer is missing."""
    _made_of: tuple[tuple[Any, ...], dict[str, Any]]
    """The arguments, by which it is pickled."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        error = super().__new__(cls, *given)
        error._made_of = given, named
        return error

    def __reduce__(self) -> Any:
        given, named = self._made_of
        return partial(type(self), **named), given, vars(self)


class _PlacedError(TidingsError):
    """Error that names the place of a problem."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


class UserError(TidingsError):
    """Mistake of the caller: a request that can't be carried out."""


class PeerError(TidingsError):
    """Fault of the other side of a connection, file or stream."""


class InternalError(TidingsError):
    """Broken invariant of tidings itself; please report it."""


class EventError(_PlacedError, UserError, ValueError):
    """A value, name or size that no event may have; `place` says where it is."""


class FilterError(UserError, ValueError):
    """A filter that can't be parsed or is too large.

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


class PatternError(FilterError):
    """A pattern that can't be parsed, has no end in time or number, or a step that is never true."""


class MissingExtra(UserError, ImportError):
    """A part of tidings that is not installed; the message names the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the '{extra}' extra: pip install 'tidings[{extra}]'")
        self.what = what
        self.extra = extra


_KIND = re.compile(r"`([a-z| ]+)`")
_KINDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def in_words(error: Exception) -> str:
    """Return the text of an error of msgspec in words of ours: `$.ttl_s: must be a number > 0.0`."""
    problem, _, place = str(error).partition(" - at `")
    if problem.startswith("Expected "):
        wanted, _, got = problem.removeprefix("Expected ").partition(", got ")
        problem = f"must be {_KIND.sub(_kinds, wanted)}" + (f", not {got.strip('`')}" if got else "")
    return f"{place.rstrip('`')}: {problem}" if place else problem


def _kinds(found: re.Match[str]) -> str:
    kinds = [one for one in found[1].split(" | ") if one != "null"]
    return " or ".join(_KINDS.get(one, one) for one in kinds)


class ConfigError(UserError, ValueError):
    """An invalid setting; `place` says where it is, `key` which one it is."""

    def __init__(self, place: str, key: str, problem: str) -> None:
        named = place.lower().removeprefix("tidings_").removeprefix("--").replace("-", "_")
        super().__init__(f"{place}: {problem}" if key in ("", named) else f"{place}: {key}: {problem}")
        self.place = place
        self.key = key
        self.problem = problem


class FlowError(_PlacedError, UserError, ValueError):
    """A flow graph that can't run; `place` says which node of it, or which part of its file, is wrong."""


class AddressError(UserError, ValueError):
    """An invalid address of a node."""


class NotAllowed(UserError):
    """Denied action: the access list does not grant it."""


class MoveRefused(UserError):
    """A move that can't be made: `node` is where it should have gone, or the node that refuses the cookie."""

    def __init__(self, node: str, problem: str) -> None:
        super().__init__(f"move to {node!r}: {problem}" if node else problem)
        self.node = node
        self.problem = problem


class QueueError(UserError):
    """A request that a queue can't carry out; `queue` is its name."""

    def __init__(self, queue: str, problem: str) -> None:
        super().__init__(f"queue {queue!r}: {problem}")
        self.queue = queue
        self.problem = problem


class QueueEmpty(QueueError):
    """No matching message in the queue, or none in time."""


class QueueFull(QueueError):
    """A queue that holds as many messages as it may."""


class QueueNotFound(QueueError):
    """No queue of that name or id."""


class QueueExists(QueueError):
    """An existing queue of that name with another description."""


class QueueAmbiguous(QueueError):
    """A name that queues of several nodes have."""


class MessageNotHeld(QueueError):
    """A message that this client does not hold (any more), so it can't be acknowledged or rejected."""


class ChannelError(UserError):
    """A request that can't be carried out with a channel; `channel` is its name."""

    def __init__(self, channel: str, problem: str) -> None:
        super().__init__(f"channel {channel!r}: {problem}")
        self.channel = channel
        self.problem = problem


class ChannelNotFound(ChannelError):
    """No channel of that name, or of that reference, at any node that can be reached."""


class ChannelExists(ChannelError):
    """An existing channel of that name."""


class ChannelAmbiguous(ChannelError):
    """A name that several channels have: made at nodes that could not reach each other."""


class AgentError(UserError):
    """A request that can't be carried out for an agent or a group of agents; `agent` is its name."""

    def __init__(self, agent: str, problem: str) -> None:
        super().__init__(f"{agent}: {problem}")
        self.agent = agent
        self.problem = problem


class GroupNotFound(AgentError):
    """No group of that name or id at this node, or several of that name."""


class GroupEnded(AgentError):
    """A group that ends or has ended: nothing begins in it any more."""


class LifeEnded(AgentError):
    """An agent that has ended, or a life of it that is over: nothing of it counts any more."""


class BudgetExceeded(AgentError):
    """More than an agent or a group holds: nothing was spent, and nothing started."""


class TransactionLost(UserError):
    """A transaction that ended without being committed; nothing of it took effect."""


class CodecError(_PlacedError, PeerError, ValueError):
    """Bytes or text that are no event; `place` says where the fault is."""


class DecryptionError(PeerError):
    """A message that can't be decrypted; `key` is the id of the key that it needs, or None."""

    def __init__(self, queue: str, key: str | None, problem: str) -> None:
        which = "" if key is None else f"key {key}: "
        super().__init__(f"queue {queue!r}: {which}{problem}")
        self.queue = queue
        self.key = key
        self.problem = problem


class Disconnected(PeerError, ConnectionError):
    """A connection that was lost and not restored in time."""


class NoAnswer(PeerError, TimeoutError):
    """No answer in time from the node or another client."""


class RequestFailed(PeerError):
    """A request whose handler has failed; `error` is the name of its error, `problem` the text."""

    def __init__(self, error: str, problem: str) -> None:
        text = f"{error}: {problem}" if problem else error
        super().__init__(f"the handler of the request has failed: {text}")
        self.error = error
        self.problem = problem


class Refused(PeerError):
    """A refusal by the other side; `code` is one of the protocol's."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(f"{problem} [{code}]")
        self.code = code
        self.problem = problem


class StoreError(TidingsError):
    """A fault of the disk or of the files on it; `path` says where."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class StoreInUse(StoreError):
    """A directory that another process uses."""


class StoreTooNew(StoreError):
    """A directory written by a newer tidings."""


class StoreDamaged(StoreError):
    """A record that is not as it was written."""


class IndexFileError(StoreError):
    """A saved index that is cut, damaged or of another version; the text names the place in the file."""


class StoreFailed(StoreError):
    """A write that a full or broken disk did not take; nothing has changed."""
