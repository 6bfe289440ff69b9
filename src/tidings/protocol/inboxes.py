"""Names of inboxes: the node at which a client receives the answers to its requests is in the name.

    inbox.@NODE.USER/EPOCH.SYSTEM.SECRET       USER is empty for clients of the node's owner

The names of a client's inboxes begin as the node says (`Welcome.inbox`). By that name an answer finds its
way from any node (`Routes`), so no filter for it is announced to other nodes. The epoch is that of the node's
start: an answer from another node to an inbox of a former start is dropped. Users have inboxes at their own
node only, so two users of one name at two nodes do not receive each other's answers.

Older clients name their inboxes themselves, without a node (`inbox_name`). A filter for such a name is
announced like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tidings.event import Batch, Event
from tidings.exchange import NodeSubscription, Rows
from tidings.filters import Filter
from tidings.protocol.arguments import INBOX, inbox_name

NODE_INBOX = f"{INBOX}@"
"""How the names of inboxes begin that say at which node they are."""
NODE_INBOXES = Filter("STARTS_WITH(subject, :name)", name=NODE_INBOX)
"""Answers to such inboxes."""


class InboxAddress(NamedTuple):
    """Node and epoch in the name of an inbox."""

    node: str
    epoch: str


def address_of(inbox: str) -> InboxAddress | None:
    """Return where an inbox is; None if its name does not say that."""
    if not inbox.startswith(NODE_INBOX):
        return None
    node, _, rest = inbox.removeprefix(NODE_INBOX).partition(".")
    return InboxAddress(node, rest.partition("/")[2].partition(".")[0])


def inboxes_at(node: str, user: str) -> str:
    """Return how the names of a user's inboxes at a node begin, in whichever epoch."""
    return f"{NODE_INBOX}{node}.{user}/"


def own_inboxes(node: str, user: str) -> tuple[str, str]:
    """Return how names of inboxes begin that belong to a user of this node, those of older clients too."""
    return inboxes_at(node, user), inbox_name(user, "")


class Routes(Protocol):
    """Ways to inboxes at other nodes."""

    def problem(self, address: InboxAddress, event: Event) -> str:
        """Return why an answer that is published here can't be sent to this address; empty if it can."""

    def routed(
        self,
        batch: Batch,
        addresses: Mapping[int, InboxAddress],
        matches: list[tuple[NodeSubscription, Rows]],
        is_stored: bool,
    ) -> list[tuple[NodeSubscription, Rows]]:
        """Return the matches of a batch, with answers to these addresses on their ways and nowhere else.

        `addresses` has the rows that are answers to inboxes with a node in their names. Those that are
        dropped here are counted, unless the batch `is_stored` and was routed before.
        """
