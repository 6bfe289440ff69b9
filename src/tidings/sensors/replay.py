"""Recorded readings of a CSV file, as the messages that their networks would have sent, and their player.

    for message in Recording(path).messages():
        print(message.time_s, message.sensing_id, message.readings)

Messages come in the order of their times. For that ORDER_WINDOW lines are held: one that is further out of
its place than that comes late, and is counted. A line that can't be read is skipped, counted and reported; an
empty value is left out.
"""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from heapq import heappop, heappush
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from msgspec import Struct

from tidings.errors import ConfigError, UserError
from tidings.event.values import in_utc
from tidings.gateway.messages import NAME_LENGTH_MAX, Sensor
from tidings.sensors.columns import RecordingColumns, guess_columns
from tidings.sensors.link import GatewayPlace
from tidings.sensors.network import SensorReading
from tidings.sensors.speaker import Speaker

ORDER_WINDOW = 10_000
"""Lines that are held to put them in order."""
MILLISECONDS_FROM, MICROSECONDS_FROM = 1e11, 1e14
"""Number of seconds, thousands of years from now, above which a time is in milliseconds, or microseconds."""
NAMED_MAX = 10
"""Unreadable lines that are reported; the others are only counted."""
ARRIVE_S_MAX = 60.0
"""Longest time without an acknowledgement at the end, before the rest is given up."""
REPORT_S = 1.0
TURN = 100
"""Messages after which other tasks get a turn, if there is nothing to wait for."""


class ReplayMessage(NamedTuple):
    """Readings of one line: their time, network and sensors."""

    time_s: float
    sensing_id: str
    sensors: list[Sensor]
    readings: list[SensorReading]


class Recording:
    """File of readings, which may be compressed with gzip. Lines are counted while it is read.

    `columns` None: by the names in the first line. `network`: the column of the sensing-id; without it every
    sensor is a network of its own.
    """

    def __init__(
        self, path: Path, columns: RecordingColumns | None = None, network: str | None = None
    ) -> None:
        self._path = path
        self._network = network
        self._raw: BinaryIO | None = None
        try:
            self._size = max(path.stat().st_size, 1)
            with self._open() as text:
                header = next(csv.reader(text), [])
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror or error}") from None
        except (csv.Error, UnicodeDecodeError, EOFError) as error:
            raise UserError(f"{path}: is no CSV file: {error}") from None
        self.columns = columns or guess_columns(header, str(path))
        self.columns.check(header, str(path))
        if network is not None and network not in header:
            raise ConfigError(str(path), network, f"there is no such column; there are {', '.join(header)}")
        self._header = header
        self.lines = 0
        self.readings = 0
        self.empty = 0
        self.late = 0
        self.bad = 0
        self.bad_lines: list[tuple[int, str]] = []  # their numbers and problems

    @property
    def share(self) -> float:
        """Share of the file that was read, from 0 to 1."""
        if self._raw is None:
            return 0.0
        return 1.0 if self._raw.closed else min(self._raw.tell() / self._size, 1.0)

    def messages(self) -> Iterator[ReplayMessage]:
        """Yield all messages, in the order of their times; UserError if the file is cut off."""
        held: list[tuple[float, int, ReplayMessage]] = []
        last_s = -float("inf")
        for number, message in self._read():
            heappush(held, (message.time_s, number, message))
            if len(held) > ORDER_WINDOW:
                self.late += held[0][0] < last_s
                last_s = max(last_s, held[0][0])
                yield heappop(held)[2]
        while held:
            yield heappop(held)[2]

    def _read(self) -> Iterator[tuple[int, ReplayMessage]]:
        make = _Maker(self.columns, self._header, self._network)
        try:
            with self._open() as text:
                rows = csv.reader(text)
                next(rows)
                for row in rows:
                    if row:
                        self.lines += 1
                        message = self._message(make, row, rows.line_num)
                        if message is not None:
                            yield rows.line_num, message
        except (csv.Error, OSError, UnicodeDecodeError, EOFError) as error:
            raise UserError(f"{self._path}: can't be read on: {error}") from None

    def _message(self, make: _Maker, row: list[str], line: int) -> ReplayMessage | None:
        try:
            message = make(row)
        except (ValueError, IndexError, OverflowError) as error:
            self.bad += 1
            if len(self.bad_lines) < NAMED_MAX:
                problem = "has too few fields" if isinstance(error, IndexError) else str(error)
                self.bad_lines.append((line, problem))
            return None
        self.readings += len(message.readings)
        self.empty += make.values - len(message.readings)
        return message if message.readings else None

    def _open(self) -> TextIO:
        plain: Any = gzip.GzipFile(self._path) if self._path.suffix == ".gz" else self._path.open("rb")
        self._raw = getattr(plain, "fileobj", plain)  # the compressed file, which is closed with it
        return io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")


class _Maker:
    """Makes messages from the fields of lines."""

    def __init__(self, columns: RecordingColumns, header: list[str], network: str | None) -> None:
        at = {column: index for index, column in reversed(list(enumerate(header)))}
        self._timestamp = at[columns.timestamp]
        self._name = at[columns.name]
        self._network = at[columns.name if network is None else network]
        self._place = None
        if columns.posx is not None and columns.posy is not None:
            self._place = (at[columns.posx], at[columns.posy])
        self._values = [(type, at[column]) for type, column in columns.values]
        self._typed = None
        if columns.type is not None and columns.value is not None:
            self._typed = (at[columns.type], at[columns.value])
        self._others = [(name, at[column]) for name, column in columns.others]
        self._sensors: dict[tuple[str, str], Sensor] = {}
        self.values = len(self._values) or 1

    def __call__(self, row: list[str]) -> ReplayMessage:
        """Return the message of one line; ValueError or IndexError if it is invalid."""
        time_s, timestamp = moment_of(row[self._timestamp])
        sensing_id, name = _text(row[self._network], "network"), _text(row[self._name], "sensor")
        rest: dict[str, Any] = {"timestamp": timestamp}
        if self._place is not None:
            x, y = (row[index] for index in self._place)
            if x and y:
                rest["area"] = ({"x": _number(x, "posx"), "y": _number(y, "posy")},)
        rest |= {other: row[index] for other, index in self._others if row[index]}
        sensors: list[Sensor] = []
        readings: list[SensorReading] = []
        for type, value in self._typed_values(row):
            sensor = self._sensor(name, type)
            sensors.append(sensor)
            readings.append({"name": sensor.name, "type": type, "value": value, **rest})
        return ReplayMessage(time_s, sensing_id, sensors, readings)

    def _sensor(self, name: str, type: str) -> Sensor:
        """Return the sensor of a name that measures this."""
        known = self._sensors.get((name, type))
        if known is None:
            # A name is one sensor of a network, so one that measures several things becomes several sensors.
            whole = name if len(self._values) == 1 or self._typed else f"{name}.{type}"
            known = self._sensors[name, type] = Sensor(_text(whole, "sensor"), type)
        return known

    def _typed_values(self, row: list[str]) -> Iterator[tuple[str, Any]]:
        if self._typed is not None:
            type, value = (row[index] for index in self._typed)
            if value:
                yield _text(type, "type"), _plain(value)
            return
        for type, index in self._values:
            if row[index]:
                yield type, _number(row[index], type)


def moment_of(text: str) -> tuple[float, str | float]:
    """Parse a time to seconds since 1970, and to the form in readings; ValueError if it is invalid.

    It is ISO 8601, in UTC if no zone is written, or the number of seconds, milliseconds or microseconds.
    """
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{_short(text)} is no time") from None
        return in_utc(moment).timestamp(), text
    if not isfinite(number):
        raise ValueError(f"{_short(text)} is no time")
    return number / (
        1e6 if number > MICROSECONDS_FROM else 1e3 if number > MILLISECONDS_FROM else 1.0
    ), number


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{what}: {_short(text)} is no number") from None
    if not isfinite(number):
        raise ValueError(f"{what}: {_short(text)} is no number that can be measured")
    return number


def _plain(text: str) -> float | str:
    try:
        return _number(text, "value")
    except ValueError:
        return text


def _text(text: str, what: str) -> str:
    if not 0 < len(text) <= NAME_LENGTH_MAX:
        raise ValueError(f"the {what} has 1 to {NAME_LENGTH_MAX} characters")
    return text


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


class Played(Struct):
    """Counters so far."""

    networks: int = 0
    messages: int = 0
    readings: int = 0
    arrived: int = 0
    unwanted: int = 0
    share: float = 0.0
    elapsed_s: float = 0.0


class Player:
    """Plays a recording to a gateway: each reading when its time has come, or all as fast as they go.

    `speed`: factor of the original speed; 0: as fast as it goes. Every message is numbered and waited for, so
    all readings have arrived when `play` returns.
    `only_asked`: readings without demand are left out. `report` is called about once a second.
    """

    def __init__(
        self,
        recording: Recording,
        place: GatewayPlace,
        *,
        speed: float = 1.0,
        only_asked: bool = False,
        report: Callable[[Played], None] | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self.played = Played()
        self._recording = recording
        self._speed = speed
        self._report = report or (lambda _: None)
        self._report_at = 0.0
        self._begin = 0.0
        self._settled = 0
        self._speaker = Speaker(place, always=not only_asked, on_arrived=self._arrived, on_problem=on_problem)

    async def play(self) -> Played:
        """Send everything, and wait until it has arrived; NoAnswer if the gateway stops acknowledging."""
        self._begin = time.monotonic()
        async with self._speaker:
            first_s = None
            for message in self._recording.messages():
                first_s = message.time_s if first_s is None else first_s
                await self._wait_for(message.time_s - first_s)
                await self._speaker.wait_room(message.sensing_id)
                self._speaker.offer(
                    message.sensing_id, message.sensors, message.readings, len(message.readings)
                )
                self.played.messages += 1
                self.played.readings += len(message.readings)
                self._tick()
            await self._speaker.wait_arrived(ARRIVE_S_MAX)
            self._speaker.farewell()
        self._tick(is_last=True)
        return self.played

    async def _wait_for(self, recorded_s: float) -> None:
        """Wait until as much time has passed since the first reading as then."""
        if not self._speed:
            if self.played.messages % TURN == 0:
                await asyncio.sleep(0)
            return
        while (wait_s := self._begin + recorded_s / self._speed - time.monotonic()) > 0:
            self._tick()
            await asyncio.sleep(min(wait_s, REPORT_S))

    def _arrived(self, readings: int) -> None:
        self._settled += readings

    def _tick(self, is_last: bool = False) -> None:
        now = time.monotonic()
        if now < self._report_at and not is_last:
            return
        self._report_at = now + REPORT_S
        self.played.networks = len(self._speaker.networks)
        self.played.unwanted = sum(network.unwanted for network in self._speaker.networks)
        self.played.arrived = self._settled - self.played.unwanted
        self.played.share = self._recording.share
        self.played.elapsed_s = now - self._begin
        self._report(self.played)
