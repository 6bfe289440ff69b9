"""Steps of a meeting: what two hosts say before any copy, so that each knows what the other lacks.

Acknowledgements come first, so no copy is made of a message that one of them knows to be delivered. What is
known of the other host grows while the two are together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from tidings.adhoc.effects import AdhocEffect, LeavePlace, SendFrame, StorePlace
from tidings.adhoc.frames import (
    AdhocFrame,
    Announcement,
    AskFrame,
    CopyFrame,
    EstimateFrame,
    HashesFrame,
    LackingFrame,
    NewsFrame,
    ReceiptFrame,
    SummaryFrame,
    SymbolsFrame,
)
from tidings.adhoc.meeting import Meeting
from tidings.adhoc.messages import MessageId
from tidings.adhoc.ring import Acknowledgement
from tidings.adhoc.sketching import SketchSteps

if TYPE_CHECKING:
    from tidings.adhoc.host import AdhocHost

MET_MAX = 10_000
"""Hosts of which it is remembered when they were met last, and what they were sent."""


class MeetingSteps:
    """Steps of one host; without `salts`, which returns random bytes, all ids are listed."""

    def __init__(self, host: AdhocHost, rejoin_s: float, salts: Callable[[], bytes] | None) -> None:
        self._host = host
        self._rejoin_s = rejoin_s
        self._sketches = None if salts is None else SketchSteps(host, self, salts)
        self._acknowledged_to: dict[str, int] = {}

    def meet(self, peer: str, now: float) -> list[AdhocEffect]:
        """Begin a meeting; the host with the smaller name sends the first frame."""
        host = self._host
        effects = host.wake(now)
        is_first, is_new = host.name < peer, now - host.met_at.get(peer, -inf) > self._rejoin_s
        if is_new:
            host.strategy.meet(peer, now)
            host.often.add(peer, now)
            host.tallies["meetings", ""] += 1
        self._note_met(peer, now)
        meeting = host.meetings[peer] = Meeting(peer, is_first, is_new, host.strategy.context(now))
        if is_first:
            effects.append(SendFrame(peer, self._first_frame(meeting, now)))
        return effects

    def _first_frame(self, meeting: Meeting, now: float) -> AdhocFrame:
        sketched = None if self._sketches is None else self._sketches.begin(meeting, now)
        return self.summary(meeting, *self.greeting(meeting, now)) if sketched is None else sketched

    def summary(
        self,
        meeting: Meeting,
        acknowledged: tuple[Acknowledgement, ...] = (),
        announced: tuple[Announcement, ...] = (),
    ) -> SummaryFrame:
        """Return the list of what is here, for another host."""
        host = self._host
        meeting.offered = host.needless
        return SummaryFrame(acknowledged, meeting.offered, meeting.context, host.partial.begun, announced)

    def greeting(
        self, meeting: Meeting, now: float
    ) -> tuple[tuple[Acknowledgement, ...], tuple[Announcement, ...]]:
        """Return the acknowledgements and announcements with which a meeting begins."""
        host = self._host
        return self._acknowledgements(meeting, now), host.registry.announced(now)

    def be_greeted(
        self,
        meeting: Meeting,
        frame: SummaryFrame | LackingFrame | EstimateFrame | AskFrame,
        now: float,
        effects: list[AdhocEffect],
    ) -> None:
        """Take what another host begins a meeting with, before any id is compared."""
        host = self._host
        host.delivered.hear(meeting.peer, frame.acknowledged, now, effects)
        host.strategy.learn(meeting.peer, frame.context, meeting.is_new, now)
        self._hear(meeting, frame.announced, now, effects)

    def _hear(
        self, meeting: Meeting, announced: tuple[Announcement, ...], now: float, effects: list[AdhocEffect]
    ) -> None:
        """Take announcements, and hand on to the hosts that are here what is new of them."""
        if not announced:
            return
        host = self._host
        host.tallies["refused", "announcement"] += host.registry.hear(announced, now)
        effects += [LeavePlace(*left) for left in host.registry.take_left()]
        effects += [StorePlace(name) for name in host.registry.take_changed()]
        fresh = host.registry.take_fresh(now)
        if fresh:
            host.spread_news((), (), meeting.peer, effects, fresh)

    def open(self, meeting: Meeting) -> None:
        """Offer copies from now on."""
        host = self._host
        meeting.is_open = True
        meeting.offer(host.buffer)

    def _note_met(self, peer: str, now: float) -> None:
        host = self._host
        host.met_at.pop(peer, None)
        host.met_at[peer] = now
        if len(host.met_at) > MET_MAX:
            oldest = next(iter(host.met_at))
            del host.met_at[oldest]
            self._acknowledged_to.pop(oldest, None)

    def _acknowledgements(self, meeting: Meeting, now: float) -> tuple[Acknowledgement, ...]:
        """The acknowledgements that the other host was not sent before."""
        host = self._host
        if not host.strategy.acknowledges:
            return ()
        meeting.acknowledged_to = host.ring.last
        return host.ring.since(self._acknowledged_to.get(meeting.peer, 0), now)

    def part(self, peer: str, now: float) -> None:
        """End a meeting, however far it has come."""
        host = self._host
        meeting = host.meetings.pop(peer, None)
        if meeting is not None:
            self._note_met(peer, now)
            if meeting.is_confirmed:
                self._acknowledged_to[peer] = meeting.acknowledged_to

    def receive(self, peer: str, frame: AdhocFrame, now: float) -> list[AdhocEffect]:
        """Take a frame of a host that is here; one that is not is counted."""
        host = self._host
        meeting = host.meetings.get(peer)
        if meeting is None:
            host.tallies["refused", "stranger"] += 1
            return []
        effects = host.wake(now) if host.wake_at <= now else []
        meeting.is_confirmed = meeting.is_confirmed or meeting.is_open  # it has the last step from here
        match frame:
            case SummaryFrame():
                self._on_summary(meeting, frame, now, effects)
            case LackingFrame():
                self._on_lacking(meeting, frame, now, effects)
            case EstimateFrame() | AskFrame() | SymbolsFrame() | HashesFrame():
                if self._sketches is None:
                    host.tallies["refused", "step"] += 1
                else:
                    self._sketches.receive(meeting, frame, now, effects)
            case CopyFrame():
                host.copies.receive(meeting, frame, now, effects)
            case ReceiptFrame():
                host.copies.be_answered(meeting, frame, now, effects)
            case NewsFrame():
                host.delivered.hear(meeting.peer, frame.acknowledged, now, effects)
                self._hear(meeting, frame.announced, now, effects)
                if not meeting.learn(frame.ids):
                    host.tallies["refused", "ids"] += 1
        return effects

    def _on_summary(
        self, meeting: Meeting, frame: SummaryFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        """Second step: answer with what is lacking here, and open the meeting."""
        host = self._host
        if meeting.is_first or meeting.is_open:
            host.tallies["refused", "step"] += 1
            return
        self.be_greeted(meeting, frame, now, effects)
        meeting.has.update(frame.ids)
        meeting.begun.update(frame.begun)
        wants = tuple(id for id in frame.ids if self._wants(id))
        acknowledgements, announced = self.greeting(meeting, now)
        reply = LackingFrame(acknowledgements, wants, meeting.context, host.partial.begun, announced)
        effects.append(SendFrame(meeting.peer, reply))
        self.open(meeting)

    def _on_lacking(
        self, meeting: Meeting, frame: LackingFrame, now: float, effects: list[AdhocEffect]
    ) -> None:
        """Third step: offer what the other host lacks."""
        host = self._host
        if not meeting.is_first or meeting.is_open:
            host.tallies["refused", "step"] += 1
            return
        meeting.is_confirmed = True
        self.be_greeted(meeting, frame, now, effects)
        meeting.begun.update(frame.begun)
        wants = set(frame.wants)
        meeting.has.update(id for id in meeting.offered if id not in wants)
        self.open(meeting)
        if frame.acknowledged:
            effects.append(SendFrame(meeting.peer, NewsFrame((), ())))  # they have come

    def _wants(self, id: MessageId) -> bool:
        """Whether a message is new here; one that was delivered elsewhere is judged when it comes."""
        host = self._host
        return id not in host.buffer and id not in host.seen and id.system != host.name
