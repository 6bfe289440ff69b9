"""What becomes of a log in time, told to a node by hand: what is believed of who seals, and what may go."""

from __future__ import annotations

from pathlib import Path

import pytest
from log import sealers
from protocol.rig import Peer, Rig, persistent

from tidings.log.custody import Retention
from tidings.log.folder import Folder
from tidings.log.history import History
from tidings.log.sealed import SealedFiles
from tidings.log.service import LogService


class SealingRig(Rig):
    """A node whose log is sealed into a folder, by hand; it stores one event at each position."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.folder = Folder(path)
        self.history = History(self.store, SealedFiles(self.folder, self.broker.node))
        self.broker.add(LogService(self.broker, self.history, True, "", Retention(), seal_s=300.0))

    def seal(self, first: int, last: int) -> None:
        """Write a file."""
        sealers.seal(self.history, self.folder, first, last, self.broker.node)

    @property
    def files(self) -> list[tuple[int, int]]:
        """The first and last position of each file."""
        return [(one.claim.first, one.claim.last) for one in self.folder.files(self.broker.node)]


@pytest.fixture
def ann(tmp_path: Path) -> Peer:
    """A client of a node with six events in its log."""
    ann = SealingRig(tmp_path).peer()
    for counter in range(1, 7):
        ann.publish(persistent(counter, n=counter))
        ann.rig.run()
    return ann


@pytest.fixture
def rig(ann: Peer) -> SealingRig:
    assert isinstance(ann.rig, SealingRig)
    return ann.rig


def test_a_file_stays_while_the_store_has_what_is_in_it(ann: Peer, rig: SealingRig) -> None:
    rig.seal(1, 2)
    rig.seal(3, 4)
    assert ann.ask("log.prune", before=5, force=True).result["first"] == 1
    assert rig.files == [(1, 2), (3, 4)]
    for _ in range(2):  # what the first one trims the second one discards
        ann.ask("log.sealed", first=1, position=4)
    assert rig.history.discarded == 4
    assert ann.ask("log.prune", before=3, force=True).result["first"] == 3
    assert rig.files == [(3, 4)]


def test_who_has_sealed_past_files_that_are_gone_is_not_believed(ann: Peer, rig: SealingRig) -> None:
    rig.seal(1, 2)
    rig.seal(3, 4)
    assert ann.ask("log.sealed", first=1, position=4).result == {"sealed": 4}
    rig.folder.remove(rig.folder.files(rig.broker.node)[1:])
    rig.seal(5, 6)
    assert ann.ask("log.sealed", first=5, position=6).result == {"sealed": 2}
    rig.seal(3, 4)
    assert ann.ask("log.sealed", first=3, position=4).result == {"sealed": 6}


def test_who_seals_may_come_further_than_there_is_anything_to_be_put_into_a_file(
    ann: Peer, rig: SealingRig
) -> None:
    rig.seal(1, 2)
    assert ann.ask("log.sealed", first=1, position=4).result == {"sealed": 4}
    assert ann.ask("log.sealed", first=3, position=100).result == {"sealed": 6}
