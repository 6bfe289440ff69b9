"""A new flow graph in TOML: a few lines that run as they are."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tidings.errors import UserError
from tidings.pipeline.new_project import check_name

_GRAPH = """\
# Run it with: tidings pipeline run {file} --continuous
# See what it makes with: tidings subscribe "type LIKE '{types}.%'"
name = {name}
late = {late}                # events that come too late

[history.readings]
where = {where}
columns = {{ type = "string", value = "double" }}

[history.high]
from = "readings"
select = "value > 40"
publish = {high}

[state.means]                # for each type and minute
from = "readings"
by = "type"
window_s = 60
late_s = 600
collapse = {{ count = "count()", mean = "mean(value)", highest = "highest(value)" }}
publish = {means}
"""


def write_graph(path: Path, where: str) -> Path:
    """Write a graph into a new file and return its path; UserError if the file exists."""
    name = path.stem
    check_name(name)
    if path.exists():
        raise UserError(f"{path} exists; choose another name, or remove it")
    types = f"flow.{name}"
    texts = {
        "name": name,
        "where": f"({where}) AND NOT STARTS_WITH(type, '{types}.')",
        **{what: f"{types}.{what}" for what in ("high", "means", "late")},
    }
    quoted = {key: msgspec.json.encode(text).decode() for key, text in texts.items()}
    path.write_text(_GRAPH.format(file=path, types=types, **quoted), encoding="utf-8")
    return path
