"""How a node joins: what its inviting node does with its security directory.

The key of the authority lies in that directory, and is read for each certificate; a node without it can't
invite. The changes that a join makes are listed in `invitations`. Each file is written whole or not at all,
under the lock of the directory, in an order that can be repeated: a node that was killed on the way goes on
when the new node asks again.

Everything here waits for the disk, so a node calls it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from ipaddress import ip_address

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import Refused, UserError
from tidings.security.certificates import (
    EARLY,
    HOSTS,
    Authority,
    Certificate,
    CertificateRequest,
    read_request,
)
from tidings.security.directory import SecurityDirectory, alone, read_text, write_file
from tidings.security.invitation import ADDRESSES_MAX, InvitationLine, fingerprint, moment_text
from tidings.security.invitations import Invitation, Invitations, again, as_text, check_new
from tidings.security.inviting import Listening
from tidings.security.known_nodes import remember
from tidings.security.passwords import Random, hash_token, make_token
from tidings.security.provision import (
    EVERYDAY,
    allowance,
    append_allowance,
    authority_of,
    check_node_name,
    own_certificate,
)
from tidings.security.users import UserLines, Users, is_free
from tidings.transport.address import Address

CLOCK_S_MAX = EARLY.total_seconds()
"""By how much the clock of a node that joins may be off: a certificate is valid from so long ago."""
ID_SIZE = 8


class Asked(Struct, frozen=True):
    """Request of a node that joins, with the way to reach it."""

    name: str
    request: str  # for a certificate, in PEM
    wall: float  # its clock
    address: str | None = None  # None: it can't be dialled


class Admission(Struct, frozen=True):
    """Reply to a node that joins: its certificate, and the name and addresses of the inviting node."""

    certificate: str
    node: str
    addresses: list[str]


def invite(
    home: SecurityDirectory,
    name: str,
    hosts: Iterable[str],
    for_s: float,
    listening: Listening | None,
    wall: float,
    random: Random,
) -> InvitationLine:
    """Make an invitation; the secret is in the line alone. UserError if this node can't be joined so."""
    check_node_name(name)
    with alone(home.path):
        authority, own = authority_of(home), own_certificate(home)
        addresses = addresses_of(listening, own, home)
        invitations = home.load_invitations()
        _check_free(name, own, home.load_users())
        check_new(invitations, name, for_s, wall)
        secret = make_token(random)
        kept = tuple(hosts) or (name,)
        made = Invitation(random(ID_SIZE).hex(), name, hash_token(secret), int(wall + for_s), kept)
        _try_hosts(authority, own, made, wall)
        _write(home, {**invitations, made.id: made}, wall)
        pin = fingerprint(authority.pem.certificate)
    return InvitationLine(own.name, addresses, pin, made.id, secret, name, made.until)


def addresses_of(listening: Listening | None, own: Certificate, home: SecurityDirectory) -> list[str]:
    """Return where a node is reached, the first one first; UserError if nobody else can reach it."""
    if listening is None:
        raise UserError("no node can join: this one has no TCP port; start it with --port 7300")
    hosts = [listening.host]
    if listening.host != "localhost" and ip_address(listening.host).is_unspecified:
        hosts = [host for host in own.hosts if host not in HOSTS and "*" not in host]
    if not hosts:
        renew = f"tidings security renew {home.path} --host HOST"
        raise UserError(
            f"the node's certificate says under no host how others reach it: {', '.join(own.hosts)};"
            f" name one: {renew}"
        )
    places = (Address("tls", host, listening.port) for host in hosts[:ADDRESSES_MAX])
    return [address_text(place.host, place.port) for place in places]


def address_text(host: str, port: int) -> str:
    """Return the address of a node with TLS."""
    return f"tidings+tls://{f'[{host}]' if ':' in host else host}:{port}"


def _check_free(name: str, own: Certificate, users: Users) -> None:
    if name == own.name:
        raise UserError(f"{name!r} is the name of this node itself; give the new node another one")
    if not is_free(name, users):
        remove = f"; remove the old one first: tidings user remove {name}" if users[name].is_node else ""
        what = "a node" if users[name].is_node else "a user"
        raise UserError(f"there is {what} {name!r} already; give the new node another name{remove}")


def _try_hosts(authority: Authority, own: Certificate, made: Invitation, wall: float) -> None:
    """Refuse hosts now that no certificate could have, and those of this node: clients would mistake them."""
    taken = [host for host in made.hosts if host in own.hosts and host not in HOSTS]
    if taken:
        raise UserError(f"{taken[0]} is a host of this node itself; name those of {made.name}")
    if any("," in host or host.isspace() for host in made.hosts):
        raise UserError("a host has no comma in it; give --host for each")
    authority.issue_node(made.name, made.hosts, _moment(wall))


def revoke(home: SecurityDirectory, name: str, wall: float) -> None:
    """Revoke the open invitation of a node; UserError if there is none."""
    with alone(home.path):
        invitations = home.load_invitations()
        found = [one for one in invitations.values() if one.name == name]
        still_open = [one for one in found if one.state_at(wall) in ("open", "joining")]
        if not still_open:
            last = f": it is {found[-1].state_at(wall)}" if found else ""
            raise UserError(f"there is no open invitation of {name!r}{last}; 'tidings user' manages nodes")
        revoked = {one.id: replace(one, state="revoked", key="") for one in still_open}
        _write(home, {**invitations, **revoked}, wall)


def admit(
    home: SecurityDirectory, invitation: str, asked: Asked, listening: Listening | None, wall: float
) -> Admission:
    """Let a node join by the invitation of this id, whose secret it has proved, and return its certificate.

    Refused with the reason if it may not, and then nothing has changed here.
    """
    with alone(home.path):
        found = home.load_invitations().get(invitation)
        if found is None:
            raise Refused("not-found", f"the invitation of {asked.name!r} was removed; {again(asked.name)}")
        authority, own = authority_of(home), own_certificate(home)
        request = read_request(asked.request)
        _check(found, asked, request, own, home.load_users(), wall)
        certificate = authority.sign_node(found.name, found.hosts, request, _moment(wall))
        if found.state != "used":
            _take_in(home, replace(found, state="joining", key=request.key_digest), asked.address, wall)
        return Admission(certificate, own.name, addresses_of(listening, own, home))


def _check(
    found: Invitation, asked: Asked, request: CertificateRequest, own: Certificate, users: Users, wall: float
) -> None:
    """Raise Refused, with what to do, if the node that asks may not join."""
    problem = found.problem(wall)
    if problem is not None:
        raise Refused("expired", problem)
    if asked.name != found.name or request.name != found.name:
        other = asked.name if asked.name != found.name else request.name
        raise Refused("name", f"the invitation is for {found.name!r}, not for {other!r}; {again(other)}")
    if not abs(asked.wall - wall) <= CLOCK_S_MAX:  # NaN is no time either
        clocks = f"that of {found.name} says {_clock(asked.wall)}, and that of {own.name} {_clock(wall)}"
        raise Refused("clock", f"the clocks do not agree: {clocks}; set the wrong one, then join again")
    if found.key not in ("", request.key_digest):
        raise Refused("used", f"the invitation of {found.name!r} was used already; {again(found.name)}")
    if found.state == "open":
        try:
            _check_free(found.name, own, users)
        except UserError as error:
            raise Refused("exists", str(error)) from None
    if found.state == "used" and not (found.name in users and users[found.name].is_node):
        raise Refused("used", f"the node {found.name!r} has joined, and was removed; {again(found.name)}")


def _take_in(home: SecurityDirectory, joining: Invitation, address: str | None, wall: float) -> None:
    """Know a node from now on: as a user, with rules, and as a peer."""
    _write(home, {**home.load_invitations(), joining.id: joining}, wall)
    lines = UserLines(read_text(home.users), str(home.users))
    if is_free(joining.name, lines.users):
        lines.add_node(joining.name)
        write_file(home.users, lines.text)
    _, rules = home.load()
    if joining.name not in rules:
        append_allowance(home, allowance([joining.name], EVERYDAY))
    remember(home, joining.name, () if address is None else (address,))
    _write(home, {**home.load_invitations(), joining.id: replace(joining, state="used")}, wall)


def _write(home: SecurityDirectory, invitations: Invitations, wall: float) -> None:
    write_file(home.invitations, as_text(invitations.values(), wall))


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)


def _clock(wall: float) -> str:
    try:
        return moment_text(wall)
    except (ValueError, OverflowError, OSError):
        return f"{wall:g} s after 1970"
