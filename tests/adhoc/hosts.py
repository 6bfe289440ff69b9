"""Hosts of the tests, and a meeting of two of them: two cores and a queue of frames are the network."""

from collections import deque

from tidings.adhoc.buffer import ReplicaBuffer
from tidings.adhoc.effects import DeliverMessage, ReportOutcome, SendFrame
from tidings.adhoc.frames import CopyFrame, SummaryFrame, decode_frame, encode_frame
from tidings.adhoc.host import AdhocHost
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.strategies import STRATEGIES
from tidings.ids import StoredIds


class Told(list):
    """Frames of a meeting in their order, as (from, frame)."""

    def copies(self):
        return [frame.message.raw.decode() for _, frame in self if isinstance(frame, CopyFrame)]


def host(name, strategy="acknowledged", messages_max=None, bytes_max=None, **more):
    kind = STRATEGIES[strategy]
    one = AdhocHost(StoredIds(name, 1), kind(name), ReplicaBuffer(messages_max, bytes_max), **more)
    one.got, one.notices = [], []
    return one


def note(one, effects):
    for effect in effects:
        if isinstance(effect, DeliverMessage):
            one.got.append(effect.message.raw.decode())
        elif isinstance(effect, ReportOutcome):
            one.notices.append((effect.id.counter, effect.recipient, effect.outcome))
    return [effect for effect in effects if isinstance(effect, SendFrame)]


def send(one, text, *recipients, now=0.0, report_s=None, **options):
    message = one.compose(recipients, text.encode(), **options)
    note(one, one.send(message, now, report_s))
    return message


def seed(one, *texts, **options):
    """Have a host carry messages of a host that is never met, each with its text as content."""
    for text in texts:
        message = CarriedMessage(
            MessageId("far", 1, ord(text)), ("nobody",), size=1, raw=text.encode(), **options
        )
        one.meet("far", 0.0)
        one.receive("far", SummaryFrame((), ()), 0.0)
        one.receive("far", CopyFrame(message, message.ttl_s, ("nobody",), 1, 1), 0.0)
        one.part("far", 0.0)


def meet(one, other, now=0.0, stop=None, alter=None):
    """Let two hosts meet until nothing is left to say; `stop` says whether the link is cut before a frame."""
    told, by_name = Told(), {one.name: one, other.name: other}
    frames = deque()
    for a, b in ((one, other), (other, one)):
        frames += [(a.name, send.frame) for send in note(a, a.meet(b.name, now))]
    while True:
        while frames:
            sender, frame = frames.popleft()
            if stop is not None and stop(frame):
                frames.clear()
                break
            told.append((sender, frame))
            receiver = other if sender == one.name else one
            wire = decode_frame(encode_frame(frame if alter is None else alter(frame)))
            sends = note(receiver, receiver.receive(sender, wire, now))
            frames += [(receiver.name, send.frame) for send in sends if send.peer in by_name]
        else:
            second, first = max(one, other, key=_name), min(one, other, key=_name)
            copy = second.next_copy(first.name, now)
            sender = second
            if copy is None:
                copy, sender = first.next_copy(second.name, now), first
            if copy is not None:
                frames.append((sender.name, copy))
                continue
        break
    one.part(other.name, now)
    other.part(one.name, now)
    return told


def _name(one):
    return one.name


def held(one):
    return [replica.message.raw.decode() for replica in one.buffer]
