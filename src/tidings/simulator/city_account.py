"""Account of a simulated city: readings made, wanted, sent and delivered, compared with those of an oracle.

Wishes are plain conditions, evaluated in plain Python: neither filters nor matching nor the gateway take part
in the judgement. The *oracle* is a gateway that learns of every change at once, and is bound by the protocol
to one range per sensor. Readings sent beyond the oracle's are *late*.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import reduce
from math import inf
from operator import or_

from msgspec import Struct
from msgspec.structs import replace

from tidings.event import Event
from tidings.filters import Filter

SETTLE_S = 1.5
"""Longest time for a change to be known everywhere, if no connection is broken."""

Box = tuple[float, float, float, float]
"""Least x and y, and greatest x and y."""


class CityWish(Struct, eq=False):
    """Condition on readings that a citizen has for a while, and the readings due to it."""

    types: frozenset[str]
    low: float = -inf
    high: float = inf
    box: Box | None = None
    sensing_id: str | None = None
    asked_at: float = inf
    open_at: float = inf
    due: dict[int, float] = {}
    """Readings that must arrive, with the time when they were made."""
    got: set[int] = set()

    @property
    def filter(self) -> Filter:
        """Filter of the subscription for this wish."""
        whole = reduce(or_, (Filter("type = :type", type=type) for type in sorted(self.types)))
        if self.low > -inf:
            whole &= Filter("value >= :low", low=self.low)
        if self.high < inf:
            whole &= Filter("value <= :high", high=self.high)
        if self.box is not None:
            x_low, y_low, x_high, y_high = self.box
            whole &= Filter("posx BETWEEN :low AND :high", low=x_low, high=x_high)
            whole &= Filter("posy BETWEEN :low AND :high", low=y_low, high=y_high)
        if self.sensing_id is not None:
            whole &= Filter('"sensing-id" = :one', one=self.sensing_id)
        return whole

    def matches(self, made: MadeReading) -> bool:
        """Whether the reading is wanted."""
        x_low, y_low, x_high, y_high = self.box or (-inf, -inf, inf, inf)
        return (
            made.type in self.types
            and self.low <= made.value <= self.high
            and x_low <= made.x <= x_high
            and y_low <= made.y <= y_high
            and self.sensing_id in (None, made.sensing_id)
        )

    def asks(self, sensor: OfferedSensor) -> tuple[float, float] | None:
        """Return the range to request from a sensor, None if it has nothing to offer here."""
        x_low, y_low, x_high, y_high = self.box or (-inf, -inf, inf, inf)
        area = sensor.area
        is_near = x_low <= area[2] and area[0] <= x_high and y_low <= area[3] and area[1] <= y_high
        if sensor.type not in self.types or not is_near or self.sensing_id not in (None, sensor.sensing_id):
            return None
        if sensor.span is None:
            return -inf, inf
        low, high = max(self.low, sensor.span[0]), min(self.high, sensor.span[1])
        return (low, high) if low <= high else None


class OfferedSensor(Struct, frozen=True):
    """Sensor as its network registers it."""

    sensing_id: str
    type: str
    span: tuple[float, float] | None
    area: Box


class MadeReading(Struct, frozen=True):
    """Reading that was made, whether or not it was sent."""

    at: float
    sensing_id: str
    name: str
    type: str
    value: float
    x: float
    y: float
    is_wanted: bool = False
    is_for_oracle: bool = False

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of its event, except the number."""
        place = {"posx": self.x, "posy": self.y}
        return {"sensing-id": self.sensing_id, "name": self.name, "value": self.value, **place}


class Troubles:
    """Times in which each network was, or may have been, out of reach."""

    def __init__(self) -> None:
        self._spans: dict[str, list[tuple[float, float]]] = {}

    def begin(self, sensing_id: str, now: float) -> None:
        """Note that a network has no connection; bytes in transit are lost too."""
        self._spans.setdefault(sensing_id, []).append((now - SETTLE_S, inf))

    def pass_by(self, sensing_id: str, now: float) -> None:
        """Note that a network has moved, which the gateway learns a little later."""
        self._spans.setdefault(sensing_id, []).append((now, now + SETTLE_S))

    def end(self, sensing_id: str, now: float) -> None:
        """Note that a network is connected again."""
        spans = self._spans.get(sensing_id, [])
        self._spans[sensing_id] = [(begin, min(end, now + SETTLE_S)) for begin, end in spans]

    def met(self, sensing_id: str, at: float) -> bool:
        """Whether a reading made at that time may have been lost, or made before the request for it came."""
        return any(begin <= at < end for begin, end in self._spans.get(sensing_id, ()))


class CityAccount:
    """Account of all readings made, sent and delivered, judged as they come."""

    def __init__(self) -> None:
        self.made: dict[int, MadeReading] = {}
        self.sent: set[int] = set()
        self.wishes: list[CityWish] = []
        self.troubles = Troubles()
        self._active: dict[CityWish, None] = {}

    # Wishes

    def asked(self, wish: CityWish, now: float) -> None:
        """Note that a citizen begins a wish."""
        wish.asked_at = now
        self.wishes.append(wish)
        self._active[wish] = None

    def closed(self, wish: CityWish, now: float) -> None:
        """Note that a wish has ended; a reading made only just before need not arrive."""
        del self._active[wish]
        for number, at in list(wish.due.items()):
            made = self.made[number]
            if at > now - SETTLE_S or self.troubles.met(made.sensing_id, at):
                del wish.due[number]

    # Readings

    def measured(self, made: MadeReading, sensor: OfferedSensor) -> int:
        """Note a reading, and return its number."""
        wanting = [wish for wish in self._active if wish.matches(made)]
        asked = [span for wish in self._active if (span := wish.asks(sensor)) is not None]
        is_asked = any(low <= made.value for low, _ in asked) and any(made.value <= high for _, high in asked)
        number = len(self.made) + 1
        self.made[number] = replace(made, is_wanted=bool(wanting), is_for_oracle=is_asked)
        for wish in wanting:
            if wish.open_at <= made.at - SETTLE_S:
                wish.due[number] = made.at
        return number

    def delivered(self, wish: CityWish, event: Event) -> None:
        """Check that an event is a wanted reading, unchanged, and delivered for the first time; note it."""
        number = event["n"]
        assert isinstance(number, int)
        made = self.made[number]
        assert event.type == made.type, f"reading {number} is of type {made.type}, not {event.type}"
        arrived = {name: value for name, value in event.attributes.items() if name != "n"}
        assert arrived == made.attributes, f"reading {number} was {made.attributes}, and arrived as {arrived}"
        assert wish.matches(made), f"reading {number} was not wanted by {wish.filter}"
        assert number not in wish.got, f"reading {number} came twice"
        wish.got.add(number)

    # The end

    def missing(self, lossless: AbstractSet[str], now: float) -> Iterator[tuple[int, MadeReading, str]]:
        """Yield readings that should have arrived and have not; `lossless` networks may lose none."""
        for wish in self.wishes:
            for number in sorted(wish.due.keys() - wish.got):
                made = self.made[number]
                is_safe = made.sensing_id in lossless and number in self.sent
                is_under_way = made.at > now - SETTLE_S
                if not is_under_way and (is_safe or not self.troubles.met(made.sensing_id, made.at)):
                    yield number, made, str(wish.filter)
