"""Mapping of messages of an MQTT broker to readings: a TOML file with one table for each kind of reading.

    [[reading]]
    topic = "city/+station/air/+what"     # + is one level and # all the rest, with a name if it is needed
    network = "{station}"
    name = "{what}"
    type = "air.{what}"
    value = "$.v"                         # a place in the JSON of the message; "$" is all of it
    timestamp = "$.t"
    area = ["$.lon", "$.lat"]
    members = { unit = "$.unit" }

Texts may contain levels of the topic and places, `{station}` or `{$.device.id}`. All tables that fit a topic
give a reading if their value is there, so one message may have several.
"""

from __future__ import annotations

import re
import tomllib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from tidings.errors import CodecError, ConfigError, EventError
from tidings.event.values import check_type
from tidings.gateway.messages import NAME_LENGTH_MAX, Sensor

TOPICS_MAX = 10_000
"""Topics whose fitting tables are cached."""
PAYLOAD_SIZE_MAX = 256 << 10
"""Bytes of a message that is decoded."""

_NEEDED = ("topic", "network", "name", "type")
_KEYS = (*_NEEDED, "value", "timestamp", "area", "min-value", "max-value", "members")
_OWN = ("name", "type", "value", "timestamp", "area")
_LEVEL = re.compile(r"(?P<sign>[+#])(?P<name>[A-Za-z_]\w*)?")
_STEP = re.compile(r"\.(?P<member>[\w-]+)|\[(?P<index>\d{1,6})\]|\[\"(?P<quoted>[^\"]*)\"\]")
_FIELD = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]")
_MISSING = object()
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

Levels = dict[str, str]
Get = Callable[[Levels, Any], Any]
"""Finds a value in the levels of a topic and the content of a message; `_MISSING` if it is absent."""


class FoundReading(NamedTuple):
    """Reading in a message: its network, its sensor and the reading itself."""

    sensing_id: str
    sensor: Sensor
    reading: dict[str, Any]


class _Rule:
    """One table of the file."""

    def __init__(self, table: dict[str, Any], place: str, at: str) -> None:
        self._place, self._at = place, at
        for key in table:
            if key not in _KEYS:
                self._fail(key, f"is not known; there are {', '.join(_KEYS)}")
        for key in _NEEDED:
            if key not in table:
                self._fail(key, "is missing")
        self.filter, self._pattern = self._topic(table["topic"])
        self._network = self._template("network", table["network"])
        self._name = self._template("name", table["name"])
        self._type = self._template("type", table["type"])
        self.value_path = table.get("value", "$")
        self._value = self._source("value", self.value_path)
        self._timestamp = self._source("timestamp", table["timestamp"]) if "timestamp" in table else None
        self._area = self._points(table["area"]) if "area" in table else None
        self._low = self._number(table, "min-value")
        self._high = self._number(table, "max-value")
        self._members = self._others(table.get("members", {}))

    def levels(self, topic: str) -> Levels | None:
        """Return the named levels of a topic, None if it does not fit."""
        found = self._pattern.fullmatch(topic)
        return None if found is None else found.groupdict()

    def read(self, levels: Levels, payload: Any) -> FoundReading | None:
        """Return the reading in a message, None if its value is absent; CodecError if it is invalid."""
        value = self._value(levels, payload)
        if value is _MISSING or value is None:
            return None
        if not _is_plain(value):
            raise CodecError(str(self.value_path), "is no number, text, true or false")
        type = self._text(self._type, "type", levels, payload)
        try:
            check_type(type)
        except EventError as error:
            raise CodecError("type", error.problem) from None
        name = self._text(self._name, "name", levels, payload)
        reading = {"name": name, "type": type, "value": value}
        self._add_rest(reading, levels, payload)
        sensor = Sensor(name, type, min_value=self._low, max_value=self._high)
        return FoundReading(self._text(self._network, "network", levels, payload), sensor, reading)

    def _add_rest(self, reading: dict[str, Any], levels: Levels, payload: Any) -> None:
        if self._timestamp is not None:
            timestamp = self._timestamp(levels, payload)
            if isinstance(timestamp, str | int | float):
                reading["timestamp"] = timestamp
        if self._area is not None:
            x, y = (get(levels, payload) for get in self._area)
            if _is_number(x) and _is_number(y):
                reading["area"] = [{"x": x, "y": y}]
        for name, get in self._members:
            value = get(levels, payload)
            if value is not _MISSING:
                reading[name] = value

    def _text(self, get: Get, what: str, levels: Levels, payload: Any) -> str:
        text = get(levels, payload)
        if text is _MISSING or not 0 < len(text) <= NAME_LENGTH_MAX:
            raise CodecError(what, f"a message gives no text of 1 to {NAME_LENGTH_MAX} characters for it")
        return str(text)

    # Reading the table

    def _topic(self, text: Any) -> tuple[str, re.Pattern[str]]:
        """Return the filter to subscribe to at the broker, and the pattern of topics."""
        self._check_text("topic", text)
        filters, pattern = [], ""
        levels = text.split("/")
        names: set[str] = set()
        for number, level in enumerate(levels, 1):
            found = _LEVEL.fullmatch(level)
            if found is None and ("+" in level or "#" in level):
                self._fail("topic", f"level {number}, {level!r}: + or # stands first, before a name or alone")
            if found is not None and found["sign"] == "#" and number < len(levels):
                self._fail("topic", f"level {number}, {level!r}: # stands at the end")
            if found is not None and found["name"] in names:
                self._fail("topic", f"level {number}, {level!r}: there is another level of that name")
            names |= {found["name"]} if found is not None and found["name"] else set()
            filters.append(level if found is None else found["sign"])
            pattern += _level_pattern(level, found, is_first=number == 1)
        self._names = names
        return "/".join(filters), re.compile(pattern, re.DOTALL)

    def _template(self, key: str, text: Any) -> Get:
        """Parse a text with fields."""
        self._check_text(key, text)
        parts: list[str | Get] = []
        end = 0
        for found in _FIELD.finditer(text):
            parts.append(text[end : found.start()])
            end = found.end()
            if found[0] in ("{{", "}}"):
                parts.append(found[0][0])
            elif found["field"] is None:
                self._fail(
                    key, f"column {found.start() + 1}: a brace without its other; a brace itself is {{{{"
                )
            else:
                parts.append(self._field(key, found["field"]))
        parts.append(text[end:])
        return _joined([part for part in parts if part != ""])

    def _field(self, key: str, field: str) -> Get:
        if field.startswith("$"):
            return self._path(key, field)
        if field not in self._names:
            known = ", ".join(sorted(self._names)) or "none"
            self._fail(key, f"{{{field}}}: the topic has no level of that name; named levels: {known}")
        return lambda levels, _: levels[field]

    def _source(self, key: str, text: Any) -> Get:
        """Parse a place in the message, or a text with fields."""
        if isinstance(text, str) and text.startswith("$"):
            return self._path(key, text)
        return self._template(key, text)

    def _path(self, key: str, text: str) -> Get:
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                self._fail(key, f'{text!r}, column {at + 1}: a place is $, then .member, [0] or ["member"]')
            at = found.end()
            member = found["member"] if found["member"] is not None else found["quoted"]
            steps.append(int(found["index"]) if member is None else member)
        return lambda _, payload: _walk(payload, steps)

    def _points(self, area: Any) -> tuple[Get, Get]:
        if not isinstance(area, list) or len(area) != 2:
            self._fail("area", 'must be [x, y], each a number or a place such as "$.lon"')
        x, y = (self._coordinate(one) for one in area)
        return x, y

    def _coordinate(self, one: Any) -> Get:
        if _is_number(one):
            return lambda _levels, _payload: one
        if not isinstance(one, str) or not one.startswith("$"):
            self._fail("area", f'{one!r} is neither a number nor a place such as "$.lon"')
        return self._path("area", one)

    def _number(self, table: dict[str, Any], key: str) -> float | None:
        value = table.get(key)
        if value is not None and not _is_number(value):
            self._fail(key, "is no number")
        return value

    def _others(self, members: Any) -> list[tuple[str, Get]]:
        if not isinstance(members, dict):
            self._fail("members", 'must be a table, such as { unit = "$.unit" }')
        for name in members:
            if name in _OWN:
                self._fail(f"members.{name}", "has a key of its own, beside members")
        return [(name, self._source(f"members.{name}", text)) for name, text in members.items()]

    def _check_text(self, key: str, text: Any) -> None:
        if not isinstance(text, str) or not text:
            self._fail(key, "must be a text, and not empty")

    def _fail(self, key: str, problem: str) -> NoReturn:
        raise ConfigError(self._place, f"{self._at}.{key}", problem)


class TopicMap:
    """All tables of a file."""

    def __init__(self, tables: list[Any], place: str) -> None:
        if not tables or not all(isinstance(table, dict) for table in tables):
            raise ConfigError(place, "reading", "must be tables, each headed [[reading]]")
        self._rules = [_Rule(table, place, f"reading[{number}]") for number, table in enumerate(tables, 1)]
        self._fitting: OrderedDict[str, list[tuple[_Rule, Levels]]] = OrderedDict()

    @property
    def filters(self) -> list[str]:
        """Return the topics to subscribe to at the broker, each once."""
        return list(dict.fromkeys(rule.filter for rule in self._rules))

    def read(self, topic: str, payload: bytes) -> list[FoundReading]:
        """Return the readings in a message; CodecError if there is none, or an invalid one."""
        fitting = self._fitting_rules(topic)
        if not fitting:
            raise CodecError(topic, "no [[reading]] is for this topic")
        value = _decoded(topic, payload)
        found = []
        for rule, levels in fitting:
            try:
                one = rule.read(levels, value)
            except CodecError as error:
                raise CodecError(f"{topic}: {error.place}", error.problem) from None
            found += [] if one is None else [one]
        if not found:
            paths = " or ".join(dict.fromkeys(str(rule.value_path) for rule, _ in fitting))
            raise CodecError(topic, f"the message has no {paths}")
        return found

    def _fitting_rules(self, topic: str) -> list[tuple[_Rule, Levels]]:
        known = self._fitting.get(topic)
        if known is None:
            pairs = ((rule, rule.levels(topic)) for rule in self._rules)
            known = [(rule, levels) for rule, levels in pairs if levels is not None]
            self._fitting[topic] = known
            if len(self._fitting) > TOPICS_MAX:
                self._fitting.popitem(last=False)
        return known


def load_map(file: Path) -> TopicMap:
    """Load the map in a file; ConfigError names the problem, and its place."""
    try:
        content = tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise ConfigError(str(file), "", f"can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), "", f"is not TOML: {error}") from None
    for key in content:
        if key != "reading":
            raise ConfigError(str(file), key, "is not known; there is [[reading]]")
    tables = content.get("reading")
    return TopicMap(tables if isinstance(tables, list) else [], str(file))


def _level_pattern(level: str, found: re.Match[str] | None, is_first: bool) -> str:
    slash = "" if is_first else "/"
    if found is None:
        return slash + re.escape(level)
    group = f"?P<{found['name']}>" if found["name"] else "?:"
    if found["sign"] == "+":
        return f"{slash}({group}[^/]*)"
    return f"({group}.*)" if is_first else f"(?:/({group}.*))?"


def _joined(parts: list[str | Get]) -> Get:
    """Return a function that gives the text of several parts."""

    def get(levels: Levels, payload: Any) -> Any:
        texts = [part if isinstance(part, str) else _within_text(part(levels, payload)) for part in parts]
        return _MISSING if _MISSING in texts else "".join(texts)

    return get


def _within_text(value: Any) -> Any:
    """Return a value within a text; `_MISSING` if it is none that a text may contain."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _MISSING
    return str(value)


def _walk(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step, _MISSING)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _decoded(topic: str, payload: bytes) -> Any:
    """Decode a message: JSON, or else a text."""
    if len(payload) > PAYLOAD_SIZE_MAX:
        raise CodecError(topic, f"the message has more than {PAYLOAD_SIZE_MAX:,} bytes")
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise CodecError(topic, "the message is neither JSON nor text") from None


def _is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return _INT_MIN <= value <= _INT_MAX
    return isinstance(value, str | float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
