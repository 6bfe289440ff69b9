"""Options of Spark's format `tidings`, and the values that each may have.

Spark passes options as texts, by names whose case does not matter, and shows them to anyone who looks at a
plan. So options name files with secrets, and never contain a secret. An error about an option contains its
name, its value and the allowed values, and is raised before anything is read or connected to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from tidings.errors import AddressError, ConfigError, EventError, FilterError
from tidings.event.values import plain_moment
from tidings.filters import Filter
from tidings.log.arguments import LEASE_S_MAX, CollapseTerms
from tidings.transport.address import parse

LEASE_S = 30.0
"""Default lease of a query's demand at a node."""
LEASE_S_MIN = 1.0
"""Shortest lease: one that is shorter would end with any pause of a busy driver."""
TIME_MS_MAX = 253_402_300_799_999
"""Last millisecond of the year 9999, which is the last one of events."""

OTHERS_ONLY = "NOT STARTS_WITH(type, 'tidings.')"
"""Default filter: without the events that nodes and gateways publish about themselves."""

Use = Literal["batch", "stream", "sink"]
Word = Literal["earliest", "latest"]
T = TypeVar("T")

BATCH: tuple[Use, ...] = ("batch",)
STREAM: tuple[Use, ...] = ("stream",)
READ: tuple[Use, ...] = ("batch", "stream")
SINK: tuple[Use, ...] = ("sink",)
ALL: tuple[Use, ...] = ("batch", "stream", "sink")

NAMES: dict[str, tuple[Use, ...]] = {
    "node": ALL,
    "path": BATCH,
    "where": READ,
    "channel": READ,
    "collapse": READ,
    "startingOffsets": READ,
    "startingTimestamp": READ,
    "endingOffsets": BATCH,
    "endingTimestamp": BATCH,
    "failOnDataLoss": READ,
    "maxOffsetsPerTrigger": STREAM,
    "minPartitions": READ,
    "durable": STREAM,
    "lease": STREAM,
    "mode": READ,
    "pushdown": BATCH,
    "skipCorrupt": READ,
    "sink": SINK,
    "job": SINK,
    "delivery": SINK,
    "type": SINK,
    "user": ALL,
    "passwordFile": ALL,
    "tokenFile": ALL,
    "ca": ALL,
    "cert": ALL,
    "key": ALL,
}
"""Every option, and its purpose; docs/spark.md has the table."""
USES: dict[Use, str] = {"batch": "spark.read", "stream": "spark.readStream", "sink": "writing"}
OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark's own that it passes as well; in lower case."""
OF_TABLES = frozenset({"provider", "owner"})
"""Properties of a table that Spark passes for options; in lower case."""
IN_SQL = "in SQL use CREATE TEMPORARY VIEW … USING tidings OPTIONS (…): Spark keeps no options for a table"
SECRETS = {"password": "passwordFile", "token": "tokenFile"}
_OWN_NAMES = {name.lower(): name for name in NAMES}


class NodeReach(Struct, frozen=True):
    """Addresses of nodes, and the query's credentials; secrets by the names of their files only."""

    nodes: tuple[str, ...] = ()
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


class ReadBound(Struct, frozen=True):
    """Beginning or end of reading: one word for all nodes, a place for each, or a time."""

    word: Word = "earliest"
    places: dict[str, int | Word] | None = None
    time_us: int | None = None

    def at(self, label: str) -> int | Word:
        """Return the place at a node, if no time is given."""
        return self.word if self.places is None else self.places[label]


class ReadOptions(Struct, frozen=True):
    """Options of a read."""

    reach: NodeReach
    path: str | None
    where: str
    starting: ReadBound
    ending: ReadBound
    fails_on_loss: bool
    offsets_max: int | None
    partitions_min: int | None
    durable: str | None
    lease_s: float | None  # None: without end
    strict: bool
    pushdown: bool
    skips_corrupt: bool
    collapse: CollapseTerms | None = None
    channel: str = ""  # the id of a channel, or its reference: its events, and no others


def check_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError for an invalid option, be it for reading or for writing."""
    _read(_named(options), "batch")


def read_options(options: Mapping[str, str], use: Literal["batch", "stream"]) -> ReadOptions:
    """Read the options; ConfigError if one is invalid, or not for a batch, or not for a stream."""
    given = _named(options)
    check_use(given, use)
    if "path" not in given and "node" not in given:
        also = " (or 'path', the folder of a sealed log)" if use == "batch" else ""
        hint = "" if given else f"; {IN_SQL}"
        raise option_error("node", f"is missing: say which node to read, such as 127.0.0.1:7300{also}{hint}")
    return _read(given, use)


def collapse_of(options: Mapping[str, str]) -> CollapseTerms | None:
    """Return the terms of the collapse in the options, if there is one; ConfigError if it is invalid."""
    return _value(_named(options), "collapse", _collapse, None)


def reach_of(options: Mapping[str, str]) -> NodeReach:
    """Return the addresses and credentials for the nodes in the options; ConfigError if there are none."""
    given = _named(options)
    if "node" not in given:
        raise option_error("node", "is missing: say which node, such as 127.0.0.1:7300")
    return _reach(given)


def check_use(options: Collection[str], use: Use) -> None:
    """Raise ConfigError if one of these is an option for another use."""
    for name in map(_own_name, options):
        uses = NAMES.get(name, ALL)
        if use not in uses:
            known = " and ".join(USES[other] for other in uses)
            raise option_error(name, f"is for {known}, not for {USES[use]}")


def option_error(name: str, problem: str) -> ConfigError:
    """Return an error about an option."""
    return ConfigError(f"option {name!r}", "", problem)


# Names


def _own_name(name: str) -> str:
    return _OWN_NAMES.get(name.lower(), name)


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their own names, without those of Spark."""
    given = {_own_name(name): value for name, value in options.items() if name.lower() not in OF_SPARK}
    if not OF_TABLES.isdisjoint(map(str.lower, given)):
        raise ConfigError("CREATE TABLE", "", f"is not possible with tidings; {IN_SQL}")
    for name in given:
        if name.lower() in SECRETS:
            right = SECRETS[name.lower()]
            raise option_error(
                name, f"would be shown in plans and logs; put it into a file and name that with {right!r}"
            )
        if name not in NAMES:
            close = get_close_matches(name.lower(), _OWN_NAMES, n=1)
            hint = f"did you mean {_OWN_NAMES[close[0]]!r}?" if close else f"there are {', '.join(NAMES)}"
            raise option_error(name, f"there is no such option; {hint}")
    return given


def _refuse_both(given: Mapping[str, str], *pairs: tuple[str, str]) -> None:
    for one, other in pairs:
        if one in given and other in given:
            raise option_error(other, f"can't be had together with {one!r}: choose one of them")


# Values


def _read(given: Mapping[str, str], use: Literal["batch", "stream"]) -> ReadOptions:
    _refuse_both(
        given,
        ("path", "node"),
        ("path", "channel"),
        ("startingTimestamp", "startingOffsets"),
        ("endingTimestamp", "endingOffsets"),
        ("collapse", "pushdown"),
        ("collapse", "mode"),
    )
    reach = _reach(given)
    labels = None if "path" in given else {label_of(node) for node in reach.nodes}
    durable = _value(given, "durable", _name, None)
    return ReadOptions(
        reach=reach,
        path=_value(given, "path", _name, None),
        where=_value(given, "where", _filter, OTHERS_ONLY),
        starting=_bound(given, "starting", "earliest" if use == "batch" else "latest", labels),
        ending=_bound(given, "ending", "latest", labels),
        fails_on_loss=_value(given, "failOnDataLoss", _switch, True),
        offsets_max=_value(given, "maxOffsetsPerTrigger", _count, None),
        partitions_min=_value(given, "minPartitions", _count, None),
        durable=durable,
        lease_s=_value(given, "lease", _seconds, LEASE_S if durable is None else None),
        strict=_value(given, "mode", _mode, False),
        pushdown=_value(given, "pushdown", _switch, False),
        skips_corrupt=_value(given, "skipCorrupt", _switch, False),
        collapse=_value(given, "collapse", _collapse, None),
        channel=_value(given, "channel", _name, ""),
    )


def _value(given: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    if name not in given:
        return default
    try:
        return read(given[name].strip())
    except ValueError as error:
        raise option_error(name, str(error)) from None


def _reach(given: Mapping[str, str]) -> NodeReach:
    _refuse_both(given, ("passwordFile", "tokenFile"))
    for name, needs in (("passwordFile", "user"), ("key", "cert")):
        if name in given and needs not in given and "@" not in given.get("node", ""):
            raise option_error(name, f"needs the option {needs!r} beside it")
    files = {name: _value(given, name, _name, None) for name in ("passwordFile", "tokenFile", "ca", "cert")}
    user = _value(given, "user", _name, None)
    is_secured = user is not None or any(files.values())
    reach = NodeReach(
        tuple(_nodes(given.get("node", ""), is_secured)) if "node" in given else (),
        user,
        files["passwordFile"],
        files["tokenFile"],
        files["ca"],
        files["cert"],
        _value(given, "key", _name, None),
    )
    if is_secured and (plain := [node for node in reach.nodes if parse(node).kind != "tls"]):
        raise option_error("node", f"{plain[0]} is without TLS; credentials need TLS")
    return reach


def _nodes(text: str, is_secured: bool) -> Iterator[str]:
    """Yield the addresses in a list; HOST:PORT is by TLS if the query has credentials."""
    seen: dict[str, str] = {}
    for part in text.split(","):
        address = part.strip()
        if "://" not in address:
            address = f"tidings{'+tls' if is_secured else ''}://{address}"
        try:
            label = label_of(address)
        except AddressError as error:
            raise option_error("node", f"{error}; say HOST:PORT, or several with commas between") from None
        if label in seen:
            raise option_error("node", f"{label} is named twice")
        seen[label] = address
        yield address


def label_of(address: str) -> str:
    """Return a node's name in offsets: HOST:PORT whatever the transport, or the path of its socket."""
    place = parse(address if "://" in address else f"tidings://{address}")
    if place.kind == "unix":
        return place.path
    return f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"


def _bound(given: Mapping[str, str], side: str, word: Word, labels: set[str] | None) -> ReadBound:
    time_us = _value(given, f"{side}Timestamp", _time_us, None)
    if time_us is not None:
        return ReadBound(word, time_us=time_us)
    name = f"{side}Offsets"
    text = given.get(name, word).strip()
    if text.lower() == "latest":
        return ReadBound("latest")
    if text.lower() != "earliest":
        return ReadBound(word, _places(name, text, labels))
    if side == "ending":
        raise option_error(name, "'earliest' would read nothing; say 'latest', or a position for each node")
    return ReadBound("earliest")


def _places(name: str, text: str, labels: set[str] | None) -> dict[str, int | Word]:
    """Parse a JSON object of places by node: each of the nodes, and no other; without labels, by node id."""
    try:
        places = msgspec.json.decode(text, type=dict[str, int | Word])
    except msgspec.DecodeError:
        example = '{"127.0.0.1:7300": 4711}'
        raise option_error(
            name, f"{text!r} is neither 'earliest', 'latest' nor positions by node such as {example}"
        ) from None
    below = [place for place in places.values() if isinstance(place, int) and place < 0]
    if below:
        raise option_error(name, f"{below[0]} is no position: they count from 1")
    return places if labels is None else _labelled(name, places, labels)


def _labelled(name: str, places: dict[str, Any], labels: set[str]) -> dict[str, Any]:
    try:
        named = {label_of(node): place for node, place in places.items()}
    except AddressError as error:
        raise option_error(name, str(error)) from None
    if strange := sorted(named.keys() - labels):
        raise option_error(name, f"names {strange[0]}, which the option 'node' does not")
    if missing := sorted(labels - named.keys()):
        raise option_error(name, f"says nothing of {missing[0]}; it must name every node")
    return named


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _filter(text: str) -> str:
    try:
        return str(Filter(text))
    except FilterError as error:
        raise ValueError(str(error)) from None


def _collapse(text: str) -> CollapseTerms:
    from tidings.pipeline.partial_rows import collapse_terms  # Arrow, which a sink need not load

    return collapse_terms(text)


def _switch(text: str, yes: str = "true", no: str = "false") -> bool:
    if text.lower() not in (yes, no):
        raise ValueError(f"{text!r} is neither {yes} nor {no}")
    return text.lower() == yes


def _mode(text: str) -> bool:
    return not _switch(text, "permissive", "failfast")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise ValueError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _time_us(text: str) -> int:
    """Read a time in milliseconds since 1970 or in ISO 8601, without a zone in UTC; return microseconds."""
    if text.isascii() and text.isdigit() and int(text) <= TIME_MS_MAX:
        return int(text) * 1000
    try:
        time_us = plain_moment(text, "")
    except EventError:
        time_us = -1
    if time_us < 0:
        example = "2026-05-01T08:30:00Z"
        raise ValueError(f"{text!r} is no time; write it as {example}, or in milliseconds since 1970")
    return time_us


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not LEASE_S_MIN <= seconds <= LEASE_S_MAX:
        raise ValueError(f"{text!r} is no number of seconds from {LEASE_S_MIN:g} to {LEASE_S_MAX:g}")
    return seconds
