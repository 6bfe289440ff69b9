"""Announcing: how a neighbour learns what this node wants from it, and all that lies behind this node.

The announced filters are a covering set (`covering.py`). A change goes out as one request, additions and
removals together; the next one waits for its reply. When a link comes up, the neighbour tells the digest of
the table that it has: if that is ours, no filter is sent. If it is the one that our greeting had, nothing is.

| state | what happens | what is sent | state then |
| --- | --- | --- | --- |
| down | the link is up, the greeting had the digest of the table there | | known |
| down | the link is up, it had not | | apart |
| apart | the set is worked out, the digests are equal | that it is whole | telling |
| apart | it is, and they differ; or the table there is empty | the whole set so far, in pieces | telling |
| known | the set changes | the change | telling |
| telling | the reply has the digest that was expected, or none | | known |
| telling | the reply has another digest, or is an error | | apart, and again later |
| any | the link is lost | | down |

While some other neighbour's table may be out of date, nothing is taken back: a filter that is missing there
could still be wanted behind this node. Such a set is *widened* only: additions are sent, and the whole set
again when all tables are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, Literal

from tidings.errors import Disconnected, TidingsError
from tidings.filters import Filter
from tidings.overlay.covering import Announced, CoveringSet
from tidings.protocol.connection import Connection
from tidings.replies import Deferred
from tidings.steps import Steps

PIECE_COUNT = 500
"""Filters in one request."""
PIECE_SIZE = 256 << 10
"""Their characters, save one filter that is longer."""
AGAIN_S = 0.2
"""How long to wait before a set that a neighbour has refused is sent again: it may not know the tree yet."""
LONGEST_S = 10.0
"""How long if it refuses again and again: the time doubles each time."""

SHORT_BITS: Final = 64
NO_SET: Final = (1 << SHORT_BITS) - 1
"""Short digest in place of one that is not known yet."""
EMPTY: Final = "0"
"""Digest of an empty table."""

AnnouncerState = Literal["down", "apart", "telling", "known"]

_END: Final = object()


class Announcer:
    """Filters that are announced to one neighbour, by requests for this operation.

    `later` calls a function after so many seconds; `report` is called with what a neighbour has refused.
    `is_coarse`: what is announced may match more than what is wanted.
    """

    def __init__(
        self,
        operation: str,
        later: Callable[[float, Callable[[], None]], None],
        report: Callable[[str], None],
        is_coarse: bool = False,
    ) -> None:
        self._operation = operation
        self._is_coarse = is_coarse
        self.covering = CoveringSet(is_coarse)
        self.state: AnnouncerState = "down"
        self.may_narrow = False
        """Whether all other neighbours' tables are known, so that filters may be taken back."""
        self.is_whole = False
        """Whether the neighbour has exactly this set."""
        self.told = 0  # requests that the neighbour has taken
        self.is_working = False  # what is to be announced is being worked out
        self._later = later
        self._report = report
        self._prepared: deque[Steps[None]] = deque()  # by which filters are added and removed
        self._connection: Connection | None = None
        self._pieces: Iterator[dict[str, Any]] = iter(())
        self._barriers: list[Deferred[None]] = []  # that wait for what is noted to be sent
        self._passing: list[Deferred[None]] = []  # that wait for the reply to that
        self._theirs = ""  # digest of the table that the neighbour has, when its link comes up
        self._is_asked = False  # the neighbour has begun anew: what is said next is an answer to that
        self._begins = False  # so does this node, as the link came up: the neighbour is asked, too
        self._expected = ""  # digest of what is being sent, if that is the whole set
        self._refusals = 0  # one after the other
        self._life = 0  # counts the links: replies of one that is lost are passed over

    # What is wanted

    def __contains__(self, key: Hashable) -> bool:
        """Whether anything is wanted under this key."""
        return key in self.covering

    def add(self, key: Hashable, filter: Filter, passive: bool) -> None:
        """Want what matches, under this key."""
        self.covering.add(key, filter, passive)

    def remove(self, key: Hashable) -> None:
        """Want it no longer."""
        self.covering.remove(key)

    def prepare(self, steps: Steps[None]) -> None:
        """Take steps that add and remove filters, before the next change is worked out."""
        self._prepared.append(steps)

    def steps(self) -> Steps[None]:
        """Work out what has to be announced."""
        while self._is_behind:
            if not self._prepared:
                self.covering.step()
            elif next(self._prepared[0], _END) is _END:
                self._prepared.popleft()
            yield

    @property
    def _is_behind(self) -> bool:
        """Whether steps are left."""
        return bool(self._prepared) or self.covering.is_due

    # The link

    def up(self, connection: Connection, digest: str, is_agreed: bool = False) -> None:
        """The link is there, and the neighbour has a table with this digest.

        `is_agreed`: it has found that digest in the greeting, so it knows that its table is whole.
        """
        self._life += 1
        self.is_whole = is_agreed and digest == self._digest
        self._connection, self.state = connection, "known" if self.is_whole else "apart"
        self._theirs, self._is_asked, self._begins = digest, False, not self.is_whole

    def down(self) -> None:
        """The link is gone."""
        self._life += 1
        self._connection, self.state, self.is_whole = None, "down", False
        barriers, self._barriers, self._passing = self._barriers + self._passing, [], []
        for barrier in barriers:
            barrier.fail(Disconnected("the link is lost"))

    def speak_up(self) -> None:
        """Say that the set is whole: the neighbour has begun anew, and may not know it any more."""
        if self.state == "known":
            self.state, self._theirs = "apart", self._digest if self.is_whole else ""
        self._is_asked = self.state != "down"

    def barrier(self) -> Deferred[None]:
        """Return a reply that comes when the neighbour knows all that is wanted so far; the link is there."""
        barrier: Deferred[None] = Deferred()
        self._barriers.append(barrier)
        return barrier

    def clear(self) -> None:
        """Want nothing any more."""
        self.covering = CoveringSet(self._is_coarse)
        self._prepared.clear()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to work out, or to send."""
        if self.state == "down" or self._is_behind:
            return self.state != "down"
        if self.state == "telling":
            return False
        is_late = self.state == "apart" or (self.may_narrow and not self.is_whole)
        return is_late or self.covering.has_changes or bool(self._barriers)

    @property
    def settled_digest(self) -> str:
        """Digest of the announced filters, if these are all that are wanted; else empty."""
        return "" if self._is_behind or self.covering.has_changes else self._digest

    @property
    def _digest(self) -> str:
        """Digest of the announced filters, as tables tell it."""
        return f"{self.covering.digest:x}"

    def flush(self) -> bool:
        """Send what has changed, if the neighbour has taken what was sent before; whether that was any."""
        if self.state in ("down", "telling"):
            return False
        is_behind = self._is_behind
        if self.state == "apart" and is_behind and self._theirs != EMPTY:
            return False  # less than was wanted before must not be sent as all that is
        changes = self.covering.take_changes()
        if not is_behind:
            self._passing += self._barriers
            self._barriers = []
        if self.state == "apart":
            return self._begin(is_same=self._theirs == self._digest)
        if self.may_narrow and not self.is_whole:
            return self._begin(is_same=False)  # what was only widened so far
        removed = changes.removed if self.may_narrow else []
        if not changes.added and not removed:
            self.is_whole = self.is_whole and not changes.removed
            self._pass()
            return False
        self.is_whole = self.is_whole and len(removed) == len(changes.removed)
        self._expected = self._digest if self.is_whole else ""
        # A filter that demands from now on, or no longer, replaces itself there.
        replaced = {str(one.filter) for one in changes.added}
        self._send(
            _pieces(changes.added, [text for one in removed if (text := str(one.filter)) not in replaced])
        )
        return True

    def _begin(self, is_same: bool) -> bool:
        """Send the whole set, or only that it is the one which the neighbour has."""
        self.is_whole = self.may_narrow or is_same
        self._expected = self._digest if self.is_whole else ""
        pieces = _pieces([] if is_same else list(self.covering), [], not is_same and self.may_narrow)
        is_answer = self._is_asked and not self._begins
        self._is_asked = self._begins = False
        self._send(pieces if is_answer else _begun(pieces))
        return True

    def _send(self, pieces: Iterator[dict[str, Any]]) -> None:
        self.state = "telling"
        self._pieces = pieces
        self._send_next()

    def _send_next(self) -> None:
        assert self._connection is not None
        piece = next(self._pieces, None)
        if piece is None:
            self.state, self._refusals = "known", 0
            self._pass()
            if self._is_asked:
                self.speak_up()
            return
        expected, life = self._expected if piece["done"] else "", self._life
        told = {name: value for name, value in (*piece.items(), ("digest", expected)) if value}
        call = self._connection.request(self._operation, told, "forget")
        call.then(lambda told: self._taken(life, expected, told), lambda error: self._refused(life, error))

    def _pass(self) -> None:
        """The neighbour knows what was to be known."""
        passing, self._passing = self._passing, []
        for barrier in passing:
            barrier.resolve(None)

    def _taken(self, life: int, expected: str, told: Any) -> None:
        if life != self._life:
            return
        self.told += 1
        digest = told.get("digest", expected) if isinstance(told, dict) else None
        if expected and digest != expected:
            self._again(f"the neighbour has another table: {digest!r:.50}")
        else:
            self._send_next()

    def _refused(self, life: int, error: TidingsError) -> None:
        if life == self._life:
            self._again(str(error))

    def _again(self, problem: str) -> None:
        """Send the whole set again, but not at once."""
        self._report(problem)
        life = self._life

        def retry() -> None:
            if life == self._life:
                self.state, self._theirs = "apart", ""

        self._later(min(LONGEST_S, AGAIN_S * 2**self._refusals), retry)
        self._refusals = min(self._refusals + 1, 10)


def _begun(pieces: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the requests of a set that is announced anew."""
    yield {**next(pieces), "anew": True}
    yield from pieces


def short_digest(digest: str) -> bytes:
    """Return half a digest, as greetings have it, where every byte counts; of an empty one that of no set."""
    number = int(digest, 16) % (1 << SHORT_BITS) if digest else NO_SET
    return number.to_bytes(SHORT_BITS // 8, "big")


def _pieces(added: list[Announced], removed: list[str], is_reset: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the requests of one change: additions first, removals with the last of them."""
    piece: list[tuple[str, bool]] = []
    size = 0
    for one in added:
        text = str(one.filter)
        if piece and (len(piece) >= PIECE_COUNT or size + len(text) > PIECE_SIZE):
            yield {"add": piece, "reset": is_reset, "done": False}
            piece, size, is_reset = [], 0, False
        piece.append((text, one.passive))
        size += len(text)
    for at in range(0, len(removed) - PIECE_COUNT, PIECE_COUNT):
        yield {"add": piece, "reset": is_reset, "remove": removed[at : at + PIECE_COUNT], "done": False}
        piece, is_reset = [], False
    rest = removed[-(len(removed) % PIECE_COUNT or PIECE_COUNT) :]
    yield {"add": piece, "reset": is_reset, "remove": rest, "done": True}
