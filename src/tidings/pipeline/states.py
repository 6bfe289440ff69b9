"""States of a pipeline as they are stored in its checkpoint, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidings.errors import UserError

TABLES = "tables"
"""Folder of the tables in that of a declarative run."""


def stored_rows(checkpoint: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a state; UserError if the checkpoint has none of this name.

    The checkpoint is a folder of this machine: that of a continuous query, or of a declarative run.
    """
    import pyarrow.parquet as pq

    from tidings.pipeline.flow.stored_state import FOLDER, state_rows

    home = Path(checkpoint.removeprefix("file://"))
    if (home / FOLDER).is_dir():
        rows: list[dict[str, Any]] = state_rows(checkpoint, name).to_pylist()
        return rows
    table = home / TABLES / name.lower()
    if not table.is_dir():
        raise UserError(f"checkpoint {checkpoint} has no state {name!r}; run the pipeline with --checkpoint")
    found: list[dict[str, Any]] = _in_utc(pq.read_table(table)).to_pylist()
    return found


def _in_utc(table: Any) -> Any:
    """Return a table of Spark's, whose times lack their zone, with it."""
    import pyarrow as pa

    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(number, field.name, table[number].cast(pa.timestamp("us", "UTC")))
    return table
