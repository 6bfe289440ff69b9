"""The names of sealed files, `NODE-FIRST-LAST.parquet`, and what they claim to hold; needs msgspec only."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

POSITION_DIGITS: Final = 20

_NAME = re.compile(r"(?P<node>[A-Za-z0-9_-]{1,64})-(?P<first>\d{20})-(?P<last>\d{20})\.parquet")


class Claim(Struct, frozen=True, order=True):
    """What a file says it has: all events in the log of a node from one position to another."""

    node: str
    first: int
    last: int

    @property
    def file_name(self) -> str:
        """What the file is called."""
        return f"{self.node}-{self.first:0{POSITION_DIGITS}}-{self.last:0{POSITION_DIGITS}}.parquet"

    def covers(self, other: Claim) -> bool:
        """Whether everything the other says it has is here, too."""
        return self.node == other.node and self.first <= other.first and other.last <= self.last


def claim_in(file_name: str) -> Claim | None:
    """The claim a file makes by its name, or None if it is no file of the log."""
    found = _NAME.fullmatch(file_name)
    if found is None or int(found["first"]) > int(found["last"]):
        return None
    return Claim(found["node"], int(found["first"]), int(found["last"]))
