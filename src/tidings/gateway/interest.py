"""Interest: from demanded filters to the request for each sensor.

Most wants are *plain*: the same for all sensors of a type. They stand in one covering tree of ranges per
type, and sensors of equal range share the result, so a new want has a cost only where it requests more than
was requested before. Wants that distinguish networks, names or places are *special*: they are noted at the
sensors they concern, which are found by id or by a grid of areas.

The rule kept: a change touches only the sensors that it may concern, and the result is the same as if all
had been computed anew. A change may concern very many, so it is made in steps, one change after the other;
sensors may come and go between two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.errors import UserError
from tidings.filters import Filter
from tidings.gateway.areas import AreaBox, Areas
from tidings.gateway.demand import Want, wants_of
from tidings.gateway.networks import Instrument
from tidings.gateway.ranges import WHOLE, Ranges, RangeSpan
from tidings.steps import Steps, finish

STEP = 100
"""Sensors, or ranges of sensors, that are processed in one step."""

Touched = dict[Instrument, None]
"""Sensors whose request may have changed."""


class TypeInterest:
    """All sensors of one type, and the wants for the type."""

    def __init__(self, type: str) -> None:
        self.type = type
        self.wants: dict[Want, None] = {}
        self._ranges: Ranges[tuple[Want, int]] = Ranges()
        self._plain: dict[Want, None] = {}
        self._special: dict[Want, dict[Instrument, None]] = {}  # with the sensors at which each is noted
        self._by_span: dict[RangeSpan | None, dict[Instrument, None]] = {}
        self._clips: dict[RangeSpan | None, RangeSpan | None] = {}  # wanted part of each range
        self._by_id: dict[str, dict[Instrument, None]] = {}
        self._areas: Areas[str] = Areas()  # networks that have sensors here

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, instrument: Instrument) -> bool:
        return instrument in self._by_id.get(instrument.sensing_id, ())

    def wanted(self, instrument: Instrument) -> RangeSpan | None:
        """Return the smallest range over all that is wanted of a sensor, None if nothing is."""
        wanted = self._clips[instrument.span]
        for span in instrument.special.values():
            wanted = span.hull(wanted)
        return wanted

    # Sensors

    def add(self, instrument: Instrument) -> None:
        """Add a sensor."""
        self._by_span.setdefault(instrument.span, {})[instrument] = None
        if instrument.span not in self._clips:
            self._clips[instrument.span] = self._clip(instrument.span)
        if instrument.sensing_id not in self._by_id:
            self._by_id[instrument.sensing_id] = {}
            self._areas.add(instrument.sensing_id, instrument.box)
        self._by_id[instrument.sensing_id][instrument] = None
        for want in self._special:
            self._note(want, instrument)

    def move(self, sensing_id: str, box: AreaBox | None) -> None:
        """Move a network that has sensors here to its new place."""
        self._areas.remove(sensing_id)
        self._areas.add(sensing_id, box)

    def note_again(self, instrument: Instrument) -> None:
        """Note the special wants at a sensor that has moved."""
        self._forget_special(instrument)
        for want in self._special:
            self._note(want, instrument)

    def remove(self, instrument: Instrument) -> None:
        """Remove a sensor."""
        alike = self._by_span[instrument.span]
        del alike[instrument]
        if not alike:
            del self._by_span[instrument.span], self._clips[instrument.span]
        together = self._by_id[instrument.sensing_id]
        del together[instrument]
        if not together:
            del self._by_id[instrument.sensing_id]
            self._areas.remove(instrument.sensing_id)
        self._forget_special(instrument)

    def _forget_special(self, instrument: Instrument) -> None:
        for want in instrument.special:
            del self._special[want][instrument]
        instrument.special = {}

    # Wants

    def want(self, want: Want, touched: Touched) -> Steps[None]:
        """Add a want; the sensors whose request it may have changed are added to `touched`."""
        self.wants[want] = None
        if want.is_plain:
            self._plain[want] = None
            grown = [self._ranges.add((want, n), span) for n, span in enumerate(want.spans)]
            yield from self._clip_again(any(grown), touched)
            return
        self._special[want] = {}
        for number, instrument in enumerate(self._concerned(want), 1):
            if self._note(want, instrument):
                touched[instrument] = None
            if number % STEP == 0:
                yield

    def unwant(self, want: Want, touched: Touched) -> Steps[None]:
        """Remove a want; the sensors whose request that may have changed are added to `touched`."""
        del self.wants[want]
        if want in self._plain:
            del self._plain[want]
            shrunk = [self._ranges.remove((want, n)) for n in range(len(want.spans))]
            yield from self._clip_again(any(shrunk), touched)
            return
        noted = self._special[want]
        while noted:
            instrument, _ = noted.popitem()
            del instrument.special[want]
            touched[instrument] = None
            if len(noted) % STEP == 0:
                yield
        del self._special[want]

    def _clip_again(self, has_changed: bool, touched: Touched) -> Steps[None]:
        """Compute the wanted part of each range, and find the sensors for which that has changed."""
        spans = list(self._by_span) if has_changed else [None] if None in self._by_span else []
        for number, span in enumerate(spans, 1):
            clip = self._clip(span)
            if span in self._clips and clip != self._clips[span]:
                self._clips[span] = clip
                touched.update(self._by_span[span])
            if number % STEP == 0:
                yield

    def _clip(self, span: RangeSpan | None) -> RangeSpan | None:
        if span is None:
            return WHOLE if self._plain else None
        return self._ranges.clip(span)

    def _note(self, want: Want, instrument: Instrument) -> bool:
        """Note a special want at a sensor, if it wants anything of it."""
        if not want.admits_sensor(instrument.sensing_id, instrument.name, self.type, instrument.box):
            return False
        span = want.clip(instrument.span)
        if span is None:
            return False
        instrument.special[want] = span
        self._special[want][instrument] = None
        return True

    def _concerned(self, want: Want) -> Iterator[Instrument]:
        """Yield the sensors a special want may concern; maybe others too. Some may go meanwhile."""
        ids: Iterable[str] | None = want.ids.strings.points()
        if ids is None:
            ids = self._by_id if want.x.is_all and want.y.is_all else self._areas.near(want.box)
        for sensing_id in list(ids):
            for one in list(self._by_id.get(sensing_id, ())):
                if one in self:
                    yield one


class SensorInterest:
    """Demand on all sensors."""

    def __init__(self) -> None:
        self._filters: dict[str, list[Want]] = {}
        self._exact: dict[str, dict[Want, None]] = {}  # wants of known types, by type
        self._wide: dict[Want, None] = {}  # wants of types that are given in another way
        self._groups: dict[str, TypeInterest] = {}
        self._touched: dict[Instrument, None] = {}

    def __contains__(self, instrument: Instrument) -> bool:
        return instrument.type in self._groups and instrument in self._groups[instrument.type]

    def want(self, text: str) -> Steps[None]:
        """Add a demanded filter."""
        wants = self._filters[text] = wants_of(read(text), text)
        for want in wants:
            types = _types(want)
            if types is None:
                self._wide[want] = None
            for type in types or ():
                self._exact.setdefault(type, {})[want] = None
            for group in self._reached(want, types):
                yield from group.want(want, self._touched)

    def unwant(self, text: str) -> Steps[None]:
        """Remove a demanded filter."""
        for want in self._filters.pop(text):
            types = _types(want)
            if types is None:
                del self._wide[want]
            for type in types or ():
                del self._exact[type][want]
                if not self._exact[type]:
                    del self._exact[type]
            for group in self._reached(want, types):
                yield from group.unwant(want, self._touched)

    def add(self, instrument: Instrument) -> None:
        """Add a sensor that can get requests."""
        group = self._groups.get(instrument.type)
        if group is None:
            group = self._groups[instrument.type] = TypeInterest(instrument.type)
            for want in [*self._exact.get(instrument.type, ()), *self._wide]:
                if want.admits_type(instrument.type):
                    finish(group.want(want, {}))
        group.add(instrument)
        self._touched[instrument] = None

    def remove(self, instrument: Instrument) -> None:
        """Remove a sensor that can get requests no more."""
        self._touched.pop(instrument, None)
        group = self._groups[instrument.type]
        group.remove(instrument)
        if not group:
            del self._groups[instrument.type]

    def move(self, instruments: Iterable[Instrument], box: AreaBox | None) -> Steps[None]:
        """Move the sensors of one network."""
        instruments = list(instruments)
        for type, sensing_id in {(one.type, one.sensing_id) for one in instruments}:
            self._groups[type].move(sensing_id, box)
        for number, one in enumerate(instruments, 1):
            one.box = box
            if one in self:
                self._groups[one.type].note_again(one)
                self._touched[one] = None
            if number % STEP == 0:
                yield

    def touch(self, instruments: Iterable[Instrument]) -> None:
        """Include these in the next changes if they are wanted: their last request is forgotten."""
        self._touched.update(dict.fromkeys(instruments))

    @property
    def is_touched(self) -> bool:
        """Whether there may be changes."""
        return bool(self._touched)

    def changes(self, count: int) -> list[tuple[Instrument, RangeSpan | None]]:
        """Return the sensors whose request must change, each with what is wanted now.

        Of those that may have changed, so many are checked.
        """
        if len(self._touched) <= count:
            touched = list(self._touched)
            self._touched.clear()
        else:  # from the end, since a dict that loses its first ones is slow to find the next
            touched = [self._touched.popitem()[0] for _ in range(count)]
        wanted = ((one, self.wanted(one)) for one in touched)
        return [(one, span) for one, span in wanted if _has_changed(one, span)]

    def wanted(self, instrument: Instrument) -> RangeSpan | None:
        """Return the demand on a sensor; None if it may be silent."""
        return self._groups[instrument.type].wanted(instrument)

    def why(self, instrument: Instrument) -> list[str]:
        """Return the filters that want something of a sensor, each once."""
        one = instrument
        return list(
            dict.fromkeys(
                want.text
                for want in self._groups[one.type].wants
                if want.admits_sensor(one.sensing_id, one.name, one.type, one.box) and want.clip(one.span)
            )
        )

    def _reached(self, want: Want, types: list[str] | None) -> list[TypeInterest]:
        """Return the groups whose type a want admits."""
        if types is None:
            groups = list(self._groups.values())
        else:
            groups = [self._groups[type] for type in types if type in self._groups]
        return [group for group in groups if want.admits_type(group.type)]


def read(text: str) -> Filter:
    """Parse a filter; one that can't be parsed here, for lack of an extra, may want anything."""
    try:
        return Filter(text)
    except UserError:
        return Filter()


def _types(want: Want) -> list[str] | None:
    """Return the types that a want names, or None if it gives them in another way."""
    return want.types.strings.points()


def _has_changed(instrument: Instrument, span: RangeSpan | None) -> bool:
    """Whether a sensor must get this demand; also that there is none, if it may go on sending."""
    is_doubtful = span is None and instrument.is_doubtful
    return is_doubtful or _ends(span) != _ends(instrument.asked)


def _ends(span: RangeSpan | None) -> tuple[float | None, float | None] | None:
    return None if span is None else span.ends
