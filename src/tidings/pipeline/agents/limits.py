"""Limits past which a group of agents runs away, and the settings of the agents pipeline.

    starts=100, losses=5, cost.usd=20, cost.tokens=1e6

Each limit is for one group and one window. A number past its limit is one alarm; the defaults are for groups
whose size nobody has thought about, and leave costs alone, since their units are the user's own.
"""

from __future__ import annotations

from math import isfinite

from tidings.errors import ConfigError
from tidings.pipeline.settings import RunSettings, time_span

STARTS, RESTARTS, LOSSES, COST = "starts", "restarts", "losses", "cost"
DEFAULTS = {STARTS: 1_000.0, RESTARTS: 100.0, LOSSES: 100.0}
"""Members that a group starts, new lives of its members, and members that are lost, in a window."""
WINDOW_S, LATE_S = 3_600.0, 300.0


class AgentSettings(RunSettings, frozen=True, kw_only=True):
    """All settings of a run of the agents pipeline; None: not given."""

    pipeline: str = "agents"
    window: str | None = None
    watermark: str | None = None
    limits: str | None = None

    @property
    def window_s(self) -> float:
        """The length of a window."""
        return time_span(self.window, "window") if self.window else WINDOW_S

    @property
    def late_s(self) -> float:
        """How far an event may be behind the newest one and still count."""
        return time_span(self.watermark, "watermark") if self.watermark else LATE_S

    def all_limits(self) -> dict[str, float]:
        """Return the limits by name; ConfigError for one that is unknown or no number."""
        limits = dict(DEFAULTS)
        for entry in filter(None, (one.strip() for one in (self.limits or "").split(","))):
            name, _, text = (one.strip() for one in entry.partition("="))
            kind, _, unit = name.partition(".")
            if name not in DEFAULTS and not (kind == COST and unit.isidentifier()):
                known = ", ".join((*DEFAULTS, f"{COST}.UNIT"))
                raise ConfigError("settings", "limits", f"{name!r} is no limit; there are {known}")
            limits[name] = _number(name, text)
        return limits


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise ConfigError("settings", "limits", f"{name}={text}: a limit is a number from 0 on")
    return value
