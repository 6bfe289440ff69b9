"""The client's side: `connect` to a node elsewhere, `open` one in this process, `blocking` without await."""

from tidings.client import blocking
from tidings.client.advertisements import Interest
from tidings.client.app import App
from tidings.client.bus import Bus
from tidings.client.listener import Listener
from tidings.client.message import Message
from tidings.client.opening import connect, open
from tidings.client.queue import Queue
from tidings.client.space import Lease, Space
from tidings.client.subscription import Gap, Subscription
from tidings.client.transaction import Transaction
from tidings.client.typed import TypedSubscription
from tidings.client.work import Outcomes
from tidings.client.worker import Messages

__all__ = [
    "App",
    "Bus",
    "Gap",
    "Interest",
    "Lease",
    "Listener",
    "Message",
    "Messages",
    "Outcomes",
    "Queue",
    "Space",
    "Subscription",
    "Transaction",
    "TypedSubscription",
    "blocking",
    "connect",
    "open",
]
