"""Stands in for `tidings pipeline run city --continuous` where a test is about the demo and not about Spark.

It is a reader of the node's log as a Spark query is one, and raises an alarm when it has read something. As a
program it takes the same options; TIDINGS_TEST_QUERY says what it does wrong: `silent` raises no alarm,
`dying` ends after it has read, `stubborn` does not end when it is told to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import tidings

sys.path.insert(0, str(Path(__file__).parents[1]))  # it runs by itself, too
from effort import patience

LEASE_S = 10.0
SHORT_S = 2.0
"""The lease of one that ends without a word: a test waits for its end."""
ALARM_BATCHES = 10


async def work(address: str, where: str, manner: str) -> None:
    async with tidings.connect(address, name="spark") as bus:
        position, batch = 1, 0
        lease_s = patience(SHORT_S if manner in ("dying", "stubborn") else LEASE_S)
        tell(state="running")
        while True:
            end = (await bus.log.reader("query", where, lease_s=lease_s))["end"]
            rows = [event async for _, event in bus.log.read(position, end, where=where)]
            position, batch = end, batch + 1
            tell(
                batch=batch,
                rows=len(rows),
                rows_s=10.0 * len(rows),
                alarms=0,
                rejected={},
                lag=3,
                seconds=0.1,
            )
            if rows and manner == "dying":
                sys.stderr.write("the cluster is on fire\n")
                sys.stderr.flush()
                os._exit(1)  # and its Java is still there
            if rows and manner != "silent" and batch % ALARM_BATCHES == 0:
                alarm = {"about": rows[0].type, "cell": "0:0", "value": 99.5, "limit": 50.0}
                await bus.publish("alarm.limit", alarm, delivery="persistent")
            await asyncio.sleep(0.1)


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201  # what the command prints


async def leave(address: str) -> None:
    async with tidings.connect(address, name="spark") as bus:
        await bus.log.leave("query")


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("command", "action", "pipeline"):
        parser.add_argument(name)
    for name in ("node", "where", "checkpoint", "window", "watermark", "trigger", "master", "conf"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("continuous", "json"):
        parser.add_argument(f"--{name}", action="store_true", required=True)
    options, manner = parser.parse_args(), os.environ.get("TIDINGS_TEST_QUERY", "")
    assert (options.command, options.action, options.pipeline) == ("pipeline", "run", "city")
    with subprocess.Popen(["sleep", "600"]) as machine:  # as Spark has a Java beside it
        signal.signal(signal.SIGTERM, signal.SIG_IGN if manner == "stubborn" else signal.default_int_handler)
        try:
            asyncio.run(work(options.node, options.where, manner))
        except KeyboardInterrupt:
            asyncio.run(leave(options.node))
            tell(state="stopped", batches=0, rows=0)
        finally:
            machine.kill()


if __name__ == "__main__":
    main()
