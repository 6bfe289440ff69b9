"""Hosts that move: where each of them is at every moment, and which of them are within range of each other.

Two models. At *random way-points* a host goes straight to a place by chance, pauses, and goes on. In a
*street grid* it goes along streets from one crossing to another, by a shortest way. All chance is drawn from
one seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
from msgspec import Struct
from numba import njit
from numpy.typing import NDArray

from tidings.errors import UserError
from tidings.simulator.contacts import Contact

TICK_S = 1.0
"""Positions are known once a second."""
CELLS_MAX = 200_000_000
"""Hosts times seconds."""

Track = NDArray[np.float32]
"""Positions in metres, by second, host and axis."""
_Way = Iterator[tuple[float, float]]


class Movers(Struct, frozen=True):
    """A group of hosts that move alike."""

    hosts: int
    speed_m_s: tuple[float, float] = (0.5, 1.5)
    pause_s: tuple[float, float] = (0.0, 120.0)


class Terrain(Struct, frozen=True):
    """The area; with a `block` hosts keep to streets that are so many metres apart."""

    width_m: float
    height_m: float
    block_m: float | None = None


def tracks(terrain: Terrain, groups: Sequence[Movers], duration_s: float, seed: int) -> Track:
    """Where every host is in every second."""
    random, seconds = Random(seed), int(duration_s / TICK_S) + 1
    hosts = sum(group.hosts for group in groups)
    if hosts * seconds > CELLS_MAX:
        raise UserError(f"{hosts} hosts for {seconds} s: at most {CELLS_MAX} positions can be simulated")
    track = np.empty((seconds, hosts, 2), np.float32)
    host = 0
    for group in groups:
        for _ in range(group.hosts):
            track[:, host] = _track(terrain, group, seconds, Random(random.getrandbits(64)))
            host += 1
    return track


def _track(terrain: Terrain, group: Movers, seconds: int, random: Random) -> NDArray[np.float64]:
    """The positions of one host: straight legs at even speed, and pauses at the end of each way."""
    here = _somewhere(terrain, random)
    times, places, now = [0.0], [here], 0.0
    while now < seconds * TICK_S:
        goal = _somewhere(terrain, random)
        speed = random.uniform(*group.speed_m_s)
        for corner in _corners(terrain, here, goal, random):
            now += (abs(corner[0] - here[0]) ** 2 + abs(corner[1] - here[1]) ** 2) ** 0.5 / speed
            here = corner
            times.append(now)
            places.append(here)
        now += random.uniform(*group.pause_s) + 1e-6
        times.append(now)
        places.append(here)
    moments = np.arange(seconds) * TICK_S
    axes = np.array(places)
    return np.stack([np.interp(moments, times, axes[:, axis]) for axis in (0, 1)], axis=1)


def _somewhere(terrain: Terrain, random: Random) -> tuple[float, float]:
    """A place by chance; in a grid of streets a crossing."""
    if terrain.block_m is None:
        return random.uniform(0, terrain.width_m), random.uniform(0, terrain.height_m)
    across, along = (int(side / terrain.block_m) for side in (terrain.width_m, terrain.height_m))
    return random.randint(0, across) * terrain.block_m, random.randint(0, along) * terrain.block_m


def _corners(terrain: Terrain, here: tuple[float, float], goal: tuple[float, float], random: Random) -> _Way:
    """The ends of the legs to a goal: by streets it is a shortest way, whose turns are by chance."""
    x, y = here
    block = terrain.block_m
    while block is not None and abs(goal[0] - x) > 1e-6 and abs(goal[1] - y) > 1e-6:
        across, along = abs(goal[0] - x), abs(goal[1] - y)
        if random.random() < across / (across + along):
            x += block if goal[0] > x else -block
        else:
            y += block if goal[1] > y else -block
        yield x, y
    yield goal


@njit(nogil=True, cache=True)
def _meetings(track: Track, range_m: float, found: NDArray[np.int32]) -> int:
    """Note (one, other, first second, last second) of each time that two hosts are within range; how many."""
    seconds, hosts, _ = track.shape
    since = np.full((hosts, hosts), -1, np.int32)
    square, count = range_m * range_m, 0
    for second in range(seconds + 1):
        for one in range(hosts):
            for other in range(one + 1, hosts):
                is_near = False
                if second < seconds:
                    dx = track[second, one, 0] - track[second, other, 0]
                    if -range_m <= dx <= range_m:
                        dy = track[second, one, 1] - track[second, other, 1]
                        is_near = dx * dx + dy * dy <= square
                if is_near:
                    if since[one, other] < 0:
                        since[one, other] = second
                elif since[one, other] >= 0:
                    if count < len(found):
                        found[count, 0], found[count, 1] = one, other
                        found[count, 2], found[count, 3] = since[one, other], second
                    count += 1
                    since[one, other] = -1
    return count


def meetings(track: Track, range_m: float) -> NDArray[np.int32]:
    """Rows (one, other, start, end) in seconds of all hosts that come within range, by their start."""
    found = np.empty((1 << 16, 4), np.int32)
    count = _meetings(track, range_m, found)
    if count > len(found):
        found = np.empty((count, 4), np.int32)
        _meetings(track, range_m, found)
    found = found[:count]
    return found[np.lexsort((found[:, 1], found[:, 0], found[:, 2]))]


def contacts_of(rows: NDArray[np.int32]) -> list[Contact]:
    """Contacts of hosts that are called by their numbers."""
    return [
        Contact(str(one), str(other), float(start), float(end)) for one, other, start, end in rows.tolist()
    ]
