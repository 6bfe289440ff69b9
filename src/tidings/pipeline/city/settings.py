"""Settings of the city pipeline's own: the file of its rules, and what overrides it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidings.errors import ConfigError, InternalError
from tidings.pipeline.city.rules import CityRules, check_common, read_rules
from tidings.pipeline.settings import RunSettings, time_span

_PLACES = (Path(__file__).parent / "project", Path(__file__).parents[4] / "pipelines" / "city")
"""Folder of the pipeline's files: in the package, or beside it in a checkout."""
_RULES = "rules.toml"


class CitySettings(RunSettings, frozen=True, kw_only=True):
    """All settings of a run of the city pipeline; None: not given."""

    pipeline: str = "city"
    rules: str | None = None
    """File of the rules; without one, those of the project."""
    window: str | None = None
    watermark: str | None = None
    cell_size: str | None = None
    silent_by: str | None = None
    """Whether a continuous query measures silence by the `clock`, or by the `time` of other readings."""

    @property
    def by_clock(self) -> bool:
        """Return whether silence is measured by the clock; ConfigError if the setting is invalid."""
        if self.silent_by not in (None, "clock", "time"):
            raise ConfigError("--silent-by", "", f"{self.silent_by!r} is neither clock nor time")
        return self.silent_by != "time"

    def loaded_rules(self) -> CityRules:
        """Return the rules, overridden by the settings; ConfigError if they are invalid."""
        rules = read_rules(Path(self.rules) if self.rules else project_folder() / _RULES)
        changes = {"window_s": self.window, "late_s": self.watermark}
        common = {name: time_span(text, name) for name, text in changes.items() if text}
        if self.cell_size:
            common["cell_size"] = _number(self.cell_size)
        changed = msgspec.structs.replace(rules.common, **common)
        check_common(changed, "settings")
        return msgspec.structs.replace(rules, common=changed)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError("settings", "cell_size", f"{text!r} is no number") from None


def project_folder() -> Path:
    """Return the folder with the rules and the declarative project."""
    for folder in _PLACES:
        if (folder / _RULES).is_file():
            return folder
    raise InternalError(f"the files of the city pipeline are missing: {_PLACES[0]}")
