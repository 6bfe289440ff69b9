"""Ad-hoc delivery over a trace as arrays, compiled by numba: millions of contacts a second.

It does what the cores do in `adhoc_cores.py`, in the same order, and a test compares the two delivery by
delivery. Where buffers are unlimited and the strategy is epidemic, all messages of one sender spread alike:
`flood` keeps one bit for each sender. `spread` keeps the state of each message at each host, for all
strategies.

Within a step the pairs are gone through in order, again and again until nothing moves: so a message crosses
all that is connected.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tidings.adhoc.messages import TTL_S_MAX
from tidings.adhoc.strategies.budget import COPIES_FIRST, COPIES_MAX, FREE_MIN
from tidings.adhoc.strategies.prophet import AGEING, FIRST, INHERITED, UNIT_S
from tidings.adhoc.strategies.spray import COPIES
from tidings.errors import UserError
from tidings.matching.instructions import count_zeros
from tidings.simulator.contacts import ContactTrace

Array = NDArray[Any]
KINDS: Final = {"direct": 0, "epidemic": 1, "acknowledged": 2, "spray": 3, "prophet": 4, "budget": 5}
"""The strategies that arrays know."""
_DIRECT, _EPIDEMIC, _ACKNOWLEDGED, _SPRAY, _PROPHET, _BUDGET = range(6)
NEVER: Final = -1
CELLS_MAX = 500_000_000
"""Messages times hosts."""

_AGEING, _FIRST, _INHERITED, _UNIT_S = AGEING, FIRST, INHERITED, UNIT_S
_COPIES_MAX, _FREE_MIN = COPIES_MAX, FREE_MIN


@njit(nogil=True, cache=True)
def _flood(steps: Array, pairs: Array, hosts: int, arrived: Array) -> None:
    """Note in `arrived` the step in which each host has the message of each other."""
    words = (hosts + 63) // 64
    has = np.zeros((hosts, words), np.uint64)
    for host in range(hosts):
        has[host, host // 64] |= np.uint64(1) << np.uint64(host % 64)
    begin = 0
    while begin < len(steps):
        end = begin
        while end < len(steps) and steps[end] == steps[begin]:
            end += 1
        is_moving = True
        while is_moving:
            is_moving = False
            for at in range(begin, end):
                one, other = pairs[at, 0], pairs[at, 1]
                for word in range(words):
                    difference = has[one, word] ^ has[other, word]
                    if difference:
                        is_moving = True
                        _note(arrived, one, word, difference & has[other, word], steps[at])
                        _note(arrived, other, word, difference & has[one, word], steps[at])
                        has[one, word] |= difference
                        has[other, word] |= difference
        begin = end


@njit(nogil=True, cache=True)
def _note(arrived: Array, host: int, word: int, bits: np.uint64, step: int) -> None:
    while bits:
        arrived[host, word * 64 + count_zeros(bits)] = step
        bits &= bits - np.uint64(1)


def flood(trace: ContactTrace) -> NDArray[np.int64]:
    """The step in which each host (row) has the message of each other (column), NEVER for none.

    Every host sends one message to all before the first step; buffers are unlimited.
    """
    hosts = len(trace.names)
    arrived = np.full((hosts, hosts), NEVER, np.int64)
    _flood(trace.steps, trace.pairs, hosts, arrived)
    return arrived


@njit(nogil=True, cache=True)
def _meet(
    now: float, one: int, other: int, rejoin_s: float, met_at: Array, expected: Array, aged_at: Array,
    theirs_one: Array, theirs_other: Array,
) -> None:  # fmt: skip
    """PRoPHET: expect to meet again, and inherit; `theirs_…` is what each has got from the other."""
    is_new = now - met_at[one, other] > rejoin_s
    for host, peer in ((one, other), (other, one)):
        units = (now - aged_at[host]) / _UNIT_S
        if units > 0:
            factor = _AGEING**units
            for far in range(len(aged_at)):
                expected[host, far] *= factor
            aged_at[host] = now
        if is_new:
            before = expected[host, peer]
            expected[host, peer] = before + (1.0 - before) * _FIRST
    theirs_other[:] = expected[one]
    theirs_one[:] = expected[other]
    if is_new:
        _inherit(expected, other, one, theirs_other)
        _inherit(expected, one, other, theirs_one)


@njit(nogil=True, cache=True)
def _inherit(expected: Array, host: int, peer: int, theirs: Array) -> None:
    own = expected[host, peer]
    for far in range(len(theirs)):
        if far != host and theirs[far] > 0:
            before = expected[host, far]
            expected[host, far] = before + (1.0 - before) * own * min(theirs[far], 1.0) * _INHERITED


@njit(nogil=True, cache=True)
def _share(kind: int, copies: int, is_likelier: bool) -> int:
    """How many copies a carrier gets."""
    if kind in (_EPIDEMIC, _ACKNOWLEDGED):
        return 1
    if kind in (_SPRAY, _BUDGET):
        return copies // 2
    return 1 if kind == _PROPHET and is_likelier else 0


@njit(nogil=True, cache=True)
def _give(
    kind: int, giver: int, taker: int, step: int, room: int, left_s: float, free: int, senders: Array,
    recipients: Array, wanted: Array, copies: Array, counted_s: Array, arrivals: Array, counts: Array,
    heard: Array, theirs: Array, expected: Array, delivered: Array, moved: Array,
) -> None:  # fmt: skip
    """Give one host what it lacks of another's, those for it first, then in the order of their arrival.

    `free` is for how many messages the taker had room when the two met.
    """
    messages = len(senders)
    order = np.empty(messages, np.int64)
    ranks = np.empty(messages, np.int64)
    found = 0
    for message in range(messages):
        if wanted[message] and copies[giver, message] > 0:
            is_for_others = recipients[message] != taker
            order[found] = message
            ranks[found] = arrivals[giver, message] + (np.int64(1) << 60 if is_for_others else np.int64(0))
            found += 1
    if room > 0:  # otherwise nothing depends on the order
        _sort(order, ranks, found)
    for message in order[:found]:
        if copies[giver, message] < 1:
            continue
        if recipients[message] == taker:
            if delivered[message] == NEVER:
                delivered[message] = step
                moved[1] += 1
            moved[0] += 1
            if kind in (_ACKNOWLEDGED, _DIRECT, _BUDGET):
                heard[taker, message] = heard[giver, message] = True
                copies[giver, message] = 0
                counts[giver] -= 1
            continue
        far = recipients[message]
        if kind == _BUDGET:
            _renew(giver, message, left_s, room, copies, counted_s, counts)
        share = _share(kind, copies[giver, message], theirs[far] > expected[giver, far])
        if share < 1 or (kind == _BUDGET and room >= 0 and free < 1):
            continue
        free -= 1
        moved[0] += 1
        if room == 0:
            continue
        if counts[taker] >= room > 0:
            _displace(taker, copies, arrivals, counts)
        moved[1] += 1
        copies[taker, message] = share
        counted_s[taker, message] = left_s
        counts[taker] += 1
        moved[2] += 1
        arrivals[taker, message] = moved[2]
        if kind in (_SPRAY, _BUDGET):
            copies[giver, message] -= share


@njit(nogil=True, cache=True)
def _renew(
    host: int, message: int, left_s: float, room: int, copies: Array, counted_s: Array, counts: Array
) -> None:
    """Budget: double the copies when half of the life is gone that was left, if there is room."""
    is_free = room < 0 or 1.0 - counts[host] / room >= _FREE_MIN
    if left_s <= counted_s[host, message] / 2 and is_free:
        counted_s[host, message] = left_s
        copies[host, message] = min(2 * copies[host, message], _COPIES_MAX)


@njit(nogil=True, cache=True)
def _sort(order: Array, ranks: Array, count: int) -> None:
    """Sort messages by their ranks; there are as many as a buffer holds."""
    for at in range(1, count):
        message, rank = order[at], ranks[at]
        while at > 0 and ranks[at - 1] > rank:
            order[at], ranks[at] = order[at - 1], ranks[at - 1]
            at -= 1
        order[at], ranks[at] = message, rank


@njit(nogil=True, cache=True)
def _displace(host: int, copies: Array, arrivals: Array, counts: Array) -> None:
    """The oldest goes."""
    oldest = -1
    for message in range(copies.shape[1]):
        if copies[host, message] > 0 and (oldest < 0 or arrivals[host, message] < arrivals[host, oldest]):
            oldest = message
    copies[host, oldest] = 0
    counts[host] -= 1


@njit(nogil=True, cache=True)
def _hear(one: int, other: int, recipients: Array, copies: Array, counts: Array, heard: Array) -> None:
    """Exchange acknowledgements, and drop what was delivered."""
    for message in range(len(recipients)):
        if heard[one, message] or heard[other, message]:
            for host in (one, other):
                heard[host, message] = True
                if copies[host, message] > 0:
                    copies[host, message] = 0
                    counts[host] -= 1


@njit(nogil=True, cache=True)
def _spread(
    kind: int, steps: Array, pairs: Array, hosts: int, step_s: float, room: int, first_copies: int,
    ttl_s: float, senders: Array, recipients: Array, delivered: Array, moved: Array,
) -> None:  # fmt: skip
    messages = len(senders)
    copies = np.zeros((hosts, messages), np.int32)
    arrivals = np.zeros((hosts, messages), np.int64)
    counted_s = np.full((hosts, messages), ttl_s)
    counts = np.zeros(hosts, np.int64)
    heard = np.zeros((hosts, messages), np.bool_)
    met_at = np.full((hosts, hosts), -np.inf)
    expected = np.zeros((hosts, hosts))
    aged_at = np.zeros(hosts)
    theirs_one, theirs_other = np.zeros(hosts), np.zeros(hosts)
    for message in range(messages):
        sender = senders[message]
        if room != 0:
            if counts[sender] >= room > 0:
                _displace(sender, copies, arrivals, counts)
            moved[2] += 1
            copies[sender, message] = first_copies
            arrivals[sender, message] = moved[2]
            counts[sender] += 1
    wanted = np.empty(messages, np.bool_)
    wanted_back = np.empty(messages, np.bool_)
    begin = 0
    while begin < len(steps):
        end = begin
        while end < len(steps) and steps[end] == steps[begin]:
            end += 1
        now = steps[begin] * step_s
        left_s = ttl_s - (now - steps[0] * step_s)
        for _ in range(hosts):
            before = moved[1]
            for at in range(begin, end):
                one, other = pairs[at, 0], pairs[at, 1]
                if kind == _PROPHET:
                    _meet(now, one, other, 1.5 * step_s, met_at, expected, aged_at, theirs_one, theirs_other)
                    met_at[one, other] = now
                free_one, free_other = room - counts[one], room - counts[other]
                if kind in (_ACKNOWLEDGED, _DIRECT, _BUDGET):
                    _hear(one, other, recipients, copies, counts, heard)
                for message in range(messages):
                    is_here, is_there = copies[one, message] > 0, copies[other, message] > 0
                    sender, had_by = senders[message], NEVER
                    if delivered[message] != NEVER:
                        had_by = recipients[message]
                    wanted[message] = is_here and not is_there and other != sender and other != had_by
                    wanted_back[message] = is_there and not is_here and one != sender and one != had_by
                _give(kind, other, one, steps[at], room, left_s, free_one, senders, recipients,
                      wanted_back, copies, counted_s, arrivals, counts, heard, theirs_other, expected,
                      delivered, moved)  # fmt: skip
                _give(kind, one, other, steps[at], room, left_s, free_other, senders, recipients,
                      wanted, copies, counted_s, arrivals, counts, heard, theirs_one, expected,
                      delivered, moved)  # fmt: skip
            if moved[1] == before:
                break
        begin = end


def spread(
    trace: ContactTrace,
    strategy: str,
    senders: NDArray[np.int32],
    recipients: NDArray[np.int32],
    room: int | None = None,
    copies: int = COPIES,
) -> tuple[NDArray[np.int64], int]:
    """The step in which each message is delivered, NEVER for none, and how many copies were sent.

    All messages are sent before the first step; `room` is how many a buffer holds, None for all.
    """
    if strategy not in KINDS:
        raise UserError(f"strategy {strategy!r} is not known to arrays; use one of {', '.join(KINDS)}")
    hosts = len(trace.names)
    if hosts * len(senders) > CELLS_MAX:
        raise UserError(f"{len(senders)} messages at {hosts} hosts: at most {CELLS_MAX} in all")
    delivered = np.full(len(senders), NEVER, np.int64)
    moved = np.zeros(3, np.int64)  # copies sent, copies that have changed something, arrivals
    first = {"spray": copies, "budget": COPIES_FIRST}.get(strategy, 1)
    _spread(
        KINDS[strategy], trace.steps, trace.pairs, hosts, trace.step_s, -1 if room is None else room, first,
        TTL_S_MAX, senders, recipients, delivered, moved,
    )  # fmt: skip
    return delivered, int(moved[0])
