"""Wholeness: whether a neighbour has announced all that is wanted behind it, asked and answered on the tree.

A node asks the heirs among its neighbours (`moving.py`). One that is asked asks all its other neighbours the
same, and answers when all have, behind what it announces itself. Also those behind which no node has come are
asked: their tables are out of date if a link behind them was cut until now. A question follows what was
offered and announced to the neighbour, so the answer comes behind the filters that overlap what is offered on
the side of the one that asks. It is answered only while both ends see the same sides of the link; so it ends
by itself where the tree does.

An answer holds as long as the link and its sides are the same: all that has moved behind it since has kept
what it wants on the ways there, as nodes take nothing back before their own heirs are whole. So a question
crosses each link once, and after a change only those links whose sides have changed: they form the way from
where a link has left the tree to where another has come in.

A neighbour whose link is lost can't answer. It is taken to want what the one that asks does, which has
announced what it stores for nodes that were behind others; when its link is there again, it announces what
it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidings.errors import Disconnected, Refused
from tidings.overlay.moving import Places, Sides, mirrored
from tidings.overlay.neighbours import KnownNeighbours, Later, Neighbour, WholeQuestion
from tidings.overlay.topology import Topology
from tidings.replies import Deferred

ASK_AGAIN_S = 0.2
"""How long to wait before a neighbour that did not answer is asked again."""
QUESTIONS_MAX = 1_000
"""Questions of one neighbour that are not answered; one is asked for each link beyond it that has changed."""


class Wholeness:
    """Questions to the neighbours of a node, and of them.

    `is_whole` is called with an heir that has answered, `lend` with a neighbour that can't, with the one that
    asks, and with what is to be called when that is done.
    """

    def __init__(
        self,
        known: KnownNeighbours,
        topology: Topology,
        places: Places,
        later: Later,
        is_whole: Callable[[Neighbour], None],
        lend: Callable[[Neighbour, Neighbour, Callable[[], None]], None],
    ) -> None:
        self._known = known
        self._topology = topology
        self._places = places
        self._later = later
        self._is_whole = is_whole
        self._lend = lend
        self.is_waiting: Callable[[], bool] = lambda: False
        """Whether it is not known yet which ways some events go over the links of this node."""

    # Questions of this node

    def ask(self, heir: Neighbour) -> None:
        """Ask an heir, if its link is there, until it answers."""
        link, sides = heir.link, self._places.sides(heir.node)
        if link is None or not heir.is_heir or sides is None:
            return

        def is_same() -> bool:
            return heir.link is link and self._places.sides(heir.node) == sides

        def answered(_none: object) -> None:
            if self.is_waiting():
                ask_later()
            elif is_same():
                heir.is_whole = True
                self._is_whole(heir)

        def ask_again() -> None:
            if is_same():
                self.ask(heir)

        def ask_later(_error: object = None) -> None:
            self._later(ASK_AGAIN_S, ask_again)

        self._question(heir, sides).then(answered, ask_later)

    def _question(self, neighbour: Neighbour, sides: Sides) -> Deferred[Any]:
        """Ask a neighbour, behind what was offered and announced to it: its answer holds for these offers."""
        reply: Deferred[Any] = Deferred()
        link = neighbour.link

        def ask(_none: None) -> None:
            if link is None or neighbour.link is not link:
                reply.fail(Disconnected("the link is lost"))
                return
            link.send("link.whole", {"sides": sides}).then(reply.resolve, reply.fail)

        def offered(_none: None) -> None:
            neighbour.announcer.barrier().then(ask, reply.fail)

        neighbour.offerer.barrier().then(offered, reply.fail)
        return reply

    def forget(self, neighbour: Neighbour) -> None:
        """What a neighbour has answered holds no more."""
        neighbour.asking, neighbour.is_whole = None, False

    # Questions of neighbours

    def answer(self, neighbour: Neighbour, sides: Sides) -> Deferred[None]:
        """Return a reply that comes when all that is wanted behind this node was announced to a neighbour."""
        former = [one for one in neighbour.questions if one.sides != sides]
        for one in former:
            one.reply.fail(Refused("exists", "the sides of the link were others"))
        neighbour.questions = [one for one in neighbour.questions if one not in former]
        if len(neighbour.questions) >= QUESTIONS_MAX:
            raise Refused("limit", f"a neighbour has at most {QUESTIONS_MAX} questions")
        question = WholeQuestion(sides)
        neighbour.questions.append(question)
        return question.reply

    def work(self) -> None:
        """Answer what can be answered by now."""
        if self.is_waiting():
            return
        for neighbour in self._known.in_tree:
            sides = mirrored(self._places.sides(neighbour.node))
            for question in list(neighbour.questions):
                if question.sides == sides and self._have_answered(neighbour, question):
                    neighbour.questions.remove(question)
                    reply = question.reply
                    neighbour.announcer.barrier().then(reply.resolve, reply.fail)

    def _have_answered(self, neighbour: Neighbour, question: WholeQuestion) -> bool:
        """Whether all others have answered what a neighbour asks, or can't; those not asked yet are."""
        others = [one for one in self._known.in_tree if one is not neighbour]
        waiting = [one for one in others if not (one.is_whole or question.lent.get(one.node))]
        lost = [one for one in waiting if self._topology.is_lost(one.node)]
        if len(lost) == len(waiting) and neighbour.announcer.state != "down":
            for one in lost:
                if one.node not in question.lent:
                    question.lent[one.node] = False
                    self._lend(one, neighbour, partial(self._lent, question, one.node))
            return not lost
        for one in waiting:
            if one not in lost and one.is_up and one.asking is None:
                self._pass_on(one)
        return False

    def _lent(self, question: WholeQuestion, node: str) -> None:
        """A neighbour that can't answer has got what the one that asks wants: look at the question again.

        If it can by now, it may not have got all, and is asked.
        """

        def note() -> None:
            if self._topology.is_lost(node):
                question.lent[node] = True
            else:
                del question.lent[node]

        self._later(0.0, note)

    def _pass_on(self, other: Neighbour) -> None:
        """Ask another neighbour the same; again a little later, if it does not answer."""
        sides, asking = self._places.sides(other.node), object()
        if sides is None:
            return
        other.asking = asking

        def end(is_whole: bool) -> None:
            if other.asking is asking:  # else its link, or the sides of that, were others meanwhile
                other.asking, other.is_whole = None, is_whole

        self._question(other, sides).then(
            lambda _none: end(is_whole=True), lambda _error: self._later(ASK_AGAIN_S, partial(end, False))
        )
