"""`tidings security`: the directory by which a node knows who may come, and shows who it is.

Invitations are made by the running node, which knows where it listens, and keeps them.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.connection import bus_of, connects
from tidings.cli.options import Json, argument, option, read_age
from tidings.cli.printing import (
    add_row,
    new_table,
    print_found,
    print_json,
    print_result,
    shown,
    to_json,
    word,
)
from tidings.cli.user import (
    PasswordFile,
    directory_of,
    find_password,
    hashed,
    print_consequences,
    print_users,
)

if TYPE_CHECKING:
    from rich.table import Table

    from tidings.client.sessions import InvitationInfo
    from tidings.security.certificates import Certificate
    from tidings.security.directory import SecurityDirectory
    from tidings.security.provision import DirectoryReport

app = typer.Typer(no_args_is_help=True)

PORT = 7300

New = Annotated[Path, argument("DIR", "The directory to make.")]
There = Annotated[Path, argument("DIR", "The security directory of a node.")]
Name = Annotated[str | None, option("NODE", "The name of the node.", show_default="that of this machine")]
Hosts = Annotated[
    list[str] | None, option("--host", "NAME_OR_IP", "A host name or address of the node; may be repeated.")
]
AdminName = Annotated[str, option("NAME", "The administrator, who has full access.")]
NodeName = Annotated[str, argument("NAME", "The name of the other node.")]
InvitedName = Annotated[str, argument("NAME", "The name of the new node.")]
For = Annotated[str, option("--for", "TIME", "How long it is good: 30min, 12h, at most 7d.")]
Revoke = Annotated[str | None, option("NAME", "Revoke the invitation of this node.")]
UserName = Annotated[str, argument("USER", "The user that the certificate names.")]
From = Annotated[Path, option("--from", "DIR", "A security directory with ca.key in it.")]
To = Annotated[Path, option("DIR", "The directory to make.")]


@app.command()
def init(
    directory: New,
    name: Name = None,
    host: Hosts = None,
    admin: AdminName = "admin",
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Make a security directory: certificates, an administrator, a user for devices, and rules.

    The administrator's password is entered at a prompt, or read from a file or from TIDINGS_PASSWORD. Without
    a terminal the command makes one up and writes it to DIR/admin.password.
    """
    from tidings.security.directory import SecurityDirectory
    from tidings.security.provision import Admin, make_security, node_name, own_certificate, refuse_place

    refuse_place(directory)
    node = name or node_name(socket.gethostname())
    hosts = host or [socket.gethostname()]
    given = find_password(admin, password_file)
    generated = secrets.token_urlsafe(24) if given is None else None
    who = Admin(admin, hashed(given or generated or ""), generated)
    make_security(directory, node, hosts, who, os.urandom, datetime.now(UTC))
    made = own_certificate(SecurityDirectory(directory))
    if json:
        password = None if generated is None else str(directory / "admin.password")
        print_json({"made": str(directory), "node": made, "admin": admin, "password_file": password})
        return
    _print_made(directory, made)
    typer.echo(_how_to_begin(directory, node, hosts[0]))
    if generated is not None:
        typer.echo(f"\nThe password of {admin} was made up: it is in {directory / 'admin.password'}")


@app.command("node")
def add_node(name: NodeName, home: From, to: To, host: Hosts = None, json: Json = False) -> None:
    """Make a security directory for another node, so that it and this one trust each other."""
    from tidings.security.directory import SecurityDirectory
    from tidings.security.provision import make_sibling, own_certificate

    here, hosts = directory_of(home), host or [name]
    this = make_sibling(here, to, name, hosts, datetime.now(UTC))
    made = own_certificate(SecurityDirectory(to))
    if json:
        print_json({"made": str(to), "node": made, "sibling": this})
    else:
        _print_made(to, made)
        _print_how_to_start(here, this, to, name, hosts)
    print_consequences(here)


def _print_how_to_start(here: SecurityDirectory, this: str, to: Path, name: str, hosts: list[str]) -> None:
    from tidings.security.certificates import HOSTS
    from tidings.security.provision import own_certificate

    reached = [one for one in own_certificate(here).hosts if one not in HOSTS]
    peers = {name: (this, (reached or ["HOST"])[0]), this: (name, hosts[0])}
    typer.echo(f"\nMove all of {to} to the machine of {name}. Start it there with")
    typer.echo(f"  {_start(name, 'security')} {_peers(*peers[name])}")
    typer.echo(f"and {this} here with")
    typer.echo(f"  {_start(this, str(here.path))} {_peers(*peers[this])}")
    typer.echo("What they may ask of each other is in the access.toml of each.")


@app.command()
@connects
async def invite(name: InvitedName, host: Hosts = None, for_: For = "1h", json: Json = False) -> None:
    """Invite a new node: print one line, by which it joins this one, once.

    On the machine of the new node: tidings node --join LINE --dir DIR. The line holds a secret. The running
    node makes it, and takes the right to manage everything; ca.key must lie in its security directory.
    Each --host is one of the new node's.
    """
    for_s = read_age(for_, "--for").total_seconds()
    async with bus_of() as bus:
        made = await bus.invite(name, hosts=host or (), for_s=for_s)
    if not json:
        until = datetime.fromtimestamp(made.until, UTC)
        where = ", ".join(made.addresses)
        typer.echo(f"{name} joins at {where}, once, until {until:%Y-%m-%d %H:%M} UTC, by", err=True)
    print_result(made, made.line, json)


@app.command()
@connects
async def invitations(revoke: Revoke = None, json: Json = False) -> None:
    """List the invitations of a node, or revoke one that was not used."""
    async with bus_of() as bus:
        if revoke is not None:
            await bus.revoke_invitation(revoke)
            print_result({"revoked": revoke}, f"revoked the invitation of {revoke}", json)
            return
        found = await bus.invitations()
    print_found(
        found, json, to_json, _invitation_table, "no invitations; 'tidings security invite' makes one"
    )


def _invitation_table(found: Sequence[InvitationInfo]) -> Table:
    table = new_table("node", "state", "until", "hosts", wide=("hosts",))
    for one in found:
        until = f"{datetime.fromtimestamp(one.until, UTC):%Y-%m-%d %H:%M} UTC"
        add_row(table, word(one.name), one.state, until, " ".join(map(shown, one.hosts)))
    return table


@app.command()
def certificate(user: UserName, home: From, to: To, json: Json = False) -> None:
    """Make a certificate by which a client logs in as USER, who may be new."""
    from tidings.security.provision import make_client

    here = directory_of(home)
    make_client(here, to, user, datetime.now(UTC))
    files = {"CA": to / "ca.pem", "CERT": to / "client.pem", "KEY": to / "client.key"}
    if json:
        print_json({"user": user, **{name.lower(): str(file) for name, file in files.items()}})
    else:
        typer.echo(f"made {to}: a certificate for {user}\n\nMove it to the client's machine. There:")
        for name, file in files.items():
            typer.echo(f"  export TIDINGS_{name}={shlex.quote(str(file))}")
    print_consequences(here, user)


@app.command()
def renew(directory: There, host: Hosts = None, json: Json = False) -> None:
    """Make a new certificate for the node; without --host it has the names and addresses of the old one.

    A running node loads it by itself; clients need no change.
    """
    from tidings.security.provision import renew_node

    made = renew_node(directory_of(directory), host, datetime.now(UTC))
    print_result(made, _certificate_text("renewed", made), json)


@app.command()
def check(directory: There, json: Json = False) -> None:
    """Read the security directory as a node would, and report on it; exit with 2 if something is wrong."""
    from tidings.security.provision import report_on

    home = directory_of(directory)
    report = report_on(home, datetime.now(UTC))
    if json:
        print_json(report)
    else:
        _print_report(home, report)


def _print_report(home: SecurityDirectory, report: DirectoryReport) -> None:
    kept = "its key is in ca.key" if report.has_authority_key else "its key is kept elsewhere"
    typer.echo(f"authority {report.authority.name}, until {report.authority.until:%Y-%m-%d}; {kept}")
    typer.echo(_certificate_text("node", report.node) + "\n")
    print_users(report.users)
    for user in report.users:
        whole = [rule for rule in user.rules if " " not in rule]
        parts = [rule for rule in user.rules if rule not in whole]
        if user.rules:
            typer.echo("\n  ".join([f"\n{user.user} may {', '.join(whole)}".rstrip(), *parts]))
    for warning in report.warnings:
        typer.echo(f"note: {warning}", err=True)
    typer.echo(f"\n{home.path} is in order")


def _print_made(directory: Path, certificate: Certificate) -> None:
    typer.echo(_certificate_text(f"made {directory}: node", certificate))


def _certificate_text(before: str, certificate: Certificate) -> str:
    hosts = ", ".join(certificate.hosts)
    return f"{before} {certificate.name}, reached as {hosts}, until {certificate.until:%Y-%m-%d}"


def _how_to_begin(directory: Path, node: str, host: str) -> str:
    ca, token = (shlex.quote(str(directory / name)) for name in ("ca.pem", "device.token"))
    return f"""
Start the node with
  {_start(node, str(directory))}
and copy to the other machine
  {ca} {token}
where only you may read them. There:
  export TIDINGS_NODE={_address(host)}
  export TIDINGS_CA=ca.pem
  export TIDINGS_TOKEN_FILE=device.token
  tidings subscribe "value > 40"
  tidings publish air.pm10 value=41.2

Who may do what is in {directory / "access.toml"}. With {directory / "ca.key"} more certificates are made;
the node does not need it, so it may be kept elsewhere."""


def _start(node: str, directory: str) -> str:
    return f"tidings node --name {node} --dir data --security {shlex.quote(directory)} --host 0.0.0.0"


def _peers(name: str, host: str) -> str:
    return f'--peers "{name}={_address(host)}"'


def _address(host: str) -> str:
    return f"tidings+tls://{f'[{host}]' if ':' in host else host}:{PORT}"
