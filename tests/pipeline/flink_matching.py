"""A program for Flink's own Python: finds patterns by MATCH_RECOGNIZE, given as one JSON object in a file.

    {"folder": …, "cases": [{"pattern": "A N*? B", "define": "…", "within_s": 9, "last": "B", "rows": […]}]}

It prints a list of [key, start, end] in milliseconds for each case, in JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

QUERY = """
SELECT k, start_ms, end_ms FROM events{number} MATCH_RECOGNIZE (
    PARTITION BY k ORDER BY ts
    MEASURES FIRST(A.ms) AS start_ms, LAST({last}.ms) AS end_ms
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN ({pattern}) WITHIN INTERVAL '{within_s}.001' SECOND(5, 3)
    DEFINE {define}
)
"""


def main() -> None:
    """Find all cases, one after the other."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    found = []
    for number, case in enumerate(plan["cases"]):
        file = Path(plan["folder"]) / f"events{number}.csv"
        file.write_text("".join(",".join(map(str, row)) + "\n" for row in case["rows"]))
        tables.execute_sql(
            f"CREATE TABLE events{number} (ms BIGINT, k STRING, kind STRING, n BIGINT,"
            " ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)"
            f" WITH ('connector' = 'filesystem', 'path' = 'file://{file}', 'format' = 'csv')"
        )
        query = QUERY.format(
            number=number, **{name: case[name] for name in ("last", "pattern", "within_s", "define")}
        )
        found.append([list(row) for row in tables.execute_sql(query).collect()])
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
