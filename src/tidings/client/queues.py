"""The queues of a node, as its clients manage them: made, found and deleted by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypedDict, Unpack, get_args, overload

import msgspec

from tidings.client.bus_part import BusPart
from tidings.client.encryption import Keyring, QueueKeys
from tidings.client.federated import FederatedSpace
from tidings.client.get import Where, check_time, condition
from tidings.client.queue import Queue, check_name
from tidings.client.requests import Inbox
from tidings.client.space import Space
from tidings.client.transaction import TRANSACTION_S, Transaction
from tidings.errors import CodecError, QueueError, QueueNotFound, UserError, in_words
from tidings.filters import Filter
from tidings.queues import arguments
from tidings.queues.description import (
    REPORTED,
    Description,
    Property,
    QueueSearch,
    read_description,
    read_fields,
)

Scope = arguments.Scope


class QueueOptions(TypedDict, total=False):
    """The options of a queue; `tidings.queues.description` documents each."""

    text: str
    properties: Mapping[str, Property]
    type: str
    persistent: bool | None
    keep: bool | None
    priorities: bool
    priority: int | None
    ageing_s: float | None
    expiry: bool
    ttl_s: float | None
    lease_s_max: float | None
    max_messages: int | None
    max_bytes: int | None
    bind: Filter | str | None
    passive: bool
    redelivery_s: float | None
    deliveries_max: int | None
    retry_s: Sequence[float]
    rate: float | None
    compress: bool


class BusQueues(BusPart):
    """The part of a bus for the node's queues and spaces."""

    def __init__(self) -> None:
        self._keys: dict[str, QueueKeys] = {}  # by the names of queues

    @property
    @abstractmethod
    def _asking(self) -> Inbox:
        """The inbox where answers to requests arrive."""

    async def create_queue(
        self,
        name: str | None = None,
        *,
        keys: Keyring | None = None,
        timeout_s: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Queue:
        """Create a queue, or return the existing one; raises QueueExists if its description differs.

        Without a name its id is its name; `QueueOptions` lists the options. With keys the client encrypts and
        decrypts the bodies of messages, and the node does not see them.
        """
        asked = wished(name, dict(options))
        return self._described(await self._manage("queue.create", asked, timeout_s), name, keys)

    async def queue(self, name: str, *, keys: Keyring | None = None, timeout_s: float | None = None) -> Queue:
        """Return the queue of this name, alias, id or `name@node`; raises QueueNotFound if there is none.

        For keys see `create_queue`.
        """
        asked = {"queue": check_name(name)}
        return self._described(await self._manage("queue.describe", asked, timeout_s), name, keys)

    async def delete_queue(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a queue with its messages, or only an alias."""
        session = self._link.core.session
        try:
            await self._manage("queue.delete", {"queue": check_name(name)}, timeout_s)
        except QueueNotFound:
            if session == self._link.core.session:
                raise  # otherwise it was deleted before the connection broke

    async def create_alias(self, name: str, target: str, *, timeout_s: float | None = None) -> Queue:
        """Give a queue a further name."""
        asked = {"name": check_name(name), "target": check_name(target)}
        description = read_description(await self._manage("queue.alias", asked, timeout_s))
        keys = self._keys.get(description.name)
        return Queue(self._link, self._asking, name, description, keys)

    async def lookup(
        self,
        name: str | None = None,
        properties: Mapping[str, Property] | None = None,
        text: str | None = None,
        scope: Scope = "local",
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> list[Description]:
        """Return the descriptions of all queues that match the given arguments.

        `fields` are other fields of the description: `type`, `persistent`, `keep`, `priorities`, `expiry`,
        `max_messages` and so on, and `id`. A limit of None finds queues without one.
        """
        if scope not in get_args(Scope):
            raise UserError(f"scope must be 'local', 'remote' or 'both', not {scope!r}")
        own = None if properties is None else dict(properties)
        elsewhere = None if scope == "local" else scope
        sought = read_fields(_plain(fields))
        given = {"name": name, "text": text, "properties": own, "scope": elsewhere, "fields": sought or None}
        asked = {key: value for key, value in given.items() if value is not None}
        found = await self._manage("queue.find", asked, timeout_s)
        if not isinstance(found, list):
            raise CodecError("$.queue.find", "is no list of descriptions")
        descriptions = [read_description(one) for one in found]
        # A node that is older than this client ignores the fields.
        return [one for one in descriptions if one.agrees(QueueSearch(fields=sought))]

    async def replay_dead(
        self, where: Where = None, queue: str | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Put dead letters back into their queues, or into another one, and return their number."""
        asked: dict[str, Any] = {"where": condition(where)}
        if queue is not None:
            asked["queue"] = check_name(queue)
        return int(await self._link.call("queue.replay", asked, check_time(timeout_s)))

    @overload
    async def space(
        self,
        name: str,
        *,
        federated: Literal[False] = False,
        timeout_s: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Space: ...
    @overload
    async def space(
        self,
        name: str,
        *,
        federated: Literal[True],
        timeout_s: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> FederatedSpace: ...
    async def space(
        self,
        name: str,
        *,
        federated: bool = False,
        timeout_s: float | None = None,
        **options: Unpack[QueueOptions],
    ) -> Space | FederatedSpace:
        """Return the space of this name, a queue addressed by content; it is created if there is none.

        `federated`: together with the spaces of that name at the peers of this node, for as long as they are
        connected. `QueueOptions` lists the options; raises QueueExists if it exists with others.
        """
        if not options and not federated:
            with suppress(QueueNotFound):
                return Space(await self.queue(name, timeout_s=timeout_s), self.transaction)
        wanted: QueueOptions = {"expiry": True, **options}
        own = Space(await self.create_queue(name, timeout_s=timeout_s, **wanted), self.transaction)
        if not federated:
            return own
        return FederatedSpace(own, self.lookup, self._space_like, self.transaction)

    def _space_like(self, own: Space, name: str) -> Space:
        """Return a space by the address of its queue, described like another, without asking the node."""
        queue = Queue(self._link, self._asking, check_name(name), own.description)
        return Space(queue, self.transaction)

    def transaction(self, timeout_s: float | None = TRANSACTION_S) -> Transaction:
        """Return a transaction over queues and publications, for `async with`; lost after `timeout_s`."""
        return Transaction(self._link, self._named, timeout_s)

    async def _manage(self, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        """Send an idempotent request, which is repeated after a lost connection."""
        return await self._link.call(operation, arguments, check_time(timeout_s), "again")

    def _named(self, name: str) -> Queue:
        """Return the queue of this name, with the keys that it had before, without asking the node."""
        return Queue(self._link, self._asking, check_name(name), None, self._keys.get(name))

    def _described(self, reply: Any, name: str | None, ring: Keyring | None) -> Queue:
        description = read_description(reply)
        called = self._address(description, name)
        keys = None if ring is None else QueueKeys(ring, description.name)
        if keys is not None:  # for transactions that name the queue, and for aliases
            self._keys[description.name] = self._keys[called] = keys
        return Queue(self._link, self._asking, called, description, keys)

    def _address(self, description: Description, name: str | None) -> str:
        """Return the name for further requests: with the node's, so that peers are asked only once."""
        node = description.node
        if node and node not in (self._link.core.node_name, self._link.core.node):
            return f"{description.name or name}@{node}"
        return name or description.name


def wished(name: str | None, wish: dict[str, Any]) -> dict[str, Any]:
    """Return the description to request, as it is sent; raises QueueError if no queue can have it."""
    shown = name if isinstance(name, str) else ""
    if name is not None:
        wish["name"] = check_name(name)
    if wrong := sorted(REPORTED & wish.keys()):
        raise QueueError(shown, f"{wrong[0]} is set by the node, and can't be requested")
    wish = _plain(wish)
    try:
        asked: dict[str, Any] = msgspec.to_builtins(msgspec.convert(wish, Description))
    except msgspec.ValidationError as error:
        raise QueueError(shown, in_words(error)) from None
    return asked


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a description, a filter among them as its text."""
    return {name: str(value) if isinstance(value, Filter) else value for name, value in fields.items()}
