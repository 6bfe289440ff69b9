"""Rights to answer a request, and to receive the answer.

A request says in `reply_to` to which inbox its answer goes. Such a subject can be read by others than those
who were asked, in the log for example, so knowing it gives no right: a user may publish to an inbox only what
answers a request that this node has delivered to that user, whatever the way. Nor can it deliver itself a
request in another's name: who asks, names an inbox of its own, or hands a request on that it may answer. And
an inbox is heard by its own user only, whatever else was granted. The owner of the node and other nodes,
which hand on what others have said, are not bound by this.

Requests are remembered by user, so that who reconnects may still answer, and by a digest, so that long names
cost no more than short ones. Those that were answered are forgotten first.

`look` is on the hot path of a node with security: one search for a few bytes in each batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from tidings.errors import CodecError
from tidings.event import Batch, Event
from tidings.event.wire import array_head
from tidings.exchange import NodeSubscription, Rows
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.protocol.access import Principal
from tidings.protocol.arguments import INBOX
from tidings.protocol.inboxes import InboxAddress, address_of, own_inboxes

REQUESTS_USER_MAX = 10_000
"""Requests that one user may answer at a time: first the answered, then the oldest are forgotten."""
REQUESTS_NODE_MAX = 200_000
"""The same of all users."""
ANSWER_S_MAX = 86_400.0
"""How long after its delivery a request may be answered."""

INBOXES = Filter("STARTS_WITH(subject, :name)", name=INBOX)
_DIGEST_SIZE = 16
_MARK = INBOX.encode()  # no event that has not these bytes is a request, or an answer


class Mentions(NamedTuple):
    """The rows of a batch that concern inboxes."""

    answers: dict[int, tuple[str, bytes]]  # the inbox it goes to, and which request it answers
    requests: dict[int, tuple[str, bytes]]  # the inbox that its answer goes to, and which request it is


NONE = Mentions({}, {})


class Answers:
    """Requests that users of a node may answer; users are principals bound by rules."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._until: OrderedDict[tuple[str, bytes], float] = OrderedDict()  # the oldest delivery first
        self._known: dict[str, OrderedDict[bytes, None]] = {}  # by user, the first to be forgotten first
        self._batch: Batch | None = None  # the one that was looked at last: it goes to many
        self._found = NONE

    def __len__(self) -> int:
        """Number of requests that may be answered."""
        return len(self._until)

    def look(self, batch: Batch) -> Mentions:
        """Return the rows of a batch that concern inboxes."""
        if batch is not self._batch:
            self._batch, self._found = batch, _mentions(batch) if _MARK in batch.raw else NONE
        return self._found

    # Requests

    def deliver(self, user: str, batch: Batch, rows: Rows, now: float) -> None:
        """These rows go to a user, who may answer the requests among them."""
        requests = self.look(batch).requests
        if requests:
            for row in rows:
                if row in requests:
                    self._note(user, requests[int(row)][1], now)

    def hand_out(self, user: str, raw: bytes, origin: Origin | None, now: float) -> None:
        """Note a request in a message that a user has got from a queue; one that can't be read is none."""
        if _MARK in raw:
            try:
                event = Batch(array_head(1) + raw, origin)[0]
            except CodecError:
                return
            if _is_request(event):
                self._note(user, _asked(event), now)

    def _note(self, user: str, request: bytes, now: float) -> None:
        known = self._known.setdefault(user, OrderedDict())
        known[request] = None
        known.move_to_end(request)
        self._until[user, request] = now + ANSWER_S_MAX
        self._until.move_to_end((user, request))
        if len(known) > REQUESTS_USER_MAX:
            self._forget(user, next(iter(known)))
        while self._until and (
            len(self._until) > REQUESTS_NODE_MAX or next(iter(self._until.values())) <= now
        ):
            self._forget(*next(iter(self._until)))

    def _forget(self, user: str, request: bytes) -> None:
        del self._until[user, request]
        known = self._known[user]
        del known[request]
        if not known:
            del self._known[user]

    # Answers

    def allowed(self, user: str, batch: Batch, rows: Rows, now: float) -> Rows:
        """Return the rows that a user may publish, as far as inboxes go."""
        answers, requests = self.look(batch)
        if not (answers or requests):
            return rows
        return [
            int(row)
            for row in rows
            if (row not in answers or self._answer(user, answers[int(row)][1], now))
            and self.may_ask(user, batch, int(row), now)
        ]

    def may_ask(self, user: str, batch: Batch, row: int, now: float) -> bool:
        """Whether a row asks for no answer to another's inbox, unless it hands a request on."""
        inbox, request = self.look(batch).requests.get(row, ("", b""))
        return not inbox or inbox.startswith(self._own(user)) or self._may(user, request, now)

    def _own(self, user: str) -> tuple[str, str]:
        return own_inboxes(self._node, user)

    def _may(self, user: str, request: bytes, now: float) -> bool:
        return self._until.get((user, request), now) > now

    def _answer(self, user: str, request: bytes, now: float) -> bool:
        """Whether a user may answer a request; if so, it can be forgotten before others."""
        is_known = self._may(user, request, now)
        if is_known:
            self._known[user].move_to_end(request, last=False)
        return is_known

    def refusal(self, principal: Principal, batch: Batch, row: int) -> str:
        """Why a row that has to do with an inbox was refused; empty if it has nothing to do with one."""
        answers, requests = self.look(batch)
        if principal.bound is None or not (row in answers or row in requests):
            return ""
        if row in answers:
            return (
                f"{principal.user!r} may answer only what was delivered to it, and with what it may publish"
            )
        own = " or ".join(f"{name}…" for name in self._own(principal.user))
        return f"{principal.user!r} may have answers sent to its own inboxes only: {own}"

    def addresses(self, batch: Batch) -> dict[int, InboxAddress]:
        """Return the rows of a batch that go to inboxes with a node in their names, and where these are."""
        answers = self.look(batch).answers.items()
        return {row: address for row, (inbox, _) in answers if (address := address_of(inbox)) is not None}

    def heard(
        self, batch: Batch, matches: list[tuple[NodeSubscription, Rows]]
    ) -> list[tuple[NodeSubscription, Rows]]:
        """The matches of a batch, less what goes to inboxes of others than the one who wants it."""
        answers = self.look(batch).answers
        if not answers:
            return matches
        heard: list[tuple[NodeSubscription, Rows]] = []
        for subscription, rows in matches:
            if subscription.user is not None:
                own = self._own(subscription.user)
                rows = [row for row in rows if row not in answers or answers[int(row)][0].startswith(own)]
            if len(rows):
                heard.append((subscription, rows))
        return heard


def hears(node: str, user: str | None, event: Event) -> bool:
    """Whether an event may be delivered to a user of a node as far as inboxes go.

    None is one bound by no rules.
    """
    subject = event.subject
    return (
        user is None
        or subject is None
        or not subject.startswith(INBOX)
        or subject.startswith(own_inboxes(node, user))
    )


def answers_to(node: str, user: str) -> tuple[Filter, Filter]:
    """Return the filters of answers to a user's own inboxes: with the node in their names, and without."""
    named, unnamed = (Filter("STARTS_WITH(subject, :name)", name=name) for name in own_inboxes(node, user))
    return named, unnamed


def without_others(node: str, user: str) -> Filter:
    """Everything but what is sent to inboxes of others."""
    named, unnamed = answers_to(node, user)
    return Filter("subject IS NULL") | ~INBOXES | named | unnamed


def _mentions(batch: Batch) -> Mentions:
    answers: dict[int, tuple[str, bytes]] = {}
    requests: dict[int, tuple[str, bytes]] = {}
    for row in _marked(batch):
        event = batch[row]
        if event.subject is not None and event.subject.startswith(INBOX):
            answers[row] = event.subject, _digest(event.subject, event.correlation_id or "")
        if _is_request(event):
            requests[row] = event.reply_to or "", _asked(event)
    return Mentions(answers, requests)


def _marked(batch: Batch) -> Iterable[int]:
    """The rows that may have to do with inboxes."""
    raw, offsets = batch.raw, batch.offsets
    return (row for row in range(len(batch)) if raw.find(_MARK, offsets[row], offsets[row + 1]) >= 0)


def _is_request(event: Event) -> bool:
    return event.reply_to is not None and event.reply_to.startswith(INBOX)


def _asked(event: Event) -> bytes:
    """Which request it is: where its answer goes, and what that says in `correlation_id`."""
    return _digest(event.reply_to or "", event.correlation_id or event.id or "")


def _digest(inbox: str, correlation: str) -> bytes:
    return blake2b(f"{len(inbox)}:{inbox}{correlation}".encode(), digest_size=_DIGEST_SIZE).digest()
