"""A picture of a run: who was in a group, where and when, who has started whom, and why each has ended.

    group_svg(happenings_of(events))     the events `agent.…` of one group, in the order of its log

Rows are members, below the ones that have started them; bars are the time that they spent at a location, thin
where they were at rest. It is made from the events alone, so any run can be drawn that a log still has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

import msgspec
from msgspec import Struct, field

from tidings.agents.amounts import shown
from tidings.agents.conditions import text_of
from tidings.agents.events import (
    AnyHappening,
    Ended,
    Entered,
    Happening,
    Opened,
    Placed,
    Rested,
    decode_happening,
)
from tidings.agents.group_state import GroupState
from tidings.errors import AgentError
from tidings.event import Event

ROW, LEFT, WIDTH, RIGHT, TOP, INDENT = 22, 150, 520, 190, 52, 12
LENGTH_MAX = 22
"""Characters of a name or place that are drawn."""
COLOURS = "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb"
"""Of locations, which distinguish seven of them."""
_STYLE = "text{font:11px sans-serif;fill:#222}.title{font-size:14px}.axis{fill:#666}.rest{opacity:.5}"
_SUMS = "given", "spent", "refunded", "written_off"


class Stay(Struct):
    """A time that a member spent at a place, or at rest on its way to one."""

    where: str
    begun_us: int
    ended_us: int = 0
    is_rest: bool = False


class Run(Struct):
    """What is drawn of a member."""

    entered: Entered
    depth: int
    stays: list[Stay] = field(default_factory=list)

    def go_on(self, where: str, at_us: int, is_rest: bool = False) -> None:
        """Begin a stay, unless it is the same."""
        if self.stays and (self.stays[-1].where, self.stays[-1].is_rest) == (where, is_rest):
            return
        self.finish(at_us)
        self.stays.append(Stay(where, at_us, is_rest=is_rest))

    def finish(self, at_us: int) -> None:
        """End the last stay."""
        if self.stays and not self.stays[-1].ended_us:
            self.stays[-1].ended_us = at_us


def happenings_of(events: Iterable[Event]) -> list[AnyHappening]:
    """Return what has happened in a group; AgentError for an event that does not say it."""
    return [happening_of(event) for event in events]


def happening_of(event: Event) -> AnyHappening:
    """Return what an event of a group says; AgentError if it is none."""
    try:
        return decode_happening(event.body or b"")
    except msgspec.DecodeError as error:
        raise AgentError(event.type, f"this is no event of a group: {error}") from None


def group_svg(happenings: Iterable[AnyHappening]) -> str:
    """Return the picture of a group as an SVG document; AgentError if its beginning is missing."""
    happened = list(happenings)
    if not happened or not isinstance(happened[0], Opened):
        raise AgentError("", "the log does not have the beginning of the group any more")
    state, runs = GroupState.replay(happened), _runs(happened)
    end_us = max(one.at_us for one in happened)
    scale = _Scale(happened[0].at_us, max(end_us, happened[0].at_us + 1))
    places = {stay.where: None for run in runs for stay in run.stays}
    colours = {where: COLOURS[number % len(COLOURS)] for number, where in enumerate(places)}
    rows = [part for place, run in enumerate(runs) for part in _row(state, run, place, scale, colours)]
    height = TOP + ROW * (len(runs) + 1) + ROW * len(colours)
    label = escape(f"The run of the group {state.group.name}", quote=True)
    size = f'viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" width="{LEFT + WIDTH + RIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>',
        f"<style>{_STYLE}</style>",
        *_head(state),
        *_axis(scale, len(runs)),
        *rows,
        *_legend(colours, TOP + ROW * (len(runs) + 1)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """From moments to places on the axis."""

    def __init__(self, first_us: int, last_us: int) -> None:
        self.first_us, self.seconds = first_us, (last_us - first_us) / 1e6

    def x(self, at_us: int) -> float:
        return round(LEFT + WIDTH * (at_us - self.first_us) / 1e6 / self.seconds, 1)


def _runs(happened: list[AnyHappening]) -> list[Run]:
    """Return the members with their stays, children below their parents."""
    runs: dict[str, Run] = {}
    for event in happened:
        match event:
            case Entered():
                above = runs.get(event.parent)
                run = runs.setdefault(event.agent, Run(event, 0 if above is None else above.depth + 1))
                run.go_on(event.where, event.at_us, event.kind == "mobile" and event.life == 1)
            case Placed():
                runs[event.agent].go_on(event.where, event.at_us)
            case Rested():
                runs[event.agent].go_on(event.where, event.at_us, is_rest=True)
            case Ended():
                runs[event.agent].finish(event.at_us)
            case Happening():
                pass
    last_us = max(one.at_us for one in happened)
    for run in runs.values():
        run.finish(last_us)
    return list(_in_order(runs))


def _in_order(runs: dict[str, Run]) -> Iterator[Run]:
    below: dict[str, list[Run]] = {}
    for run in runs.values():
        below.setdefault(run.entered.parent, []).append(run)
    waiting = below.get("", [])[::-1]
    while waiting:
        run = waiting.pop()
        yield run
        waiting += below.get(run.entered.agent, [])[::-1]


def _head(state: GroupState) -> Iterator[str]:
    group, totals = state.group, state.totals
    reason = f", ended: {group.reason}" if group.reason else ""
    title = f"{group.name}: {text_of(group.condition)}{reason}"
    yield f'<text class="title" x="8" y="18">{escape(title)}</text>'
    if totals.given:
        money = "; ".join(f"{name.replace('_', ' ')} {_money(getattr(totals, name))}" for name in _SUMS)
        yield f'<text class="axis" x="8" y="34">{escape(money)}</text>'


def _money(amounts: dict[str, int]) -> str:
    return ", ".join(f"{value:g} {unit}" for unit, value in shown(amounts).items()) or "0"


def _axis(scale: _Scale, rows: int) -> Iterator[str]:
    for part in range(5):
        x = LEFT + WIDTH * part / 4
        bottom = TOP + ROW * rows
        yield f'<path d="M{x:g} {TOP - 4}V{bottom}" stroke="#ddd"/>'
        yield f'<text class="axis" x="{x + 2:g}" y="{bottom + 12}">{scale.seconds * part / 4:.3g} s</text>'


def _row(state: GroupState, run: Run, place: int, scale: _Scale, colours: dict[str, str]) -> Iterator[str]:
    y, member = TOP + ROW * place, state.members[run.entered.agent]
    yield f'<text x="{8 + INDENT * run.depth}" y="{y + 14}">{escape(_cut(member.name))}</text>'
    for stay in run.stays:
        x, until = scale.x(stay.begun_us), scale.x(stay.ended_us)
        top, high, kind = (y + 8, 6, ' class="rest"') if stay.is_rest else (y + 4, 14, "")
        where = escape(f"{member.name} {'rests' if stay.is_rest else 'is'} at {stay.where}")
        size = f'x="{x:g}" y="{top}" width="{max(2.0, until - x):g}" height="{high}"'
        yield f'<rect{kind} {size} fill="{colours[stay.where]}"><title>{where}</title></rect>'
    if run.stays:
        end = max(scale.x(run.stays[-1].ended_us), scale.x(run.stays[-1].begun_us) + 2)
        why = _why(member.reason, member.is_lost, member.account.spent)
        yield f'<text x="{end + 4:g}" y="{y + 14}">{escape(why)}</text>'


def _why(reason: str | None, is_lost: bool, spent: dict[str, int]) -> str:
    why = f"{reason or 'runs'}{', lost' if is_lost else ''}"
    return f"{why} ({_money(spent)})" if any(spent.values()) else why


def _legend(colours: dict[str, str], top: int) -> Iterator[str]:
    for number, (where, colour) in enumerate(colours.items()):
        y = top + ROW * number
        yield f'<rect x="8" y="{y + 4}" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="28" y="{y + 15}">{escape(_cut(where, 60))}</text>'


def _cut(text: str, length: int = LENGTH_MAX) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
