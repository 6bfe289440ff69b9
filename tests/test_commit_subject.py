"""The check of commit subjects in `scripts/commit_subject.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "commit_subject.py"


def check(tmp_path: Path, subject: str) -> str:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"{subject}\n\nbody\n")
    return subprocess.run(
        [sys.executable, SCRIPT, message], capture_output=True, text=True, check=False
    ).stderr


@pytest.mark.parametrize(
    "subject",
    [
        "log: send only the requested columns",
        "log, protocol: return replies",
        'Revert "log: send"',
        "docs: say why",
    ],
)
def test_a_subject_that_names_its_area_and_a_verb_is_good(tmp_path: Path, subject: str) -> None:
    assert check(tmp_path, subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Of sealed events only the wanted columns travel", "area: imperative"),
        ("log: Send the columns", "area: imperative"),
        ("log: send the columns.", "area: imperative"),
        ("log: sending the columns", "no imperative"),
        ("log: " + "x" * 68, "73 characters"),
    ],
)
def test_any_other_is_refused_with_the_reason(tmp_path: Path, subject: str, why: str) -> None:
    assert why in check(tmp_path, subject)
