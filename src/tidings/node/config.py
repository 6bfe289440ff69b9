"""The settings of a node: from a TOML file, from the environment, from flags, each stronger than the last.

    port = 7300                      in the file
    TIDINGS_PORT=7300                in the environment
    --port 7300                      as a flag

All three have the same names. A setting that is not known, or has a value that it can't have, is refused with
its name and the place where it stands.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tidings.errors import ConfigError
from tidings.node.logs import Form, Level

PREFIX = "TIDINGS_"
PORT = 7300
Port = Annotated[int, Meta(ge=0, le=65535)]


class NodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of a node, with what holds where nothing is said."""

    dir: str | None = None  # what is stored lies here; None: nothing is kept
    host: str = "127.0.0.1"
    port: Port | None = None  # 0: a free one; None: 7300, unless there is a Unix socket
    unix: str | None = None  # the path of a Unix socket
    http_port: Port | None = None  # metrics; 0: a free one
    queue_types: str | None = None  # more types of queues, as `module:Class`, with commas between
    connections_max: Annotated[int, Meta(ge=1)] = 15_000
    compiled: bool = True  # use compiled code when there is much to do
    log_level: Level = "info"
    log_form: Form = "text"

    @property
    def tcp_port(self) -> int | None:
        """The TCP port to open, None for none."""
        return PORT if self.port is None and self.unix is None else self.port


Given = tuple[str, Any]
"""The place where a value stands, and the value."""


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> NodeConfig:
    """The settings that these give together; a flag that is None was not given."""
    given: dict[str, Given] = {}
    if file is not None:
        given.update(_from_file(file))
    given.update(_from_environment(environment or {}))
    given.update(
        (key, (f"--{key.replace('_', '-')}", value))
        for key, value in (flags or {}).items()
        if value is not None
    )
    settings = {key: _convert(key, *one) for key, one in given.items()}
    config = NodeConfig(**settings)
    _check_loopback(config.host, given.get("host", ("the default", ""))[0])
    return config


def _from_file(file: Path) -> Iterator[tuple[str, Given]]:
    try:
        text = file.read_text()
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(str(file), "", f"can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), "", f"is no TOML: {error}") from None
    for key, value in table.items():
        yield key, (f"{file}{_line_of(key, text)}", value)


def _line_of(key: str, text: str) -> str:
    """Where a key stands, as well as can be told: the parser does not say."""
    found = re.search(rf"""^[ \t]*(\[\s*)?["']?{re.escape(key)}["']?\s*[\]=.]""", text, re.MULTILINE)
    return "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Other programs may have variables with our prefix, so what is not known is passed over."""
    for key in NodeConfig.__struct_fields__:
        name = PREFIX + key.upper()
        if name in environment:
            yield key, (name, environment[name])


_KINDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(NodeConfig)}


def _convert(key: str, place: str, value: Any) -> Any:
    if key not in _KINDS:
        close = get_close_matches(key, _KINDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(place, key, f"there is no such setting{hint}")
    try:
        return msgspec.convert(value, _KINDS[key], strict=place == f"--{key}" or not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise ConfigError(place, key, f"{value!r} is not possible: {error}") from None


def _check_loopback(host: str, place: str) -> None:
    try:
        is_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(place, "host", f"{host!r} is no IP address") from None
    if not is_loopback:
        raise ConfigError(
            place,
            "host",
            f"{host} can be reached from other machines, and a node has no way yet to tell who may do what;"
            " use a loopback address such as 127.0.0.1",
        )
