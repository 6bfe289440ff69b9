#!/usr/bin/env python3
"""Check the subject of a commit message: `area: imperative`, at most 72 characters.

python scripts/commit_subject.py FILE      the message, as git gives it to a hook
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LENGTH_MAX = 72
SUBJECT = re.compile(
    r"(?P<area>[a-z][a-z0-9_./-]*(?:, [a-z][a-z0-9_./-]*)*): (?P<verb>[a-z][a-z-]*)\b.*[^.\s]"
)
MADE_BY_GIT = re.compile(r'(Merge|Revert "|fixup! |squash! |amend! )')
"""How subjects begin that git itself writes."""


def problem(subject: str) -> str | None:
    """What is wrong with a subject; None if nothing is."""
    if MADE_BY_GIT.match(subject):
        return None
    if len(subject) > LENGTH_MAX:
        return f"it has {len(subject)} characters; at most {LENGTH_MAX} fit"
    found = SUBJECT.fullmatch(subject)
    if found is None:
        return "it is not `area: imperative`, such as `log: send only the requested columns`"
    if found["verb"].endswith(("ing", "ed")) and found["verb"] not in (
        "bring",
        "embed",
        "feed",
        "need",
        "seed",
    ):
        return f"{found['verb']!r} is no imperative: say what the commit does, such as `add`"
    return None


def main() -> None:
    """Exit with 1 and say why, if the subject is not as it should be."""
    subject = Path(sys.argv[1]).read_text().partition("\n")[0]
    wrong = problem(subject)
    if wrong is not None:
        sys.exit(f"commit subject {subject!r}: {wrong}")


if __name__ == "__main__":
    main()
