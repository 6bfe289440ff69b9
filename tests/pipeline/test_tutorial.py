"""The tutorial in `docs/spark-tutorial.md` is followed: each command is run, and prints what is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from effort import IS_SOAK, patience
from ports import free_port
from walking import Machine, follow, steps, surroundings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "spark-tutorial.md").read_text()
PORTS = ("7300", "4242")
"""The ports of the document; where it is run, these are free ones."""
PATIENCE_S = patience(600.0)
"""How long a command may take that starts Spark on a busy machine."""
LAST = "The events that the query has read"
"""From here a program is run again that was run before, with another Spark: in the long run only."""
BUSY = "Timed out while waiting for the Python worker to connect back"
"""With what Spark gives up, after ten seconds that no setting changes, where a machine is busy."""
PROGRAM = re.compile(r"`(\w+\.py)`(?:(?!```).)*?^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""The name of a file, and behind it what is to be saved as that."""


@contextmanager
def city(home: Path) -> Iterator[Machine]:
    """Yield a machine with the programs of the tutorial."""
    own = surroundings(PYTHONPATH=str(ROOT / "src"), SPARK_LOCAL_IP="127.0.0.1")
    terms = {port: str(free_port()) for port in PORTS}
    with Machine(home, terms, own, PATIENCE_S) as machine:
        for name, code in PROGRAM.findall(TEXT):
            (home / name).write_text(machine.here(code))
        yield machine


@pytest.mark.slow
def test_every_step_prints_what_is_shown(tmp_path: Path) -> None:
    text = TEXT if IS_SOAK else TEXT.rpartition(LAST)[0]
    try:
        with city(tmp_path / "city") as machine:
            follow(text, {"city": machine})
    except AssertionError as error:
        if BUSY not in str(error):
            raise
        with city(tmp_path / "again") as machine:
            follow(text, {"city": machine})


def test_every_program_that_is_run_is_shown() -> None:
    run = {word for step in steps(TEXT) for word in step.command.split() if word.endswith(".py")}
    assert run == {name for name, _ in PROGRAM.findall(TEXT)} == {"history.py", "alarms.py"}
    assert {step.machine for step in steps(TEXT)} == {"city"}
    assert [step.command.split()[1] for step in steps(TEXT.rpartition(LAST)[2])] == ["history.py"]
