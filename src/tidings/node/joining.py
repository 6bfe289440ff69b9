"""`tidings node --join LINE`: a new node gets its key, its certificate and its first neighbour.

It makes a key, which never leaves its directory, and asks the inviting node for a certificate. It checks the
authority of that node against the fingerprint in the line before it sends anything, and its name, too.

All that it writes until then lies in `joining` in the directory of the node, which becomes `security` in one
step, when everything is there. So whenever it is killed, it has joined, or can join again by the same line:
the inviting node serves that key a second time.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from tidings.errors import ConfigError, Disconnected, NotAllowed, PeerError, Refused, TidingsError, UserError
from tidings.ids import ClockIds, new_system
from tidings.node.config import NodeConfig
from tidings.node.dialling import certified
from tidings.node.settings import JOINING
from tidings.protocol.connection import Connection
from tidings.security.authenticator import JOIN
from tidings.security.certificates import (
    check_issuer,
    check_pair,
    describe,
    key_text,
    make_key,
    make_request,
    read_key,
)
from tidings.security.directory import OPEN, SecurityDirectory, alone, read_text, write_file, write_new
from tidings.security.invitation import InvitationLine, fingerprint, moment_text, read_line
from tidings.security.invitations import INVITED
from tidings.security.joining import Admission
from tidings.security.known_nodes import known_text
from tidings.security.provision import EVERYDAY, allowance, of_access, own_certificate
from tidings.security.users import line_of
from tidings.store.directory import SECURITY, refuse_foreign, sync_directory
from tidings.transport.address import Address, parse
from tidings.transport.credentials import Credentials
from tidings.transport.dial import dial, look_at_chain
from tidings.transport.link import Link

ANSWER_S_MAX = 30.0
"""How long the inviting node may take to answer."""
CONNECT_S_MAX = 15.0


def join(config: NodeConfig, line: str, clock: Callable[[], float] = time.time) -> str | None:
    """Join the node that has made the invitation, and return what to print; None if it has joined before.

    Raises UserError, with what to do, if it can't. `clock` is the wall clock of this machine.
    """
    invitation = read_line(line)
    home, place = _check(config, invitation)
    if place.exists():
        _check_joined(place, invitation)
        return None
    was_there = (home / JOINING).exists()
    try:
        address = _Joining(config, invitation, home, clock).run()
    except TidingsError as error:
        if not (was_there or error.may_be_accepted):
            shutil.rmtree(home / JOINING, ignore_errors=True)
        raise
    return None if address is None else f"joined {invitation.node} at {address} as {invitation.name}"


def _check(config: NodeConfig, invitation: InvitationLine) -> tuple[Path, Path]:
    """Return the directory of the node, and of its security; ConfigError for settings that can't be."""
    if config.dir is None:
        raise ConfigError(
            "--join",
            "dir",
            "a node that joins keeps its key and certificate; give a directory: --dir DIR",
        )
    if config.name not in (None, invitation.name):
        problem = f"{config.name!r} is not whom the invitation is for: {invitation.name!r}"
        raise ConfigError("--join", "name", f"{problem}; leave --name out, or ask for another invitation")
    home = Path(config.dir)
    place = home / SECURITY
    if config.security is not None and Path(config.security).absolute() != place.absolute():
        problem = f"{config.security} is not the security directory that joining makes: {place}"
        raise ConfigError("--join", "security", f"{problem}; leave --security out")
    if home.exists():
        refuse_foreign(home, JOINING)
    return home, place


def _check_joined(place: Path, invitation: InvitationLine) -> None:
    """Refuse a directory that is secured by something else than this invitation."""
    home = SecurityDirectory(place)
    own = own_certificate(home)
    pin = fingerprint(read_text(home.ca, is_secret=False))
    if own.name != invitation.name or pin != invitation.authority:
        other = "" if pin == invitation.authority else ", of another authority"
        raise ConfigError(
            str(place),
            "",
            f"is there already, for the node {own.name!r}{other}, and the invitation is for"
            f" {invitation.name!r}; start without --join, or give another --dir",
        )


class _Joining:
    """One attempt to join."""

    def __init__(
        self, config: NodeConfig, invitation: InvitationLine, home: Path, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._invitation = invitation
        self._home = home
        self._staging = SecurityDirectory(home / JOINING)
        self._clock = clock

    def run(self) -> str | None:
        """Return the address at which it has joined; None if another process just has."""
        place = self._home / SECURITY
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._staging.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(str(self._home), "", f"can't be made: {error.strerror}") from None
        with alone(self._staging.path):
            if place.exists():
                _check_joined(place, self._invitation)
                return None
            self._make_key()
            admission, address = asyncio.run(self._ask())
            self._write(admission, address)
            self._staging.path.replace(place)
            sync_directory(self._home)
        return address

    def _make_key(self) -> None:
        """Have a key on disk before anything is asked for it: the answer may be lost, the key may not."""
        if not self._staging.key.exists():
            write_new(self._staging.key, key_text(make_key()))

    # Asking

    async def _ask(self) -> tuple[Admission, str]:
        """Ask at each address in turn; the first that leads to the inviting node decides."""
        problems: list[str] = []
        for address in self._invitation.addresses:
            try:
                write_file(self._staging.ca, await self._look(address), OPEN)
                return await self._ask_at(address), address
            except Refused as error:
                raise UserError(f"{self._invitation.node} at {address}: {error.problem}") from None
            except (PeerError, _Elsewhere) as error:
                if error.may_be_accepted:
                    lost = f"no answer from {self._invitation.node} at {address}: {error}"
                    failed = UserError(f"{lost}; join again by the same line")
                    failed.may_be_accepted = True
                    raise failed from None
                problems.append(f"{address}: {error}")
        reasons = "; ".join(problems)
        raise UserError(f"can't join {self._invitation.node}: {reasons}; nothing was sent there, join again")

    async def _look(self, address: str) -> str:
        """Return the certificate of the authority that the invitation pins, which the node must show."""
        invitation, place = self._invitation, parse(address)
        try:
            chain = await look_at_chain(place)
        except TimeoutError:
            raise Disconnected("no answer") from None
        except OSError as error:
            raise Disconnected(str(error) or type(error).__name__) from None
        shown = next((one for one in chain if fingerprint(one) == invitation.authority), None)
        if shown is None:
            found = fingerprint(chain[-1]).hex()[:16] if chain else "none"
            raise _Elsewhere(
                "the node there was certified by another authority than the invitation's: "
                f"{found}…, not {invitation.authority.hex()[:16]}…; someone may be in between,"
                " or another node has this address"
            )
        self._check_dates(chain[0], shown)
        return shown

    def _check_dates(self, node: str, authority: str) -> None:
        """Refuse certificates that are not valid by the clock of this machine: it may be wrong."""
        now = self._clock()
        for text in (authority, node):
            one = describe(text, "certificate")
            if one.problem(datetime.fromtimestamp(now, UTC)) is not None:
                valid = f"{moment_text(one.since.timestamp())} to {moment_text(one.until.timestamp())}"
                raise UserError(
                    f"the clock of this machine says {moment_text(now)}, and the certificate of {one.name!r}"
                    f" is valid from {valid}; set the clock, then join again"
                )

    async def _ask_at(self, address: str) -> Admission:
        invitation = self._invitation
        credentials = Credentials(
            user=INVITED + invitation.id,
            password=invitation.secret,
            ca=self._staging.ca,
            checks_host=False,
        )
        core = Connection(ClockIds(new_system(os.urandom), time.time()), says=credentials.says)
        link = _NamedLink(core, invitation.node, ANSWER_S_MAX, address)
        link.start(dial(address, credentials))
        try:
            await link.wait_connected(CONNECT_S_MAX)
            reply = await link.call(JOIN, self._request(parse(address)), None)
        finally:
            await link.close()
        return self._checked(reply)

    def _request(self, place: Address) -> dict[str, Any]:
        key = read_key(read_text(self._staging.key), str(self._staging.key))
        return {
            "name": self._invitation.name,
            "request": make_request(self._invitation.name, key),
            "time": self._clock(),
            "port": self._port(place),
        }

    def _port(self, place: Address) -> int | None:
        """Return the port at which the inviting node can dial this one, None if it can't or changes."""
        is_near = _is_loopback(place.host) or not _is_loopback(self._config.host)
        return (self._config.tcp_port or None) if is_near else None

    def _checked(self, reply: Any) -> Admission:
        """Return the answer; PeerError if it is not what was asked for."""
        files, invitation = self._staging, self._invitation
        try:
            admission = msgspec.convert(reply, Admission)
            certificate = admission.certificate
            check_pair(certificate, read_text(files.key), "the answer")
            check_issuer(certificate, read_text(files.ca, is_secret=False), "the answer")
            name = describe(certificate, "the answer").name
        except (msgspec.ValidationError, ConfigError) as error:
            raise Refused("protocol", f"the answer can't be used: {error}; join again") from None
        if name != invitation.name or admission.node != invitation.node:
            raise Refused("protocol", f"the certificate is for {name!r}, not for {invitation.name!r}")
        return admission

    def _write(self, admission: Admission, address: str) -> None:
        """Write all files but the key and the authority's certificate, which are there."""
        node = self._invitation.node
        files = of_access([line_of(node, "node")], [allowance([node], EVERYDAY)])
        addresses = tuple(dict.fromkeys([address, *_good(admission.addresses)]))
        files["peers"] = known_text({node: addresses}), OPEN
        files["node.pem"] = admission.certificate, OPEN
        for name, (text, mode) in files.items():
            write_file(self._staging.path / name, text, mode)


class _Elsewhere(UserError):
    """An address that leads to another node than the inviting one."""


class _NamedLink(Link):
    """Connection that says nothing to a node whose certificate has another name."""

    def __init__(self, core: Connection, node: str, limit_s: float, place: str) -> None:
        super().__init__(core, False, random.random, limit_s, place)
        self._node = node

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the node, if it is the right one."""
        name = certified(transport)
        if name != self._node:
            self.core.close(NotAllowed(f"the node there is {name!r}, not {self._node!r}"))
            transport.close()
        else:
            super().connection_made(transport)


def _good(addresses: list[str]) -> list[str]:
    """Return those that are addresses with TLS: another node has sent them."""
    good = []
    for address in addresses:
        with suppress(UserError):
            if parse(address).kind == "tls" and address.isprintable() and not {" ", "#"} & set(address):
                good.append(address)
    return good


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
