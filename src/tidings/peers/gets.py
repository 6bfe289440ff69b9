"""Getting from queues elsewhere: what a client waits for there, what it is handed, and what may be got.

What a client may get is said by its own node, as a filter that is added to what it asks for. Where nothing
can be added, as a message is named and not described, a client that may get some messages only is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tidings.errors import CodecError, MessageNotHeld, NotAllowed, QueueError, Refused, TidingsError
from tidings.filters import Filter
from tidings.ids import Origin
from tidings.peers.hands import Hands
from tidings.peers.relay import Handed, Row
from tidings.protocol.service import LATER, Asked
from tidings.protocol.session import Session
from tidings.queues.arguments import Get, Part, Renew
from tidings.queues.elsewhere import Way
from tidings.queues.getting import identity, wanted_filter


class Gets:
    """See the module."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._waiting: dict[Session, dict[int, Callable[[], None]]] = {}  # what cancels those that wait

    def parted(self, session: Session) -> None:
        """A session has ended: it waits for nothing any more."""
        for cancel in list(self._waiting.pop(session, {}).values()):
            cancel()

    def get(self, asked: Asked, wanted: Get, way: Way) -> Any:
        """Answer with messages from elsewhere, when there are some."""
        session = asked.session
        if wanted.transaction:
            problem = "it is elsewhere: a transaction can put into it, and neither get nor read there"
            raise QueueError(way.address, problem)
        if asked.number in self._waiting.get(session, {}):
            raise Refused("exists", f"get {asked.number} is waiting already")
        granted = session.allow("get", way.address)
        filter = wanted_filter(wanted.where)
        if granted is not None:
            wanted = replace(wanted, where=str(granted if filter is None else filter & granted))
        if not self._get_again(asked):
            self._begin(asked, wanted, way)
        return LATER

    def _get_again(self, asked: Asked) -> bool:
        """Tell a client what it was told on an earlier connection; whether it holds any of that."""
        again = self._hands.take_again(asked.session, asked.number)
        if again:
            answer(asked, Handed([hand.row for hand in again], held_s=again[0].lot.held_s), None)
        return bool(again)

    def _begin(self, asked: Asked, wanted: Get, way: Way) -> None:
        waiting = self._waiting.setdefault(asked.session, {})
        waiting[asked.number] = _nothing  # it may be answered at once
        cancel = way.get(wanted, partial(self._got, asked, wanted, way))
        if asked.number in waiting:
            waiting[asked.number] = cancel

    def _got(self, asked: Asked, wanted: Get, way: Way, result: Any, error: TidingsError | None) -> None:
        """Messages have come, or none did in time."""
        self._end(asked.session, asked.number)
        if error is not None:
            answer(asked, None, error)
            return
        try:
            handed = result if isinstance(result, Handed) else msgspec.convert(result, Handed)
        except msgspec.ValidationError as wrong:
            answer(asked, None, CodecError("$.get", str(wrong)))
            return
        if wanted.action == "take":
            hands = self._hands.take(way, asked.session, asked.number, handed)
            handed = replace(handed, messages=[hand.row for hand in hands])
        _note_requests(asked.session, handed.messages)
        asked.session.broker.count("handed_out", len(handed.messages))
        answer(asked, handed, None)

    def _end(self, session: Session, number: int) -> Callable[[], None]:
        """Forget what cancels a get; that, if it waits."""
        waiting = self._waiting.get(session, {})
        cancel = waiting.pop(number, _nothing)
        if not waiting:
            self._waiting.pop(session, None)
        return cancel

    def cancel(self, session: Session, number: int) -> None:
        """What a request asked for is not wanted, whether or not it has come."""
        self._end(session, number)()
        self._hands.give_back(session, number)

    def part(self, asked: Asked, wanted: Part, way: Way) -> Any:
        """Answer with a part of a message that the client holds, or has read.

        The other node knows this node only, which holds messages for all its clients.
        """
        granted, number = asked.session.allow("get", way.address), wanted.number
        if wanted.delivery:
            hand = self._hands.get(number, wanted.delivery, identity(asked.session))
            if hand is None:
                problem = f"message {number} is not in this client's hands, nor in the queue"
                raise MessageNotHeld(way.address, problem)
            number = hand.theirs
        else:
            _check_all(asked.session, way, granted)
        way.part(number, wanted.delivery, wanted.index, partial(answer, asked))
        return LATER

    def renew(self, asked: Asked, wanted: Renew, way: Way) -> Any:
        """Let a message live longer."""
        _check_all(asked.session, way, asked.session.allow("get", way.address))
        way.renew(wanted.id, wanted.lease_s, partial(answer, asked))
        return LATER


def _check_all(session: Session, way: Way, granted: Filter | None) -> None:
    if granted is not None:
        problem = f"{session.permit.user!r} may get only what matches {granted} from queue {way.address!r}"
        raise NotAllowed(f"{problem}, and of this message that can't be told here: take it")


def _note_requests(session: Session, rows: list[Row]) -> None:
    """Who gets a request from a queue may answer it."""
    broker, user = session.broker, session.bound
    if user is None:
        return
    for row in rows:
        broker.answers.hand_out(user, row.raw, Origin(row.system, row.epoch, row.source), broker.now)


def answer(asked: Asked, result: Any, error: TidingsError | None) -> None:
    """Tell a client what came of its request."""
    if error is None:
        asked.answer(result, 0)
    else:
        asked.fail(error)


def _nothing() -> None:
    """What cancels a get that waits no longer."""
