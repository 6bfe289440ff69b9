"""Part of a bus by which people watch and manage a node: sessions, invitations, the network, its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidings.client.bus_part import BusPart
from tidings.client.sessions import (
    INVITATION_S,
    DemandInfo,
    InvitationInfo,
    MadeInvitation,
    SessionInfo,
    fetch_demands,
    fetch_sessions,
    read_as,
)
from tidings.event import Event
from tidings.event.wire import encode_events
from tidings.filters import Taxonomy
from tidings.protocol.taxonomy import taxonomy_from


class BusAdministration(BusPart):
    """The part of a bus by which a node and its network are watched and managed."""

    async def sessions(self, *, timeout_s: float | None = None) -> list[SessionInfo]:
        """Return the sessions of clients, the oldest first; takes the right to manage everything."""
        return await fetch_sessions(self._link, timeout_s)

    async def demands(self, *, timeout_s: float | None = None) -> list[DemandInfo]:
        """Return the filters by which clients of the node demand events; passive subscriptions demand none.

        Without the right to manage everything they are those of the client's own user.
        """
        return await fetch_demands(self._link, timeout_s)

    async def end_session(self, session: str, *, timeout_s: float | None = None) -> None:
        """End the session of a client, by its name in `sessions`; takes the right to manage everything.

        The client may connect again. Raises Refused with the code `not-found` if there is no such session.
        """
        await self._link.call("session.end", {"session": session}, timeout_s, "again")

    async def invite(
        self,
        name: str,
        *,
        hosts: Iterable[str] = (),
        for_s: float = INVITATION_S,
        timeout_s: float | None = None,
    ) -> MadeInvitation:
        """Invite a new node, which then joins by one line; takes the right to manage everything.

        `hosts` are the names and addresses for which its certificate will be, by default its name. Raises
        Refused if there is such a node already, or this one has no security or no key of its authority.
        """
        asked = {"name": name, "hosts": list(hosts), "for_s": for_s}
        made = await self._link.call("invitation.make", asked, timeout_s)
        return read_as(made, MadeInvitation, "$.invitation")

    async def invitations(self, *, timeout_s: float | None = None) -> list[InvitationInfo]:
        """Return the invitations of nodes; takes the right to manage everything."""
        found = await self._link.call("invitation.list", {}, timeout_s, "again")
        return read_as(found, list[InvitationInfo], "$.invitations")

    async def revoke_invitation(self, name: str, *, timeout_s: float | None = None) -> None:
        """Revoke the open invitation of a node; takes the right to manage everything."""
        await self._link.call("invitation.revoke", {"name": name}, timeout_s)

    async def status(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the node's status: counters, depths, and what is known of its process."""
        status: dict[str, Any] = await self._link.call("status", {}, timeout_s, "again")
        return status

    async def taxonomy(self, *, timeout_s: float | None = None) -> Taxonomy:
        """Return the terms and units of the node (`tidings node --concepts`), to make filters with.

        A node that has none returns the units that are known everywhere.
        """
        content = b""
        while True:
            arguments = {"offset": len(content)}
            reply = await self._link.call("taxonomy.read", arguments, timeout_s, "again")
            content += reply["piece"]
            if len(content) >= reply["size"] or not reply["piece"]:
                return taxonomy_from(content)

    async def topology(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return what the node knows of all nodes of its network: records, the tree, and its own links."""
        topology: dict[str, Any] = await self._link.call("topology", {}, timeout_s, "again")
        return topology

    async def trace(self, event: Event, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Return which way an event would take from the node on, hop by hop; nothing is published."""
        arguments = {"raw": encode_events([event])}
        traced: dict[str, Any] = await self._link.call("topology.trace", arguments, timeout_s, "again")
        return traced

    async def remove_link(self, node: str, *, timeout_s: float | None = None) -> None:
        """Have the node forget a neighbour, by its name or id, and drop the events that wait for it.

        It is for a node that is gone for good; while its link is there this is refused. Takes the right to
        manage everything.
        """
        await self._link.call("topology.remove", {"node": node}, timeout_s)

    async def drain_node(self, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Take the node out of its network before it stops, and return how far that is; call it until `done`.

        `between` names the neighbours between which events still pass through it, `kept` counts positions
        that others have not confirmed, `clients` those that are connected, `leaving` those of them that are
        waited for. Once nothing passes through it clients go to neighbours, each when all other nodes have
        what it has sent, save those with durable subscriptions. Takes the right to manage everything.
        """
        told: dict[str, Any] = await self._link.call("node.drain", {}, timeout_s)
        return told

    async def stop_node(self, *, timeout_s: float | None = None) -> None:
        """Ask the node to stop in good order, as SIGTERM does; returns when it has begun.

        Takes the right to manage everything, or, at a node without security, a connection by its Unix socket;
        raises NotAllowed otherwise.
        """
        await self._link.call("node.stop", {}, timeout_s)
