"""The queues of a node, as its clients manage them: made, found and deleted by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, get_args

import msgspec

from tidings.client.encryption import Keyring, QueueKeys
from tidings.client.fetching import Where, check_time, condition
from tidings.client.queue import Queue, check_name
from tidings.client.requests import Inbox
from tidings.errors import CodecError, QueueError, QueueNotFound, UserError
from tidings.filters import Filter
from tidings.queues import arguments
from tidings.queues.description import TOLD, Description, Property, Sought, read_description, read_fields
from tidings.transport.link import Link

Scope = arguments.Scope


class Wish(TypedDict, total=False):
    """What can be asked of a queue; `tidings.queues.description` says what each of these means."""

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
    bind: Filter | str | None
    passive: bool
    redelivery_s: float | None
    deliveries_max: int | None
    compress: bool


class Queues:
    """See the module."""

    def __init__(self, link: Link, inbox: Inbox) -> None:
        self._link = link
        self._inbox = inbox
        self._keys: dict[str, QueueKeys] = {}  # by the names of queues

    async def create(
        self, name: str | None, wish: Wish, timeout_s: float | None, keys: Keyring | None = None
    ) -> Queue:
        """Make a queue, or find the one that is the same."""
        asked = wished(name, dict(wish))
        return self._queue(await self._call("queue.create", asked, timeout_s), name, keys)

    async def find(self, name: str, timeout_s: float | None, keys: Keyring | None = None) -> Queue:
        """The queue of this name."""
        asked = {"queue": check_name(name)}
        return self._queue(await self._call("queue.describe", asked, timeout_s), name, keys)

    async def delete(self, name: str, timeout_s: float | None) -> None:
        """Delete it."""
        session = self._link.core.session
        try:
            await self._call("queue.delete", {"queue": check_name(name)}, timeout_s)
        except QueueNotFound:
            if session == self._link.core.session:
                raise  # otherwise it was deleted before the connection broke

    async def alias(self, name: str, target: str, timeout_s: float | None) -> Queue:
        """Give it a further name."""
        asked = {"name": check_name(name), "target": check_name(target)}
        description = read_description(await self._call("queue.alias", asked, timeout_s))
        keys = self._keys.get(description.name)
        return Queue(self._link, self._inbox, name, description, keys)

    async def lookup(
        self,
        name: str | None,
        properties: Mapping[str, Property] | None,
        text: str | None,
        scope: Scope,
        timeout_s: float | None,
        fields: Mapping[str, Any],
    ) -> list[Description]:
        """All that agree with what is given."""
        if scope not in get_args(Scope):
            raise UserError(f"scope={scope!r}: 'local', 'remote' or 'both'")
        told = None if properties is None else dict(properties)
        elsewhere = None if scope == "local" else scope
        sought = read_fields(_plain(fields))
        given = {"name": name, "text": text, "properties": told, "scope": elsewhere, "fields": sought or None}
        asked = {key: value for key, value in given.items() if value is not None}
        found = await self._call("queue.find", asked, timeout_s)
        if not isinstance(found, list):
            raise CodecError("$.queue.find", "is no list of descriptions")
        descriptions = [read_description(one) for one in found]
        # A node that is older than this client passes the fields over.
        return [one for one in descriptions if one.agrees(Sought(fields=sought))]

    async def replay(self, where: Where, queue: str | None, timeout_s: float | None) -> int:
        """Put dead letters back."""
        asked: dict[str, Any] = {"where": condition(where)}
        if queue is not None:
            asked["queue"] = check_name(queue)
        return int(await self._link.call("queue.replay", asked, check_time(timeout_s)))

    async def _call(self, operation: str, arguments: dict[str, Any], timeout_s: float | None) -> Any:
        """A request that may be repeated after a cut, as it changes nothing the second time."""
        return await self._link.call(operation, arguments, check_time(timeout_s), "again")

    def named(self, name: str) -> Queue:
        """The queue of this name, which is not asked for, with the keys that it had before."""
        return Queue(self._link, self._inbox, check_name(name), None, self._keys.get(name))

    def _queue(self, told: Any, name: str | None, ring: Keyring | None = None) -> Queue:
        description = read_description(told)
        called = self._address(description, name)
        keys = None if ring is None else QueueKeys(ring, description.name)
        if keys is not None:  # for whoever names the queue in a transaction, or gives it another name
            self._keys[description.name] = self._keys[called] = keys
        return Queue(self._link, self._inbox, called, description, keys)

    def _address(self, description: Description, name: str | None) -> str:
        """How a queue is asked for from now on: others are asked for it once."""
        node = description.node
        if node and node not in (self._link.core.node_name, self._link.core.node):
            return f"{description.name or name}@{node}"
        return name or description.name


def wished(name: str | None, wish: dict[str, Any]) -> dict[str, Any]:
    """What is asked for, as it is sent; QueueError if no queue can be so."""
    shown = name if isinstance(name, str) else ""
    if name is not None:
        wish["name"] = check_name(name)
    if wrong := sorted(TOLD & wish.keys()):
        raise QueueError(shown, f"{wrong[0]} is told by the node, and can't be asked for")
    wish = _plain(wish)
    try:
        asked: dict[str, Any] = msgspec.to_builtins(msgspec.convert(wish, Description))
    except msgspec.ValidationError as error:
        raise QueueError(shown, str(error)) from None
    return asked


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a description, a filter among them as its text."""
    return {name: str(value) if isinstance(value, Filter) else value for name, value in fields.items()}
