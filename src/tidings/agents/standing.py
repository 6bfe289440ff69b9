"""Standing for home: how one of the nodes that keep a group asks the others, and what it is granted.

It asks first whether they would grant it. Only if more than half would, it grants the next generation to
itself, stores that, and asks for it: an attempt that fails would make the home that lives step back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from tidings.agents.kept_tree import HomeVote, KeepGroups, KeptTree, StandForHome
from tidings.errors import AgentError, CodecError
from tidings.peers.peer_client import AWAY_S, PeerClient
from tidings.protocol.broker import Broker
from tidings.replies import Deferred, gathered

Answer = TypeVar("Answer")


class Standing:
    """The trees for which this node stands.

    `elected` is called with each of which it is to be the home, `hear_of` with one that has another home.
    """

    def __init__(
        self,
        broker: Broker,
        relay: Callable[[KeptTree, str], PeerClient | None],
        store: Callable[[KeptTree], None],
        elected: Callable[[KeptTree], None],
        hear_of: Callable[[KeptTree, str], None],
    ) -> None:
        self._broker = broker
        self._relay = relay
        self._store = store
        self._elected = elected
        self._hear_of = hear_of
        self._under_way: dict[str, Deferred[None]] = {}
        self._flying: deque[tuple[int, Deferred[None]]] = deque()

    def stand(self, tree: KeptTree) -> Deferred[None]:
        """Ask the others to be the home; AgentError, with the home that lives, if they do not grant it."""
        if tree.tree in self._under_way:
            return self._under_way[tree.tree]
        probed = self._ask_votes(tree, True)
        voted = probed.chain(lambda _none: self._ask_votes(tree, False))
        stood = voted.map(lambda _none: self._elected(tree))

        def over(_outcome: object) -> None:
            self._under_way.pop(tree.tree, None)

        self._under_way[tree.tree] = stood
        stood.then(over, over)
        return stood

    def _ask_votes(self, tree: KeptTree, is_probe: bool) -> Deferred[None]:
        request = tree.standing(is_probe)
        relays = [relay for one in tree.others if (relay := self._relay(tree, one)) is not None]

        def ask(_none: None) -> Deferred[list[Any]]:
            return gathered([relay.ask("agent.vote", built(request), AWAY_S) for relay in relays])

        def counted(replies: list[Any]) -> None:
            votes = [read_answer(reply, HomeVote) for reply in replies]
            highest = max([tree.record.promised, *(one.generation for one in votes)])
            is_late = tree.is_home or tree.record.promised > request.generation
            tree.record.promised = highest if is_probe else tree.record.promised
            if is_late or not tree.is_majority(1 + sum(one.granted for one in votes)):
                self._refused(tree, next((one.home for one in votes if one.home), ""))

        if is_probe:
            return ask(None).map(counted)
        self._store(tree)
        kept: Deferred[None] = Deferred()  # its own vote is on disk before others can count on it
        self._flying.append((self._broker.promise, kept))
        return kept.chain(ask).map(counted)

    def _refused(self, tree: KeptTree, home: str) -> NoReturn:
        if not home:
            raise AgentError(tree.tree, "too few of the nodes that keep it agree to that")
        if home not in (self._broker.node, tree.record.home):
            self._hear_of(tree, home)
        raise AgentError(tree.tree, f"its home lives: {tree.record.voters.get(home, home)}")

    def durable(self, mark: int) -> None:
        """Go on with what waited for the disk."""
        while self._flying and self._flying[0][0] <= mark:
            self._flying.popleft()[1].resolve(None)


def built(message: KeepGroups | StandForHome) -> Any:
    """Return a message as the arguments of a request."""
    return msgspec.to_builtins(message, builtin_types=(bytes,))


def read_answer(reply: object, kind: type[Answer]) -> Answer:
    """Return what another node has answered; CodecError if it is no such thing."""
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as error:
        raise CodecError("$.agent", str(error)) from None
