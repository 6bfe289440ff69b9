"""The client's view of a queue, at this node or another: put, get, read and watch.

    queue = await bus.create_queue("jobs")
    await queue.put("job", number=1, color="blue")
    message = await queue.get(where="color = 'blue'", timeout_s=5)

`where` selects messages: a filter, its text, or an example (an event or a mapping) of which every field must
be equal. `timeout_s` says how long to wait for a message: None without a limit, 0 not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any, Literal

from tidings.client.crew import GRACE_S, Stop, until_signalled
from tidings.client.encryption import QueueKeys
from tidings.client.get import (
    PREFETCH,
    PREFETCH_MAX,
    GetAnswer,
    ReceivedMessage,
    Where,
    check_count,
    check_time,
    condition,
    fetch,
    give_up,
    whole,
)
from tidings.client.message import Holder, Message, PageCollector, Take, wait_handed
from tidings.client.message import acknowledge as acknowledge_arrived
from tidings.client.put import Putter, event_of, plan_of
from tidings.client.requests import Inbox
from tidings.client.subscription import Subscription, noted
from tidings.client.transaction_core import TransactionCore
from tidings.client.work import PAUSE_S, Errors, Outcomes, QueueWorker, WorkHandler, WorkPlan
from tidings.client.worker import Acknowledge, MessageLoop, Messages
from tidings.errors import DecryptionError, EventError, MessageNotHeld, QueueError, UserError
from tidings.event import Event
from tidings.event.typed import Typed
from tidings.protocol.subscriber import Wanted
from tidings.queues.description import NAME_LENGTH_MAX, SECONDS_MAX, Description, read_description
from tidings.transport.link import Link

ADDRESS_LENGTH_MAX = 2 * NAME_LENGTH_MAX + 1
"""Characters of `name@node`."""
PREFETCH_WATCH = 1_000
"""Copies that may be on their way to a watch or wait in it, by default."""
GET_TRIES_MAX = 100
"""Messages that one `get` may lose to others before it has acknowledged them."""
PAGE = 1_000
"""Messages per request of calls that fetch all."""

WatchSlow = Literal["drop-oldest", "latest", "block"]
"""The node's way with copies when a watch is too slow."""


class Queue:
    """A queue, at this node or another; made by `Bus.create_queue` and `Bus.queue`."""

    def __init__(
        self,
        link: Link,
        inbox: Inbox,
        name: str,
        description: Description | None = None,
        keys: QueueKeys | None = None,
    ) -> None:
        self.name = name
        """The name that the client used; `name@node` if another node has the queue."""
        self._link = link
        self._inbox = inbox
        self._description = description
        self._keys = keys
        self._putter = Putter(link, name, keys)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    # What it is

    @property
    def description(self) -> Description:
        """The description that the node last returned; `describe` asks again."""
        if self._description is None:
            raise UserError(f"queue {self.name!r} has no description yet; await describe() first")
        return self._description

    async def describe(self, *, timeout_s: float | None = None) -> Description:
        """Ask the node for the description, with the current number of messages."""
        asked = {"queue": self.name}
        self._description = read_description(
            await self._link.call("queue.describe", asked, check_time(timeout_s), "again")
        )
        return self._description

    async def is_empty(self) -> bool:
        """Whether no message is available; messages in flight may come back."""
        return (await self.describe()).messages == 0

    async def is_full(self) -> bool:
        """Whether the queue would refuse a further message."""
        return (await self.describe()).is_full

    # Putting

    async def put(
        self,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        delay_s: float | None = None,
        not_before: datetime | None = None,
        group: str | None = None,
        transaction: TransactionCore | None = None,
        timeout_s: float | None = None,
        **fields: object,
    ) -> None:
        """Put an event, or one made of a type, attributes and header fields; it is in the queue on return.

        `data=` puts a model into the event. In a persistent queue it is on disk on return; in a transaction
        it is put when that commits. Raises QueueFull if there is no room. No consumer gets it before
        `delay_s` seconds have passed, or before `not_before`, a time with its zone. Messages of one `group`
        go to one consumer at a time, in their order.

        A put that is not accepted in time, or is cancelled, is withdrawn if it was not sent; otherwise the
        error has `may_be_accepted`. The same Event can be put again after an error: it keeps its number, so
        the node takes it once.
        """
        if "delay" in fields:  # an attribute that events may well have, but hardly by a put
            raise UserError("delay is no option; use delay_s, or give the attribute in a mapping")
        made = event_of(event, attributes, fields)
        plan = plan_of(delay_s, not_before, group)
        await self._putter.put(made, transaction, check_time(timeout_s), plan)

    async def put_all(
        self,
        events: Iterable[Event],
        *,
        delay_s: float | None = None,
        not_before: datetime | None = None,
        group: str | None = None,
        transaction: TransactionCore | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Put many events and wait once; a delay and a group are those of all of them, as with `put`.

        After a refusal nothing further is put; `put` of the error counts the events that are in the queue,
        `left` lists those that are not. If the node does not answer in time, `left` lists those that may not
        be there; they can be put again.
        """
        plan = plan_of(delay_s, not_before, group)
        await self._putter.put_all(events, transaction, check_time(timeout_s), plan)

    async def request(
        self,
        event: Event | Typed | str,
        attributes: Mapping[str, object] | None = None,
        /,
        *,
        timeout_s: float | None = None,
        **fields: object,
    ) -> Event:
        """Put a request and return its consumer's answer; raises NoAnswer if none comes in time.

        Without a `timeout_s` the limit is the `call_timeout_s` of the bus. Raises RequestFailed if the answer
        is an error reply.
        """
        asked = event_of(event, attributes, fields)
        return await self._inbox.ask(asked, self.put, check_time(timeout_s))

    # Getting

    async def get(
        self,
        where: Where = None,
        *,
        timeout_s: float | None = None,
        if_exists: bool = False,
        transaction: TransactionCore | None = None,
    ) -> Message:
        """Get the first matching message, acknowledged on arrival; raises QueueEmpty if none comes in time.

        On return the node has the acknowledgement, on disk if the queue is persistent; `timeout_s` does not
        cover that. In a transaction the message is held, and removed when that commits. `if_exists`: wait
        only while another client's transaction may give one back.
        """
        arguments = self._taking(where, if_exists, transaction)
        holder, begun_at, left_s = Holder(self._link, self.name, self._keys), self._link.now, timeout_s
        for _ in range(GET_TRIES_MAX):
            limit_s = inf if transaction is None else transaction.left_s
            handed = await wait_handed(self._link, self.name, arguments, check_time(left_s), limit_s)
            messages = await self._opened(holder, handed, transaction)
            if transaction is not None or await acknowledge_arrived(holder, messages):
                return messages[0]
            if timeout_s is not None:
                left_s = max(0.0, begun_at + timeout_s - self._link.now)
        raise MessageNotHeld(self.name, f"{GET_TRIES_MAX} messages went back before they were acknowledged")

    async def hold(self, where: Where = None, *, timeout_s: float | None = None) -> tuple[Holder, Message]:
        """Take the first matching message, and return it with who settles it; QueueEmpty if none comes."""
        holder = Holder(self._link, self.name, self._keys)
        arguments = self._taking(where, False, None)
        handed = await wait_handed(self._link, self.name, arguments, check_time(timeout_s))
        (message,) = await holder.open(handed.messages[:1])
        return holder, message

    async def get_all(
        self, where: Where = None, *, transaction: TransactionCore | None = None
    ) -> list[Message]:
        """Get all matching messages that are in the queue now, acknowledged when all have arrived.

        On return the node has the acknowledgements, as with `get`. If the call fails, no message was taken,
        in a transaction either. It raises MessageNotHeld if it takes longer than a message may be held, the
        queue's `redelivery_s`.
        """
        arguments = {**self._taking(where, False, transaction), "queue": self.name, "count": PAGE}
        arguments["together"] = True
        holder = Holder(self._link, self.name, self._keys)
        gathering = PageCollector(holder, transaction)
        try:
            while gathering.expects(handed := await fetch(self._link, arguments, 0)):
                arguments.setdefault("up_to", handed.last)  # others may go on putting
                gathering.add(handed, await self._opened(holder, handed, transaction))
        except BaseException:
            gathering.give_back()
            raise
        return await gathering.finish()

    def take(self, where: Where = None, *, timeout_s: float | None = None, if_exists: bool = False) -> Take:
        """Take one message for an `async with` block: acknowledged at its end, released if it raises."""
        arguments = self._taking(where, if_exists, None)
        return Take(Holder(self._link, self.name, self._keys), arguments, check_time(timeout_s))

    def messages(
        self, where: Where = None, *, prefetch: int = PREFETCH, acknowledge: Acknowledge = "auto"
    ) -> Messages:
        """Consume the messages that match: an async iterator that waits for more.

        `acknowledge`: `auto`, each message when the next one is requested; `client`, by an explicit call, for
        all messages delivered so far; `dups-ok`, some at a time, so a few may be redelivered after a crash.
        """
        if acknowledge not in ("auto", "client", "dups-ok"):
            raise UserError(f"acknowledge must be 'auto', 'client' or 'dups-ok', not {acknowledge!r}")
        check_count("prefetch", prefetch, 0, PREFETCH_MAX)
        worker = MessageLoop(
            self._link, self.name, self._keys, noted(condition(where)), prefetch, acknowledge
        )
        return Messages(worker)

    async def work(
        self,
        handler: WorkHandler,
        where: Where = None,
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        reject: Errors = (),
        deliveries_max: int | None = None,
        pause_s: float = PAUSE_S,
        count: int | None = None,
        timeout_s: float | None = None,
        stop: Stop | None = None,
        signals: bool = False,
        grace_s: float | None = GRACE_S,
    ) -> Outcomes:
        """Call a handler with each message that matches, `concurrency` of them side by side, until stopped.

        A coroutine function runs in the event loop, a plain function in a thread. A message is acknowledged
        when the handler returns, and released for redelivery when it raises; then the worker pauses for
        `pause_s`. An error of a class in `reject`, or any error in delivery `deliveries_max` or a later one,
        makes it a dead letter. The handler may also settle the message itself.

        The worker ends when `stop` is set, after `count` messages, or when none has come for `timeout_s`.
        With `signals`, SIGTERM or SIGINT stops it too. It takes no further message then, gives back those
        that it has fetched ahead, and lets running handlers finish for `grace_s`; after that, or with a
        second signal, it cancels them and releases their messages.
        """
        plan = WorkPlan(
            *(condition(where), concurrency, prefetch, reject, deliveries_max),
            *(pause_s, count, timeout_s, grace_s),
        )
        worker = QueueWorker(self._link, self.name, self._keys, handler, plan)
        await (until_signalled(worker.run, stop) if signals else worker.run(stop))
        return worker.outcomes

    def _taking(self, where: Where, if_exists: bool, transaction: TransactionCore | None) -> dict[str, Any]:
        number = 0 if transaction is None else transaction.number
        asked = {"where": condition(where), "action": "take"}
        return {**asked, **({"if_exists": True} if if_exists else {}), "transaction": number}

    async def _opened(
        self, holder: Holder, handed: GetAnswer, transaction: TransactionCore | None
    ) -> list[Message]:
        """Return the delivered messages, held by the holder or the transaction.

        If that fails they are given back, but a message that can't be decrypted counts as delivered when the
        transaction is rolled back, so that it is not redelivered without end.
        """
        if transaction is None:
            return await holder.open(handed.messages)
        try:
            return [Message(one, await self._whole(one), transaction) for one in handed.messages]
        except DecryptionError:
            transaction.spoil("a message that was got in it can't be decrypted")
            raise
        except BaseException:
            give_up(self._link, handed.request)
            raise

    async def _whole(self, received: ReceivedMessage) -> Event:
        return await whole(self._link, self.name, received, self._keys)

    # Looking

    async def read(
        self,
        where: Where = None,
        *,
        timeout_s: float | None = 0,
        if_exists: bool = False,
        transaction: TransactionCore | None = None,
    ) -> Event:
        """Read the first matching message, which stays in the queue; QueueEmpty if none comes in time."""
        arguments = {**self._taking(where, if_exists, transaction), "action": "read"}
        limit_s = inf if transaction is None else transaction.left_s
        handed = await wait_handed(self._link, self.name, arguments, check_time(timeout_s), limit_s)
        return await self._whole(handed.messages[0])

    async def read_all(
        self, where: Where = None, *, transaction: TransactionCore | None = None
    ) -> list[Event]:
        """Read all matching messages that are in the queue now; they stay there."""
        arguments = {**self._taking(where, False, transaction), "action": "read"}
        return [await self._whole(one) for one in await self._pages(arguments)]

    async def headers(self, where: Where = None) -> list[Event]:
        """Read the same messages without their bodies."""
        arguments = {**self._taking(where, False, None), "action": "read", "bodies": False}
        return [one.event for one in await self._pages(arguments)]

    async def _pages(self, arguments: dict[str, Any]) -> list[ReceivedMessage]:
        """Read page by page, up to the message that is the last when the call begins."""
        asked = {**arguments, "queue": self.name, "count": PAGE}
        received: list[ReceivedMessage] = []
        while True:
            handed = await fetch(self._link, asked, 0)
            received += handed.messages
            if handed.next is None:
                return received
            asked["after"] = handed.next
            asked.setdefault("up_to", handed.last)

    def watch(
        self,
        where: Where = None,
        *,
        on_slow: WatchSlow = "drop-oldest",
        slow_key: str | None = None,
        prefetch: int = PREFETCH_WATCH,
        timeout_s: float | None = None,
    ) -> Subscription:
        """Watch the queue: copies of matching messages that are put from now on; nothing is taken.

        Copies are as the node stores them: bodies stay encrypted until `decrypt` is called, and a copy holds
        only the first SEGMENT_SIZE bytes of a long body.
        """
        check_count("prefetch", prefetch, 1, PREFETCH_MAX)
        wanted = Wanted(noted(condition(where)), on_slow=on_slow, slow_key=slow_key, queue=self.name)
        return Subscription(self._link, wanted, prefetch, "auto", check_time(timeout_s))

    def decrypt(self, copy: Event) -> Event:
        """Return a watch's copy decrypted; it holds only the first part of a long body."""
        if self._keys is None:
            raise UserError(f"queue {self.name!r} was opened without keys; give them to Bus.queue")
        return self._keys.decrypt(copy)

    # Keeping order

    async def purge(self, where: Where = None, *, timeout_s: float | None = None) -> int:
        """Delete all matching messages and return their number."""
        asked = {"queue": self.name, "where": condition(where)}
        return int(await self._link.call("queue.purge", asked, check_time(timeout_s)))

    async def renew(self, message: Event | Message | str, lease_s: float) -> float:
        """Renew the lease of a message, given as such or by id; return the seconds granted, 0 if it ended."""
        identity = message if isinstance(message, str) else message.id
        if not identity:
            raise EventError("$.id", "is not set: only a message that came out of a queue has one")
        if check_time(lease_s, "lease_s") is None:
            raise UserError(f"lease_s must be 0 to {SECONDS_MAX:g} seconds, not None")
        asked = {"queue": self.name, "id": identity, "lease_s": lease_s}
        return float(await self._link.call("queue.renew", asked, None, "again"))


def check_name(name: str) -> str:
    """Return the name, id or address of a queue; raises QueueError if it can't be one."""
    if type(name) is not str or not 1 <= len(name) <= ADDRESS_LENGTH_MAX:
        raise QueueError(str(name), f"a queue's name must have 1 to {ADDRESS_LENGTH_MAX} characters")
    return name
