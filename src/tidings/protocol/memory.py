"""Memory: how much each client makes the node hold, within a budget of its session, its user and the node.

What waits for clients is weighed when a tick ends: outboxes, events that wait for credit or for room,
filters, and bytes of frames that have not come whole. Rows that were staged for sinks, and recent values,
count as well. Each session has an account within that of its user, and users have theirs within that of the
node; the owner of the node has none beside the node's.

Past a budget the largest waiter below it loses its oldest events, which is reported to its client and counted
in metrics; a client that holds nothing that could be dropped is disconnected. A request that needs memory
first, such as a filter, is refused instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tidings.errors import Refused
from tidings.event import Batch

if TYPE_CHECKING:
    from tidings.protocol.session import Session

ENTRY_SIZE = 200
"""About what it costs to have one batch wait for one subscription, beside its bytes."""
FILTER_SIZE = 2_000
"""About what a subscription or an advertisement costs, beside its filter."""
FILTER_FACTOR = 16
"""Bytes that a character of a filter costs: its tree, its normal form and its place in the index."""
SHARE_MIN = 16
"""Nobody loses anything who holds less than this part of a budget; last values have no more of the node's."""
ROUNDS_MAX = 64
"""How often in one tick somebody is made to lose something."""


class Budgets(Struct, frozen=True):
    """Limits on bytes that a node holds for clients: all of them, one user, one session, last values."""

    memory_max: int = 4 << 30
    memory_user_max: int = 2 << 30
    memory_session_max: int = 512 << 20
    last_values_max: int = 64 << 20  # within the first


class MemoryAccount:
    """Memory that the node holds for one party; `limit_name` is the setting that limits it."""

    __slots__ = ("accounts", "limit", "limit_name", "parent", "session", "used")

    def __init__(
        self, limit_name: str, limit: int, parent: MemoryAccount | None = None, session: Session | None = None
    ) -> None:
        self.limit_name = limit_name
        self.limit = limit
        self.parent = parent
        self.session = session
        self.used = 0
        self.accounts: dict[MemoryAccount, None] = {}  # those within this one
        if parent is not None:
            parent.accounts[self] = None

    def check(self, size: int) -> None:
        """Raise Refused, naming the limit, if there is no room for so many bytes more."""
        account: MemoryAccount | None = self
        while account is not None:
            if account.used + size > account.limit:
                problem = f"{account.used} bytes are held, and {size} more are above {account.limit_name} = "
                raise Refused("limit", f"{problem}{account.limit}")
            account = account.parent

    def close(self) -> None:
        """End the account; what it has used is used no longer, and what it is charged is nobody's."""
        if self.parent is not None:
            self.parent.accounts.pop(self, None)
        account, self.parent = self.parent, None
        while account is not None:
            account.used -= self.used
            account = account.parent


class Memory:
    """All accounts of a node."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self.node = MemoryAccount("memory_max", budgets.memory_max)
        self.recent_max = budgets.memory_max // SHARE_MIN  # bytes of the newest events of all kinds
        self.last_values_max = min(budgets.last_values_max, self.recent_max)
        self._users: dict[str, MemoryAccount] = {}
        self._over: dict[
            MemoryAccount, None
        ] = {}  # those that were above their limits when they were charged

    def user(self, name: str) -> MemoryAccount:
        """The account of a user; the owner, who has no name, has that of the node."""
        if not name:
            return self.node
        if name not in self._users:
            self._users[name] = MemoryAccount("memory_user_max", self._budgets.memory_user_max, self.node)
        return self._users[name]

    def open(self, session: Session, user: str) -> MemoryAccount:
        """An account for a session of this user."""
        return MemoryAccount("memory_session_max", self._budgets.memory_session_max, self.user(user), session)

    def charge(self, account: MemoryAccount | None, size: int) -> None:
        """Count bytes that an account uses more, or less if negative."""
        while account is not None:
            account.used += size
            if account.used > account.limit:
                self._over[account] = None
            account = account.parent

    def enforce(self) -> None:
        """Have the largest waiters lose what they can, where accounts are above their limits."""
        while self._over:
            over, self._over = self._over, {}
            for account in over:
                self._shrink(account)

    def _shrink(self, account: MemoryAccount) -> None:
        for _ in range(ROUNDS_MAX):
            largest = _largest(account)
            if account.used <= account.limit or largest.session is None:
                return
            if largest.used < account.limit // SHARE_MIN:
                return  # it is not the sessions that hold so much
            largest.session.shrink(account.used - account.limit, account.limit_name)


def _largest(account: MemoryAccount) -> MemoryAccount:
    """Of the accounts within this one, the user's that has used most, and of its sessions' the same."""
    while account.accounts:
        account = max(account.accounts, key=lambda one: one.used)
    return account


class Holdings:
    """The batches that wait for one client, each weighed once however many subscriptions it waits for."""

    __slots__ = ("_times", "size")

    def __init__(self) -> None:
        self.size = 0
        self._times: dict[int, int] = {}  # how often each waits, by its identity: whoever waits keeps it

    def add(self, part: Batch) -> None:
        """A batch waits for a subscription."""
        key = id(part)
        times = self._times.get(key, 0)
        self._times[key] = times + 1
        self.size += ENTRY_SIZE if times else ENTRY_SIZE + len(part.raw)

    def remove(self, part: Batch) -> None:
        """Remove a batch that does not wait any more."""
        key = id(part)
        times = self._times.pop(key) - 1
        if times:
            self._times[key] = times
        self.size -= ENTRY_SIZE if times else ENTRY_SIZE + len(part.raw)


def filter_size(text: str) -> int:
    """About how many bytes a subscription with this filter costs."""
    return FILTER_SIZE + FILTER_FACTOR * len(text)
