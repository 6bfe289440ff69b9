"""How the process of a stream's reader learns that its query has ended, and what that means for its readers.

Spark runs the reader in a child process of the driver's, and says in no words that a query has ended:

| what happens | what the process sees | its readers |
| --- | --- | --- |
| the query is stopped, or fails in Spark | SIGTERM; perhaps the end of the connection before | leave |
| the driver dies | the end of the connection, and another parent | stay until their lease ends |
| a call of the reader fails | that error | stay until their lease ends |

A query that is stopped while Spark waits for an answer closes the connection at once, and SIGTERM comes
later; a driver that dies closes it a moment before its children get another parent. So at the end of the
connection the process waits for one of the two.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final

from tidings.errors import TidingsError

VERDICT_S_MAX: Final = 30.0
"""How long SIGTERM or the death of the driver is waited for; if there is neither, the query is over."""
LOOK_S: Final = 0.02


class Ending:
    """What is known of the end of the query in this process."""

    def __init__(self) -> None:
        self._driver = os.getppid()
        self._is_told = False
        self._is_ending = False

    def watch(self) -> None:
        """Have SIGTERM end this process by an exception, unless somebody else has a use for it.

        Spark ends the process with that signal, and lets it clean up only if it is not ended by it on the
        spot: `stop` would never be called.
        """
        self._driver, self._is_told, self._is_ending = os.getppid(), False, False
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._tell)

    @property
    def is_told(self) -> bool:
        """Whether Spark has ended the query."""
        return self._is_told

    def _tell(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self._is_told = not self._is_told, True
        if is_first and not self._is_ending:  # else it would disturb the cleaning up
            self._is_ending = True
            sys.exit(0)

    def wait_verdict(self, error: BaseException | None) -> bool:
        """Whether the query is over, by the error that ends the work of this process; None is no error.

        Waits where that is not known yet. From now on SIGTERM raises nothing.
        """
        self._is_ending = True
        if error is None or isinstance(error, SystemExit):
            return True
        is_cut = isinstance(error, EOFError | OSError | KeyboardInterrupt)
        if not is_cut or isinstance(error, TidingsError):
            return self._is_told
        deadline = time.monotonic() + VERDICT_S_MAX
        while not (self._is_told or self._is_orphan) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self._is_told or not self._is_orphan

    @property
    def _is_orphan(self) -> bool:
        return os.getppid() != self._driver


ENDING: Final = Ending()
"""That of this process, which has the reader of one query."""
