"""A map that moves, as SVG: the hosts of a run on their ways, and how one message spreads among them.

Browsers play it by themselves, without a script. The message is the one that was delivered over the most
hosts: a host is filled while it carries it, and its recipient is marked from the delivery on.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import inf

from tidings.adhoc.messages import MessageId
from tidings.simulator.adhoc_timed import TimedRun
from tidings.simulator.mobility import TICK_S, Terrain, Track

FRAMES_MAX = 240
"""Positions of a host that a map has."""
LENGTH_S = 24
"""How long it plays before it begins again."""
WIDTH = 900
MARGIN = 20
IDLE, CARRIER, DELIVERED = "#c3cad4", "#d9480f", "#2b8a3e"


def draw_map(run: TimedRun, terrain: Terrain, track: Track, range_m: float) -> str:
    """Return the map of a run that is over."""
    scale = (WIDTH - 2 * MARGIN) / terrain.width_m
    height = terrain.height_m * scale + 2 * MARGIN + 24
    span_s = (len(track) - 1) * TICK_S
    every = max(1, -(-len(track) // FRAMES_MAX))
    shown = track[::every]
    followed = _followed(run)
    title = f"{len(run.hosts)} hosts, {span_s / 3_600:g} h; filled: carriers of {followed or 'no message'}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
        *_streets(terrain, scale),
    ]
    for host in range(len(run.hosts)):
        xs = ";".join(f"{MARGIN + x * scale:.1f}" for x in shown[:, host, 0].tolist())
        ys = ";".join(f"{MARGIN + y * scale:.1f}" for y in shown[:, host, 1].tolist())
        radius = max(2.5, range_m * scale / 2)
        parts.append(f'<circle r="{radius:.1f}" fill="{IDLE}" stroke="#495057">')
        parts += [_animate("cx", xs), _animate("cy", ys), *_fills(run, followed, host, span_s), "</circle>"]
    parts += [f'<text x="{MARGIN}" y="{height - 10:.0f}">{escape(title)}</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def _followed(run: TimedRun) -> MessageId | None:
    """The message that was delivered over the most hosts."""
    delivered = [id for id, sent in run.messages.items() if sent.delivered_at < inf]
    return max(delivered, key=lambda id: (run.messages[id].hops, id), default=None)


def _streets(terrain: Terrain, scale: float) -> list[str]:
    if terrain.block_m is None:
        return []
    right, bottom = MARGIN + terrain.width_m * scale, MARGIN + terrain.height_m * scale
    across = [
        MARGIN + at * terrain.block_m * scale for at in range(int(terrain.width_m / terrain.block_m) + 1)
    ]
    along = [
        MARGIN + at * terrain.block_m * scale for at in range(int(terrain.height_m / terrain.block_m) + 1)
    ]
    lines = [f"M{x:.1f} {MARGIN}V{bottom:.1f}" for x in across] + [
        f"M{MARGIN} {y:.1f}H{right:.1f}" for y in along
    ]
    return [f'<path d="{"".join(lines)}" stroke="#e9ecef" fill="none"/>']


def _animate(attribute: str, values: str) -> str:
    return (
        f'<animate attributeName="{attribute}" dur="{LENGTH_S}s" repeatCount="indefinite" values="{values}"/>'
    )


def _fills(run: TimedRun, followed: MessageId | None, host: int, span_s: float) -> list[str]:
    """The colours of a host over time, if it has to do with the message."""
    if followed is None:
        return []
    sent = run.messages[followed]
    changes = [
        (at, CARRIER if is_here else IDLE) for at, one, is_here in run.carriers[followed] if one == host
    ]
    if host == sent.recipient:
        changes.append((sent.delivered_at, DELIVERED))
    return [_discrete([(0.0, IDLE), *sorted(changes)], span_s)] if changes else []


def _discrete(changes: Sequence[tuple[float, str]], span_s: float) -> str:
    moments = ";".join(f"{at / span_s:.4f}" for at, _ in changes)
    colours = ";".join(colour for _, colour in changes)
    return (
        f'<animate attributeName="fill" dur="{LENGTH_S}s" repeatCount="indefinite" calcMode="discrete" '
        f'keyTimes="{moments}" values="{colours}"/>'
    )
