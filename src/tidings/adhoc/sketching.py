"""Steps of a meeting in which ids are not listed: two hosts find what differs by sketches (`sketches.py`).

| step | who | frame |
| --- | --- | --- |
| 1 | the host with the smaller name | `EstimateFrame`: acknowledgements, and by what to estimate |
| 2 | the other | `AskFrame`: acknowledgements, and how many symbols it needs |
| 3 | the first | `SymbolsFrame`, of what is here when the acknowledgements were heard |
| 4 | the other | `HashesFrame`: what it lacks; or `AskFrame` for more, and at last for the list |
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

from tidings.adhoc.effects import AdhocEffect, SendFrame
from tidings.adhoc.frames import AskFrame, EstimateFrame, HashesFrame, SymbolsFrame
from tidings.adhoc.meeting import Meeting
from tidings.adhoc.sketches import (
    SYMBOL_SIZE,
    SYMBOLS_MAX,
    Symbols,
    estimated,
    hashes_of,
    packed_hashes,
    picked,
    signs_of,
    symbols_for,
)
from tidings.errors import CodecError

if TYPE_CHECKING:
    from tidings.adhoc.host import AdhocHost
    from tidings.adhoc.meeting_steps import MeetingSteps

LISTED_MAX = 64
"""Messages whose ids are listed; of more the difference is found by sketches."""
ASKED_MAX = 3
"""How often symbols are asked for in one meeting, before the list is."""

SketchFrame = EstimateFrame | AskFrame | SymbolsFrame | HashesFrame


class SketchSteps:
    """Steps of one host; `salts` returns random bytes for each meeting."""

    def __init__(self, host: AdhocHost, steps: MeetingSteps, salts: Callable[[], bytes]) -> None:
        self._host = host
        self._steps = steps
        self._salts = salts

    def begin(self, meeting: Meeting, now: float) -> EstimateFrame | None:
        """Return the first frame of a meeting; None if there are so few ids that they are listed."""
        ids = self._host.needless
        if len(ids) <= LISTED_MAX:
            return None
        meeting.salt = self._salts()
        acknowledged, announced = self._steps.greeting(meeting, now)
        return EstimateFrame(
            acknowledged, meeting.salt, signs_of(ids, meeting.salt), meeting.context, announced
        )

    def receive(self, meeting: Meeting, frame: SketchFrame, now: float, effects: list[AdhocEffect]) -> None:
        """Take a step; one that is out of order is refused, and so are bytes that are no sketch."""
        is_mine = isinstance(frame, AskFrame | HashesFrame) is meeting.is_first
        has_begun = bool(meeting.salt) is not isinstance(frame, EstimateFrame)
        if meeting.is_open or not is_mine or not has_begun:
            self._host.tallies["refused", "step"] += 1
            return
        try:
            match frame:
                case EstimateFrame():
                    self._ask(meeting, frame, now, effects)
                case AskFrame():
                    self._answer(meeting, frame, now, effects)
                case SymbolsFrame():
                    self._compare(meeting, frame, effects)
                case HashesFrame():
                    self._finish(meeting, frame)
        except CodecError:
            self._host.tallies["refused", "sketch"] += 1

    def _ask(self, meeting: Meeting, frame: EstimateFrame, now: float, effects: list[AdhocEffect]) -> None:
        """Ask for as many symbols as the estimated difference needs."""
        host = self._host
        difference = estimated(frame.signs, signs_of(host.needless, frame.salt))
        self._steps.be_greeted(meeting, frame, now, effects)
        meeting.salt = frame.salt
        acknowledged, announced = self._steps.greeting(meeting, now)
        begun, count = host.partial.begun, symbols_for(difference)
        ask = AskFrame(acknowledged, count, meeting.context, begun, announced)
        effects.append(SendFrame(meeting.peer, ask))

    def _answer(self, meeting: Meeting, frame: AskFrame, now: float, effects: list[AdhocEffect]) -> None:
        """Send symbols of what is here, or in the end the list."""
        host = self._host
        meeting.asked += 1
        if meeting.asked == 1:
            self._steps.be_greeted(meeting, frame, now, effects)
            meeting.begun.update(frame.begun)
            meeting.offered = host.needless
            meeting.hashes = hashes_of(meeting.offered, meeting.salt)
        if frame.symbols == 0 or meeting.asked > ASKED_MAX:
            meeting.salt = b""
            effects.append(SendFrame(meeting.peer, self._steps.summary(meeting)))
            return
        symbols = Symbols(frame.symbols)
        for hash in meeting.hashes:
            symbols.add(hash)
        start, meeting.symbols = len(meeting.symbols) // SYMBOL_SIZE, symbols.packed()
        sent = SymbolsFrame(meeting.symbols[start * SYMBOL_SIZE :], host.partial.begun)
        effects.append(SendFrame(meeting.peer, sent))

    def _compare(self, meeting: Meeting, frame: SymbolsFrame, effects: list[AdhocEffect]) -> None:
        """Find what differs; ask for more if that can't be found, and at last for the list."""
        host = self._host
        meeting.is_confirmed = True  # the acknowledgements from here have come
        meeting.begun.update(frame.begun)
        meeting.symbols += frame.symbols
        meeting.asked += 1
        symbols, own = Symbols.unpacked(meeting.symbols), hashes_of(host.needless, meeting.salt)
        found = symbols.decode(own)
        if found is not None:
            theirs, ours = found
            meeting.has.update(id for hash, id in own.items() if hash not in ours)
            effects.append(SendFrame(meeting.peer, HashesFrame(packed_hashes(theirs))))
            self._steps.open(meeting)
            return
        count = min(ceil(1.3 * len(symbols.sums)) + 16, SYMBOLS_MAX)
        if meeting.asked >= ASKED_MAX:
            host.tallies["refused", "sketch"] += 1
            meeting.salt, count = b"", 0
        effects.append(SendFrame(meeting.peer, AskFrame((), count)))

    def _finish(self, meeting: Meeting, frame: HashesFrame) -> None:
        """Offer what the other host lacks."""
        wants = set(picked(meeting.hashes, frame.wants))
        meeting.has.update(id for id in meeting.offered if id not in wants)
        meeting.is_confirmed = True
        self._steps.open(meeting)
