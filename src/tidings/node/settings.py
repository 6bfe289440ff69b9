"""The settings of a node as people meet them: in a TOML file, in the environment and as flags.

    port = 7300                      in the file
    TIDINGS_PORT=7300                in the environment
    --port 7300                      as a flag

All three have the same names, those of the fields of `NodeConfig`, and each is stronger than the last. A
setting that is not known, or has a value that it can't have, is refused with its name and the place where it
stands.

No setting should have a password in it: most are refused with the reason when they are used. But what is
shown is copied into tickets and logs, so passwords are masked there whether or not they would be refused.

The directory of a node that has joined adds settings, which are weaker than those given:

DIR/security         its security directory
DIR/security/peers   the nodes that it knows by joining, see `security.known_nodes`, after those given
DIR/joining          a join that was not completed
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import ConfigError, in_words
from tidings.node.config import NodeConfig
from tidings.node.config_checks import check
from tidings.node.variables import PREFIX
from tidings.peers.registry import parse_peers
from tidings.store.directory import SECURITY

TABLE = "log"
"""Name of the table that the file may have: `where` in it is `log_where`."""

JOINING = "joining"

Given = tuple[str, Any]
"""The place where a value stands, and the value."""
MASK = r"\g<before>***"

# postgresql://ada:SECRET@db?sslpassword=SECRET, s3://log?secret_key=SECRET
# A password that has @ or / in it should have them encoded, and is no less secret if it has not.
_SECRET = r"(?:(?:(?!://)[^?\s])*|[^/\s]*)(?=@)"
_USER = re.compile(rf"(?P<before>://[^:@/?#\s]*:){_SECRET}")
_WORDS = "password|secret|token|key|sig"
_QUERY = re.compile(rf"(?P<before>[?&][^=&\s]*(?:{_WORDS})[^=&\s]*=)[^&\s]*", re.IGNORECASE)
# password=SECRET, sslpassword = 'SEC RET', as libpq reads it
_VALUE = r"(?:'(?:\\.|[^'\\])*'?|(?:\\.|\S)+)"
_CONNINFO = re.compile(rf"(?P<before>password\s*=\s*){_VALUE}", re.IGNORECASE | re.DOTALL)


class Setting(Struct, frozen=True):
    """A setting: its name, its meaning and its default.

    `type` has its bounds, too; `example` is a value for one that has no default; `contrary` is the flag that
    says no.
    """

    name: str
    type: Any
    meaning: str
    default: Any
    example: Any
    metavar: str | None = None
    contrary: str | None = None
    has_secrets: bool = False

    @property
    def kind(self) -> Any:
        """The class of its values."""
        return (self.example if self.default is None else self.default).__class__

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have, if these are few words."""
        plain = get_args(self.type)[0]
        return get_args(plain) if get_origin(plain) is Literal else ()

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return flag_of(self.name)

    @property
    def variable(self) -> str:
        """Name in the environment."""
        return PREFIX + self.name.upper()

    @property
    def help(self) -> str:
        """A sentence for the command line, where settings are called by their flags."""
        sentence = f"{self.meaning[0].upper()}{self.meaning[1:]}."
        return re.sub(r"`(\w+)`", lambda found: _as_flag(found[1]), sentence).replace("`", "")


def flag_of(key: str) -> str:
    """Return the name of a setting on the command line."""
    return f"--{key.replace('_', '-')}"


def _as_flag(name: str) -> str:
    return flag_of(name) if name in NodeConfig.__struct_fields__ else name


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    about = field.type.__metadata__[-1]
    return Setting(field.name, field.type, about.description, field.default, about.examples[0], **about.extra)


SETTINGS = {field.name: _setting(field) for field in msgspec.structs.fields(NodeConfig)}
"""All settings by their names, in the order of `NodeConfig`."""


# Read


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    is_joining: bool = False,
) -> NodeConfig:
    """The settings that these give together; a flag that is None was not given.

    The directory of a node that has joined adds to them; `is_joining`: it is about to join.
    """
    given: dict[str, Given] = {}
    if file is not None:
        given.update(_from_file(file))
    given.update(_from_environment(environment or {}))
    for key, value in (flags or {}).items():
        if value is not None:
            given[key] = flag_of(key), value
    config = complete(NodeConfig(**{key: convert(key, *one) for key, one in given.items()}), is_joining)
    check(config, defaultdict(lambda: "the default", {key: place for key, (place, _) in given.items()}))
    return config


def _from_file(file: Path) -> Iterator[tuple[str, Given]]:
    import tomllib  # here: most nodes have no such file

    try:
        text = file.read_text()
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(str(file), "", f"can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), "", f"is not TOML: {error}") from None
    for key, value in table.items():
        if key == TABLE and isinstance(value, dict):
            for name, one in value.items():
                yield f"{key}_{name}", (f"{file}{_line_of(name, text)}", one)
        else:
            yield key, (f"{file}{_line_of(key, text)}", value)


def _line_of(key: str, text: str) -> str:
    """Return the line of a key, as well as can be found out: the parser does not say."""
    found = re.search(rf"""^[ \t]*(\[\s*)?["']?{re.escape(key)}["']?\s*[\]=.]""", text, re.MULTILINE)
    return "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Other programs may have variables with our prefix, so what is not known is passed over."""
    for setting in SETTINGS.values():
        if setting.variable in environment:
            yield setting.name, (setting.variable, environment[setting.variable])


def convert(key: str, place: str, value: Any) -> Any:
    """Return the value of a setting; ConfigError, with its place, if it can't have that value."""
    if key not in SETTINGS:
        close = get_close_matches(key, SETTINGS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(place, key, f"there is no such setting{hint}")
    try:
        is_strict = place == f"--{key}" or not isinstance(value, str)
        return msgspec.convert(value, SETTINGS[key].type, strict=is_strict)
    except msgspec.ValidationError as error:
        choices = SETTINGS[key].choices
        wanted = f"must be one of {', '.join(choices)}" if choices else in_words(error)
        problem = wanted.partition(", not ")[0]
        raise ConfigError(place, key, f"{problem}, not {value!r}") from None


# Joined


def complete(config: NodeConfig, is_joining: bool = False) -> NodeConfig:
    """Return the settings with what the directory of the node adds; `is_joining`: it will be there."""
    if config.dir is not None and config.security is None:
        place = Path(config.dir) / SECURITY
        if is_joining or place.exists():
            config = replace(config, security=str(place))
        elif (unfinished := place.with_name(JOINING)).exists():
            problem = "a join was not completed; repeat it with --join LINE, or remove this folder"
            raise ConfigError(str(unfinished), "", problem)
    return _with_known(config)


def _with_known(config: NodeConfig) -> NodeConfig:
    """Add the nodes that are known by joining, and can be dialled, to the peers of the settings."""
    if config.security is None or not (Path(config.security) / "peers").exists():
        return config
    from tidings.security.directory import SecurityDirectory
    from tidings.security.known_nodes import read_known

    named = parse_peers(config.peers or "")
    known = read_known(SecurityDirectory(config.security))
    more = {name: addresses[0] for name, addresses in known.items() if addresses and name not in named}
    peers = ", ".join(f"{name}={address}" for name, address in {**named, **more}.items())
    return replace(config, peers=peers) if more else config


# Shown


def as_toml(config: NodeConfig) -> str:
    """A file that gives these settings, each below its meaning; one that is none is shown by an example.

    Passwords are masked: a file with one in it gives other settings, which are refused.
    """
    lines = []
    for setting in SETTINGS.values():
        value = getattr(config, setting.name)
        if setting.has_secrets and value is not None:
            value = masked(value)
        line = f"{setting.name} = {_toml_value(setting.example if value is None else value)}"
        lines += [f"# {setting.meaning}", f"# {line}" if value is None else line, ""]
    return "\n".join(lines)


def _toml_value(value: str | int | bool) -> str:
    """The value as TOML writes it: as JSON does, but for one character."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def masked(text: str) -> str:
    """The text with `***` in the place of every password that it seems to have."""
    if "://" in text:
        return _QUERY.sub(MASK, _USER.sub(MASK, text))
    return _CONNINFO.sub(MASK, text)
