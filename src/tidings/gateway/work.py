"""Work: unprocessed input of connections, processed fairly.

Input is processed at once, for as long as its connection has not used up its slice and the turn of the loop
is not over. The rest then waits in line, and the connection is paused: nothing more is read from it until all
its input is processed. So a connection holds no more than was read from it in one go, and one that sends
little is served next, however much others have sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from inspect import GEN_RUNNING, getgeneratorstate

from tidings.gateway.uplink import Log
from tidings.steps import Steps
from tidings.turns import TURN_S, Share, Turns

Act = Callable[[], None]


class WorkClient:
    """Client with work to be done in order."""

    __slots__ = ("share", "steps")

    def __init__(self, share: Share | None = None) -> None:
        self.share = Share() if share is None else share
        self.steps: deque[Steps[None]] = deque()

    def hold(self, is_held: bool) -> None:
        """Called when work has to wait, and whenever all of it is done."""

    def fail(self) -> None:
        """Called when work failed, and all the rest is forgotten."""

    @property
    def is_idle(self) -> bool:
        """Whether all work is done."""
        return not self.steps


class GatewayWork:
    """All work to be done. `soon` calls a function in the next turn of the loop.

    `clock` must advance within a turn, which that of a loop need not do.
    """

    def __init__(self, clock: Callable[[], float], soon: Callable[[Act], object], log: Log) -> None:
        self._log = log
        self._clock = clock
        self._soon = soon
        self._turns: Turns[WorkClient] = Turns(clock, self._work)
        self._ends_at: float | None = None  # the turn, if it has begun: not all that is done is work in line
        self._is_due = False

    @property
    def is_busy(self) -> bool:
        """Whether new work has to wait, because others do or because the turn is over."""
        if self._turns.is_busy:
            return True
        now = self._clock()
        if self._ends_at is None:
            self._ends_at = now + TURN_S
        return now >= self._ends_at

    def do(self, client: WorkClient, steps: Steps[None]) -> None:
        """Run steps, at once if there is time, and after the earlier work of the client."""
        if client.steps or self.is_busy:
            self.queue(client, steps)
            return
        client.steps.append(steps)
        self._turns.offer(client, client.share)
        if client in self._turns:
            self._wait(client)

    def queue(self, client: WorkClient, steps: Steps[None]) -> None:
        """Queue steps for the client's turn."""
        client.steps.append(steps)
        if len(client.steps) == 1:
            self._turns.add(client, client.share)
            self._wait(client)

    def drop(self, client: WorkClient) -> None:
        """Forget the work of a client; called also by one of its own steps."""
        steps, client.steps = client.steps, deque()
        self._turns.discard(client)
        for one in steps:
            if getgeneratorstate(one) != GEN_RUNNING:
                one.close()

    def end_turn(self) -> None:
        """Begin another turn of the loop with the next work."""
        self._ends_at = None
        if not self._turns:
            self._turns.run()

    def finish(self, most_s: float) -> None:
        """Do the rest of the work, for so long at most."""
        self._turns.run(most_s)

    def _wait(self, client: WorkClient) -> None:
        client.hold(True)
        self._run_soon()

    def _run_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._turns.run()
        self._ends_at = None
        if self._turns:
            self._run_soon()

    def _work(self, client: WorkClient, until: float) -> bool:
        """Do work of a client until that moment; return whether some is left."""
        try:
            return self._advance(client, until)
        except Exception as error:  # the one place: one client's error must not end the others' turns
            self._log("error", "what a sensor connection sent could not be dealt with", problem=repr(error))
            self.drop(client)
            client.fail()
            return False

    def _advance(self, client: WorkClient, until: float) -> bool:
        while client.steps:
            steps = client.steps[0]
            for _ in steps:
                if not client.steps:  # it was dropped by this very step
                    steps.close()
                    return False
                if self._clock() >= until:
                    return True
            if client.steps:
                client.steps.popleft()
        client.hold(False)
        return False
