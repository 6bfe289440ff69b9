"""`tidings user`: who may come to a node. A secret is asked for, or read from a file; never an argument."""

from __future__ import annotations

import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidings.cli.options import Json, argument, option
from tidings.cli.printing import add_row, new_table, print_json, print_result, print_table
from tidings.errors import TidingsError, UserError

if TYPE_CHECKING:
    from tidings.security.directory import SecurityDirectory
    from tidings.security.passwords import Password
    from tidings.security.provision import UserInfo

app = typer.Typer(no_args_is_help=True)

VARIABLE = "TIDINGS_PASSWORD"

Security = Annotated[
    Path | None, option("DIR", "The security directory of the node.", envvar="TIDINGS_SECURITY")
]
UserName = Annotated[str, argument("NAME", "The name of the user.")]
PasswordFile = Annotated[
    Path | None,
    option("FILE", "Read the password from here.", show_default=f"{VARIABLE}, or asked for at the terminal"),
]
Certificate = Annotated[bool, option("--certificate", "The user logs in by a certificate, not a password.")]
Node = Annotated[bool, option("--node", "Another node, which logs in by its certificate.")]
Label = Annotated[str, option("The name of the token, such as the machine it is for.")]
Until = Annotated[str | None, option("DATE", "Its last day, such as 2027-01-31.")]
To = Annotated[Path | None, option("FILE", "Write it to this file, and do not print it.")]
OldLabel = Annotated[str, argument("LABEL", "The name of the token.")]


@app.command()
def add(
    name: UserName,
    certificate: Certificate = False,
    node: Node = False,
    password_file: PasswordFile = None,
    security: Security = None,
    json: Json = False,
) -> None:
    """Add a user with a password: entered at a prompt, in a file, or in TIDINGS_PASSWORD."""
    from tidings.security.directory import edited
    from tidings.security.users import Credential, name_problem, refuse

    home = directory_of(security)
    refuse(name_problem(name))
    if name in home.load_users():
        raise UserError(f"there is a user {name!r} already; 'tidings user password' changes the password")
    credential: Credential
    if certificate or node:
        refuse("a password does not go with --certificate or --node" if password_file else None)
        credential = "node" if node else "certificate"
    else:
        credential = hashed(need_password(name, password_file))
    with edited(home) as lines:
        lines.add(name, credential)
    print_result({"added": name}, f"added {name}", json)
    print_consequences(home, name)


@app.command("list")
def show(security: Security = None, json: Json = False) -> None:
    """List the users, their credentials, and how many rules they have."""
    from tidings.security.provision import user_infos

    users, rules = directory_of(security).load()
    reports = user_infos(users, rules, datetime.now(UTC))
    if json:
        for user in reports:
            print_json(user)
    else:
        print_users(reports)


@app.command()
def remove(name: UserName, security: Security = None, json: Json = False) -> None:
    """Remove a user with all credentials; a running node closes the connections made with them."""
    from tidings.security.directory import alone, edited
    from tidings.security.known_nodes import forget

    home = directory_of(security)
    place = _place_in_rules(home, name)
    with edited(home) as lines:
        lines.remove(name, stays=place is not None)
    with alone(home.path):  # after that: a mistake in another file keeps nobody in
        forget(home, name)
    text = f"removed {name}"
    if place is not None:
        text = f"{name} is locked, and let in by nothing; the name stays because of {place}"
    print_result({"removed": name, "locked": place is not None}, text, json)
    print_consequences(home)


@app.command()
def password(
    name: UserName, password_file: PasswordFile = None, security: Security = None, json: Json = False
) -> None:
    """Change a user's password; clients that used the old one have to log in again."""
    from tidings.security.directory import edited

    home = directory_of(security)
    with edited(home) as lines:
        lines.user(name)
    new = hashed(need_password(name, password_file))
    with edited(home) as lines:
        lines.set_password(name, new)
    print_result({"changed": name}, f"{name} has a new password", json)
    print_consequences(home, name)


@app.command()
def token(
    name: UserName,
    label: Label = "first",
    until: Until = None,
    to: To = None,
    security: Security = None,
    json: Json = False,
) -> None:
    """Make a token, by which a user logs in without a password; it is printed once. NAME may be new.

    Standard output has only the token, so it can be piped.
    """
    from tidings.security.directory import edited, write_new
    from tidings.security.passwords import Token, hash_token, make_token

    home, last_day = directory_of(security), _read_day(until)
    made = make_token(os.urandom)
    with edited(home) as lines:
        is_new = lines.add_token(name, Token(label, hash_token(made), last_day))
        if to is not None:
            write_new(to, f"{made}\n")
    if json:
        reports = {"user": name, "label": label, "until": last_day, "is_new_user": is_new}
        print_json({**reports, "token": made} if to is None else {**reports, "file": str(to)})
    elif to is None:
        typer.echo(made)
    about = f"token {label!r} of {'the new user ' if is_new else ''}{name}"
    typer.echo(f"{about} is good{'' if last_day is None else f' until {last_day}'}", err=True)
    print_consequences(home, name)


@app.command()
def revoke(name: UserName, label: OldLabel, security: Security = None, json: Json = False) -> None:
    """Revoke a token; a running node closes the connections made with it."""
    from tidings.security.directory import edited

    home = directory_of(security)
    with edited(home) as lines:
        is_last = lines.revoke(name, label)
    text = f"revoked {label!r} of {name}" + (", who is let in by nothing now" if is_last else "")
    print_result({"user": name, "revoked": label, "is_last": is_last}, text, json)
    print_consequences(home)


def directory_of(path: Path | None) -> SecurityDirectory:
    """Return the security directory that was named."""
    from tidings.security.directory import SecurityDirectory, check_directory

    if path is None:
        raise UserError("no security directory; give --security DIR or set TIDINGS_SECURITY")
    check_directory(path)
    return SecurityDirectory(path)


def need_password(name: str, file: Path | None) -> str:
    """A password; UserError where there is none and nobody to ask."""
    found = find_password(name, file)
    if found is None:
        raise UserError(f"no terminal to ask for a password at; use --password-file FILE, or {VARIABLE}")
    return found


def find_password(name: str, file: Path | None) -> str | None:
    """A password from a file, the environment or the terminal; None where there is no terminal."""
    from tidings.security.directory import read_text
    from tidings.security.passwords import password_problem
    from tidings.security.users import refuse

    if file is not None:
        found = read_text(file).removesuffix("\n").removesuffix("\r")
    elif VARIABLE in os.environ:
        found = os.environ[VARIABLE]
    elif has_terminal():
        found = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        return None
    refuse(password_problem(found))
    return found


def has_terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin.isatty()


def hashed(secret: str) -> Password:
    """Return the stored form of a password."""
    from tidings.security.passwords import make_password

    return make_password(secret, os.urandom)


def print_consequences(home: SecurityDirectory, name: str | None = None) -> None:
    """Say so if the change does not do what one may expect of it."""
    try:
        users, rules = home.load()
    except TidingsError as error:
        typer.echo(f"but a running node keeps to the old users until this is mended: {error}", err=True)
        return
    if name is not None and users[name].is_locked:
        typer.echo(f"but {name} is locked: remove the line '{name} locked' from {home.users}", err=True)
    elif name is not None and name not in rules:
        typer.echo(f"no rule allows {name} anything yet: add one to {home.access}", err=True)


def print_users(users: list[UserInfo]) -> None:
    """A table of users."""
    table = new_table("user", "comes in by", "tokens", "rules", numbers=("rules",), wide=("tokens",))
    for user in users:
        add_row(table, user.user, ways_in(user), tokens_text(user), str(len(user.rules)))
    print_table(table)


def ways_in(user: UserInfo) -> str:
    """By what a user may come in, in words."""
    if user.locked:
        return "nothing (locked)"
    kinds = {
        "password": user.password,
        "token": bool(user.tokens),
        "certificate": user.certificate and not user.node,
        "certificate (node)": user.node,
    }
    return ", ".join(kind for kind, has in kinds.items() if has)


def tokens_text(user: UserInfo) -> str:
    """The labels of a user's tokens, and until when they are good."""
    return ", ".join(
        token.label + (f" {'until' if token.is_good else 'expired'} {token.until}" if token.until else "")
        for token in user.tokens
    )


def _place_in_rules(home: SecurityDirectory, name: str) -> str | None:
    """Return where the rules name a user, None if they do not; invalid rules may name anyone."""
    from tidings.security.directory import read_text
    from tidings.security.rules import read_allowances

    try:
        allowances = read_allowances(read_text(home.access, is_secret=False), str(home.access))
    except TidingsError:
        return str(home.access)
    return next((one.place for one in allowances if name in one.users), None)


def _read_day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise UserError(f"--until {text}: a day is written as 2027-01-31") from None
    if day < datetime.now(UTC).date():
        raise UserError(f"--until {text}: that day is over")
    return day
