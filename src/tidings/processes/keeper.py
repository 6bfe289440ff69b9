"""The keeper: a small program between ours and a command, which ends all that the command has started.

It is run by its path, in a Python of its own without packages, so it imports nothing but the standard
library. On Linux it is a *subreaper*: a process whose parent has gone becomes a child of the keeper instead
of one of init, whatever group or session it has moved to. So none gets away by forking twice, and when the
keeper has no child left, all of them have ended.

    SIGTERM to the command, then to all that it has left behind, and after the grace SIGKILL to everything

It does that when its parent asks (`end SECONDS` on the pipe of its first argument), when that pipe is closed
because the parent is gone, however that has ended, and when the command has ended and has left processes that
do not end by themselves within the linger time. It reports on the pipe of its second argument: `code N` when
the command has ended, `gone N` when all has, of which N were killed, and `limit WORDS` when they have used
more memory, processes or time than they may. That is looked at ten times a second; a limit of memory holds
for each process at once, too, as the system refuses it more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from math import inf

GRACE_S = 20.0
"""Grace where nobody has said another: the parent is gone, or the command has left processes behind."""
LOOK_S = 0.02
"""How often processes are looked for that have to be killed."""
WATCH_S = 0.1
"""How often it is looked at how much they use, if there are limits."""
PASSES_MAX = 100
"""How often processes are stopped that go on forking, before those that are known are killed."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_RUN = 127
"""Exit code of a command that can't be run, as shells have it."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; other systems than Linux have none."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Return the processes below one, as `/proc` shows them: parents before children, none that has ended."""
    children: dict[int, list[int]] = {}
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # as below
    except OSError:
        return []
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123  # pathlib takes long to import
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        children.setdefault(int(parent), []).append(-int(number) if state in b"ZX" else int(number))
    found, line = [], [root]
    while line:
        below = children.get(line.pop(), [])
        found += [one for one in below if one > 0]
        line += [abs(one) for one in below]
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes, of which some may have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


class ProcessLimits:
    """What the command and all that it has started may use together."""

    def __init__(self, text: str) -> None:
        memory, processes, seconds = (text + ",,").split(",")[:3]
        self.memory = int(memory) if memory else None
        self.processes = int(processes) if processes else None
        self.seconds = float(seconds) if seconds else None

    @property
    def are_watched(self) -> bool:
        """Whether it is to be looked at what they use."""
        return self.memory is not None or self.processes is not None

    def restrict(self) -> None:
        """In the command, before it is run: have the system refuse more memory to each process."""
        if self.memory is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (self.memory, self.memory))

    def passed(self, pids: list[int]) -> str:
        """Which limit these processes are past; empty if none."""
        if self.processes is not None and len(pids) > self.processes:
            return f"more than {self.processes} processes"
        if self.memory is not None and sum(resident(pid) for pid in pids) > self.memory:
            return f"more than {self.memory / 1e6:g} MB of memory"
        return ""


def resident(pid: int) -> int:
    """Return how much memory a process has, in bytes."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123  # as above
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # it has ended meanwhile
        return 0


class Keeper:
    """Runs a command, and ends it with all its descendants."""

    def __init__(self, control: int, status: int, linger_s: float, limits: str = "") -> None:
        self._limits = ProcessLimits(limits)
        self._look_at = self._over_at = inf  # when it is to be looked at what they use, and when they end
        self._control: int | None = control
        self._status = status
        self._linger_s = linger_s
        self._command = 0
        self._has_ended = False  # the command itself
        self._is_ending = False
        self._has_termed = False  # what the command has left behind
        self._linger_until = self._kill_at = inf
        self._grace_s = GRACE_S
        self._killed: set[int] = set()

    def run(self, command: list[str]) -> None:
        """Run the command until nothing of it is left."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        wake, waker = os.pipe()
        for one in (wake, waker):
            os.set_blocking(one, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._command = self._fork(command)
        if self._limits.seconds is not None:
            self._over_at = time.monotonic() + self._limits.seconds
        if self._limits.are_watched:
            self._look_at = time.monotonic() + WATCH_S
        signal.signal(signal.SIGTERM, lambda *_: self._end(GRACE_S))
        self._let_go()
        while self._reap():
            self._act(time.monotonic())
            self._wait(wake)
        self._say(f"gone {len(self._killed)}")

    def _fork(self, command: list[str]) -> int:
        keeper, pid = os.getpid(), os.fork()
        if pid == 0:
            try:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                for one in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD):  # Python sets these otherwise
                    signal.signal(one, signal.SIG_DFL)
                self._limits.restrict()
                if os.getppid() == keeper:
                    os.execvp(command[0], command)
            except OSError as error:
                print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
            finally:
                os._exit(CANNOT_RUN)
        return pid

    def _let_go(self) -> None:
        """Hold none of the command's files, whose readers wait for their end."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for one in (0, 1, 2):
            os.dup2(nothing, one)

    def _wait(self, wake: int) -> None:
        """Wait for a signal, a word of the parent or the next moment."""
        until = min(self._kill_at, self._linger_until, self._look_at, self._over_at)
        if until <= time.monotonic():  # all are being killed
            until = time.monotonic() + LOOK_S
        files = [wake] if self._control is None else [wake, self._control]
        left_s = None if until == inf else max(0.0, until - time.monotonic())
        ready, _, _ = select.select(files, [], [], left_s)
        if wake in ready:
            os.read(wake, 1 << 10)
        if self._control is not None and self._control in ready:
            self._hear(os.read(self._control, 1 << 10), self._control)

    def _hear(self, said: bytes, control: int) -> None:
        if not said:
            os.close(control)
            self._control = None
            self._end(GRACE_S)
            return
        for line in said.split(b"\n"):
            if line.startswith(b"end "):
                self._end(float(line[4:]))

    def _end(self, grace_s: float) -> None:
        """Begin to end everything, or end it sooner than was said before."""
        if not self._is_ending and not self._has_ended:
            send([self._command], signal.SIGTERM)
        self._is_ending = True
        self._grace_s = grace_s
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _reap(self) -> bool:
        """Take the exit codes of all that has ended; whether anything is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._command:
                    self._has_ended = True
                    self._linger_until = time.monotonic() + self._linger_s
                    self._say(f"code {os.waitstatus_to_exitcode(status)}")
        except ChildProcessError:
            return False

    def _act(self, now: float) -> None:
        """Do what is due: end what lingers, terminate what is left, kill what remains."""
        if self._linger_until <= now and not self._is_ending:
            self._end(self._grace_s)
        if self._has_ended:
            if self._is_ending and not self._has_termed:
                self._has_termed = True
                send(descendants(os.getpid()), signal.SIGTERM)
            self._linger_until = inf if self._is_ending else self._linger_until
        self._watch(now)
        if self._kill_at <= now:
            self._kill()

    def _watch(self, now: float) -> None:
        """End everything at once that is past its limits."""
        if now < min(self._look_at, self._over_at):
            return
        problem = f"more than {self._limits.seconds:g} s" if now >= self._over_at else ""
        if now >= self._look_at:
            self._look_at = now + WATCH_S
            problem = problem or self._limits.passed(descendants(os.getpid()))
        if problem:
            self._look_at = self._over_at = inf
            self._say(f"limit {problem}")
            self._is_ending, self._kill_at = True, now

    def _kill(self) -> None:
        """Kill everything; stopped first, as one that forks without end would outrun its killer."""
        stopped: set[int] = set()
        for _ in range(PASSES_MAX):
            fresh = [pid for pid in descendants(os.getpid()) if pid not in stopped]
            if not fresh:
                break
            send(fresh, signal.SIGSTOP)
            stopped.update(fresh)
        send(list(stopped), signal.SIGKILL)
        self._killed |= stopped

    def _say(self, line: str) -> None:
        try:
            os.write(self._status, line.encode() + b"\n")
        except OSError:  # the parent is gone
            return


def main(arguments: list[str]) -> None:
    """Run the command behind the pipes and the linger time."""
    control, status, linger_s, limits, *command = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the parent says when it is time
    for one in (int(control), int(status)):
        os.set_inheritable(one, False)
    Keeper(int(control), int(status), float(linger_s), limits).run(command)


if __name__ == "__main__":
    main(sys.argv[1:])
