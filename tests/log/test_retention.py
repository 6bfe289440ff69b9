"""What becomes of a log in time, told to a node by hand: what is believed of who seals, and what may go."""

from __future__ import annotations

from pathlib import Path

import pytest
from log import sealers
from protocol.rig import Peer, Rig, persistent

from tidings.log.retention import RetentionTerms
from tidings.log.segment_folder import Folder
from tidings.log.segments import SealedFiles
from tidings.node.assembly import Archiving, CoreSettings
from tidings.store.memory import SimulatedDisk, SimulatedStore

DAY_S = 86_400.0


class SealingRig(Rig):
    """A node whose log is sealed into a folder, by hand; it stores one event at each position."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        disk = SimulatedDisk()
        sealed = SealedFiles(self.folder, SimulatedStore(disk, bytes).state.node)
        archive = Archiving(sealed, "", RetentionTerms(age_s_max=DAY_S), seal_s=300.0)
        super().__init__(disk, settings=CoreSettings(archive=archive))
        self.history = self.core.history

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


# What a reader has not read


@pytest.fixture
def reader(ann: Peer, rig: SealingRig) -> Peer:
    """One who has read the first two of four events that are in files and not in the store any more."""
    rig.seal(1, 2)
    rig.seal(3, 4)
    ann.ask("log.reader", name="spark", lease_s=7 * DAY_S, start=1)
    ann.ask("log.passed", name="spark", position=3)
    for _ in range(2):
        ann.ask("log.sealed", first=1, position=4)
    return ann


def test_a_prune_leaves_what_a_reader_has_not_read_unless_it_is_forced(reader: Peer, rig: SealingRig) -> None:
    told = reader.ask("log.prune", before=5).result
    assert (told["first"], told["kept_for"]) == (3, ["spark"])
    assert rig.files == [(3, 4)]
    told = reader.ask("log.prune", before=5, force=True).result
    assert (told["first"], told["kept_for"], rig.files) == (5, [], [])


def test_what_is_too_old_stays_for_a_reader(reader: Peer, rig: SealingRig) -> None:
    rig.pass_time(DAY_S / 2)
    assert rig.files == [(1, 2), (3, 4)]
    rig.pass_time(DAY_S)
    assert rig.files == [(3, 4)]
    reader.ask("log.passed", name="spark", position=5)
    rig.pass_time(100.0)
    assert rig.files == []


def test_the_store_keeps_what_no_file_has(ann: Peer, rig: SealingRig) -> None:
    rig.seal(1, 2)
    for _ in range(3):
        ann.ask("log.sealed", first=1, position=6)
    assert [one.first for one in rig.stored] == [3, 4, 5, 6]
