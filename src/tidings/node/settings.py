"""The settings of a node as people meet them: options, variables, and a file with the meaning of each.

All of it is made from the fields of `NodeConfig`. No setting should have a password in it: most are refused
with the reason when they are used. But what is shown is copied into tickets and logs, so passwords are masked
there whether or not they would be refused.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from tidings.node.config import PREFIX, NodeConfig

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
    """A setting: what it is called, what it means, and what holds where nothing is said.

    `example` is a value for one that has no default; `contrary` is the flag that says no.
    """

    name: str
    meaning: str
    default: Any
    example: Any
    metavar: str | None = None
    contrary: str | None = None
    has_secrets: bool = False

    @property
    def kind(self) -> type:
        """The type of its values."""
        return type(self.example if self.default is None else self.default)

    @property
    def flag(self) -> str:
        """What it is called on the command line."""
        return flag_of(self.name)

    @property
    def variable(self) -> str:
        """What it is called in the environment."""
        return PREFIX + self.name.upper()

    @property
    def help(self) -> str:
        """A sentence for the command line, where settings are called by their flags."""
        sentence = f"{self.meaning[0].upper()}{self.meaning[1:]}."
        return re.sub(r"`(\w+)`", lambda found: _as_flag(found[1]), sentence).replace("`", "")


def flag_of(name: str) -> str:
    """What a setting is called on the command line."""
    return f"--{name.replace('_', '-')}"


def _as_flag(name: str) -> str:
    return flag_of(name) if name in NodeConfig.__struct_fields__ else name


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    about = field.type.__metadata__[-1]
    return Setting(field.name, about.description, field.default, about.examples[0], **about.extra)


SETTINGS = {field.name: _setting(field) for field in msgspec.structs.fields(NodeConfig)}
"""All settings by their names, in the order of `NodeConfig`."""


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
