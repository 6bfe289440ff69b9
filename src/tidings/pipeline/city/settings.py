"""Settings of a run of the city pipeline: its node, its readings, its rules.

A declarative pipeline takes no arguments, so each setting is a key of Spark's configuration
(`spark.tidings.city.node`), in `spark-pipeline.yml` or after `--conf`; without it, a variable of the
environment counts. Secrets are in files, and only their names are here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError, InternalError
from tidings.pipeline.city.rules import CityRules, check_common, read_rules

PREFIX = "spark.tidings.city."
NODE = "127.0.0.1:7300"
WHERE = "value IS NOT NULL AND type NOT LIKE 'alarm.%'"
"""All readings; the pipeline never reads its own alarms."""
SHARED = ("node", "user", "password_file", "token_file", "ca", "cert", "key")
"""Settings whose variables are those of all commands, such as TIDINGS_NODE."""
OPTIONS = {"password_file": "passwordFile", "token_file": "tokenFile"}
"""Settings with another name as options of the format `tidings`."""
UNITS = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
UNITS |= {"h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}
SPEC = "spark-pipeline.yml"
_PLACES = (Path(__file__).parent / "project", Path(__file__).parents[4] / "pipelines" / "city")
"""Folder of the declarative project: in the package, or beside it in a checkout."""
_SPAN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?)\s*(?P<unit>[a-z]*)\s*")


class CitySettings(Struct, frozen=True, kw_only=True):
    """All settings; None: not given."""

    node: str | None = None
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    where: str | None = None
    starting: str | None = None
    """Start of a query without a checkpoint: earliest or latest."""
    reader: str | None = None
    """Name of the durable reader; without one, the node forgets the query when it ends."""
    allow_loss: str | None = None
    """`true`: go on though events are gone that should have been read."""
    sink: str | None = None
    """Name of the sink, under which the node keeps the progress of the query."""
    rules: str | None = None
    """File of the rules; without one, those of the project."""
    window: str | None = None
    watermark: str | None = None
    cell_size: str | None = None

    @classmethod
    def found(
        cls, configured: Callable[[str], str | None], environment: Mapping[str, str] = os.environ
    ) -> CitySettings:
        """Return the settings in Spark's configuration, and for the rest the environment."""
        values = {name: configured(PREFIX + name) for name in cls.__struct_fields__}
        given = {name: value or environment.get(variable(name)) for name, value in values.items()}
        return cls(**{name: value for name, value in given.items() if value})

    def configuration(self) -> dict[str, str]:
        """Return the same as keys of Spark's configuration."""
        return {PREFIX + name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def reach(self) -> dict[str, str]:
        """Return the options of the format `tidings` for the address of the node and the credentials."""
        given = {name: getattr(self, name) for name in SHARED}
        given["node"] = self.node or NODE
        return {OPTIONS.get(name, name): value for name, value in given.items() if value}

    def source(self) -> dict[str, str]:
        """Return the options for reading a stream."""
        named = {"durable": self.reader, "startingOffsets": self.starting}
        given = {name: value for name, value in named.items() if value}
        if self.allow_loss == "true":
            given["failOnDataLoss"] = "false"
        return {**self.reach(), "where": self.where or WHERE, **given}

    def target(self) -> dict[str, str]:
        """Return the options for publishing alarms."""
        return {**self.reach(), "sink": self.sink or "city"}

    def loaded_rules(self) -> CityRules:
        """Return the rules, overridden by the settings; ConfigError if they are invalid."""
        path = Path(self.rules) if self.rules else project_folder() / "rules.toml"
        rules = read_rules(path)
        changes = {"window_s": self.window, "late_s": self.watermark}
        common = {name: time_span(text, name) for name, text in changes.items() if text}
        if self.cell_size:
            common["cell_size"] = _number(self.cell_size)
        changed = msgspec.structs.replace(rules.common, **common)
        check_common(changed, "settings")
        return msgspec.structs.replace(rules, common=changed)


def variable(name: str) -> str:
    """Return the variable of the environment for a setting."""
    return f"TIDINGS_{name.upper()}" if name in SHARED else f"TIDINGS_CITY_{name.upper()}"


def time_span(text: str, key: str) -> float:
    """Return the seconds of '10 seconds', '5 min' or '90'; ConfigError for any other text."""
    found = _SPAN.fullmatch(text.lower())
    unit = (found["unit"] or "s") if found else ""
    factor = UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))
    if found is None or factor is None:
        problem = f"{text!r} is no time; say something like '10 seconds' or '5 minutes'"
        raise ConfigError("settings", key, problem)
    return float(found["number"]) * factor


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError("settings", "cell_size", f"{text!r} is no number") from None


def project_folder() -> Path:
    """Return the folder with `spark-pipeline.yml`, the definitions and the rules."""
    for folder in _PLACES:
        if (folder / SPEC).is_file():
            return folder
    raise InternalError(f"the files of the city pipeline are missing: {_PLACES[0]}")
