"""Settings of a run of a pipeline: its node and credentials, its reader and its sink.

A declarative pipeline takes no arguments, so each setting is a key of Spark's configuration
(`spark.tidings.city.node` for the pipeline `city`), in `spark-pipeline.yml` or after `--conf`; without it, a
variable of the environment counts. Secrets are in files, and only their names are here. A pipeline with
settings of its own has a class of its own, which adds their fields.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec
from msgspec import Struct

from tidings.errors import ConfigError

NODE = "127.0.0.1:7300"
SHARED = ("node", "user", "password_file", "token_file", "ca", "cert", "key")
"""Settings whose variables are those of all commands, such as TIDINGS_NODE."""
OPTIONS = {"password_file": "passwordFile", "token_file": "tokenFile"}
"""Settings with another name as options of the format `tidings`."""
UNITS = {"ms": 0.001, "millisecond": 0.001, "s": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
UNITS |= {"h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}
_SPAN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?)\s*(?P<unit>[a-z]*)\s*")
_DIGITS = 12  # of a hash or a random number in the name of a sink


class RunSettings(Struct, frozen=True, kw_only=True):
    """All settings; None: not given."""

    pipeline: str
    """Name of the pipeline, which is part of the keys."""
    node: str | None = None
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    where: str | None = None
    """Filter of the events to read, instead of the pipeline's own."""
    starting: str | None = None
    """Start of a query without a checkpoint: earliest or latest."""
    reader: str | None = None
    """Name of the durable reader; without one, the node forgets the query when it ends."""
    allow_loss: str | None = None
    """`true`: go on though events are gone that should have been read."""
    sink: str | None = None
    """Name of the sink, under which the node keeps the progress of the query."""

    def completed(
        self, configured: Callable[[str], str | None], environment: Mapping[str, str] = os.environ
    ) -> Self:
        """Return these settings, and for the rest those in Spark's configuration, then the environment."""
        missing = [name for name, value in msgspec.structs.asdict(self).items() if value is None]
        values = {name: configured(self._key(name)) for name in missing}
        given = {name: value or environment.get(self._variable(name)) for name, value in values.items()}
        return msgspec.structs.replace(self, **{name: value for name, value in given.items() if value})

    def configuration(self) -> dict[str, str]:
        """Return the same as keys of Spark's configuration."""
        given = msgspec.structs.asdict(self)
        return {self._key(name): value for name, value in given.items() if value and name != "pipeline"}

    def reach(self) -> dict[str, str]:
        """Return the options of the format `tidings` for the address of the node and the credentials."""
        given = {name: getattr(self, name) for name in SHARED}
        given["node"] = self.node or NODE
        return {OPTIONS.get(name, name): value for name, value in given.items() if value}

    def source(self, where: str, name: str = "") -> dict[str, str]:
        """Return the options for reading a stream; `where` is the pipeline's own filter.

        One of several sources has its `name` behind that of the reader.
        """
        reader = f"{self.reader}-{name}" if self.reader and name else self.reader
        named = {"durable": reader, "startingOffsets": self.starting}
        given = {name: value for name, value in named.items() if value}
        if self.allow_loss == "true":
            given["failOnDataLoss"] = "false"
        return {**self.reach(), "where": self.where or where, **given}

    def target(self) -> dict[str, str]:
        """Return the options for publishing: at the first of several nodes."""
        reach = self.reach()
        first = reach["node"].partition(",")[0].strip()
        return {**reach, "node": first, "sink": self.sink or self.pipeline}

    def named(self, checkpoint: str | None) -> Self:
        """Return the settings with a name for the sink, if none is given."""
        if self.sink is not None:
            return self
        return msgspec.structs.replace(self, sink=sink_name(self.pipeline, checkpoint))

    def _key(self, name: str) -> str:
        return f"spark.tidings.{self.pipeline}.{name}"

    def _variable(self, name: str) -> str:
        """Return the variable of the environment for a setting."""
        own = "" if name in SHARED else f"{self.pipeline}_"
        return re.sub("[-.]", "_", f"TIDINGS_{own}{name}".upper())


def sink_name(pipeline: str, checkpoint: str | None) -> str:
    """Return the name of the sink at the node: the same for the same checkpoint, else new for each run."""
    if checkpoint is None:
        return f"{pipeline}-{uuid4().hex[:_DIGITS]}"
    where = checkpoint if "://" in checkpoint else str(Path(checkpoint).resolve())
    return f"{pipeline}-{hashlib.sha256(where.encode()).hexdigest()[:_DIGITS]}"


def time_span(text: str, key: str) -> float:
    """Return the seconds of '10 seconds', '5 min' or '90'; ConfigError for any other text."""
    found = _SPAN.fullmatch(text.lower())
    unit = (found["unit"] or "s") if found else ""
    factor = UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))
    if found is None or factor is None:
        problem = f"{text!r} is no time; say something like '10 seconds' or '5 minutes'"
        raise ConfigError("settings", key, problem)
    return float(found["number"]) * factor
