"""A message in someone's hands: taken out of its queue, and not settled yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.queues.message import Message
    from tidings.queues.queue import Queue
    from tidings.queues.transaction import Transaction

Identity = tuple[str, int]
"""A client in one of its lives: system and epoch."""


class Held:
    """A message, whose hands it is in, and until when it may stay there."""

    __slots__ = ("delivery", "due", "holder", "is_noted", "message", "queue", "request")

    def __init__(
        self,
        queue: Queue,
        message: Message,
        delivery: int,
        holder: Identity | Transaction,
        request: int,
        due: float,
    ) -> None:
        self.queue = queue
        self.message = message
        self.delivery = delivery  # the how many-eth time it was handed out
        self.holder = holder
        self.request = request  # the request that it was handed out for
        self.due = due
        self.is_noted = False  # whether it is stored that this delivery was begun
