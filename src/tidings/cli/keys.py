"""Keys that are pressed while a command shows a live screen."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

READ_SIZE = 64


@contextmanager
def key_pressed(keys: str, terminal: TextIO | None = None) -> Iterator[asyncio.Event]:
    """An event that is set when one of the keys is pressed, or when the terminal is gone.

    The terminal is standard input unless one is given. Without a terminal, and on Windows, it is never set.
    """
    pressed, stream = asyncio.Event(), terminal or sys.stdin
    if sys.platform == "win32" or stream is None or not stream.isatty():
        yield pressed
        return
    with _unbuffered(stream.fileno()) as descriptor:
        loop = asyncio.get_running_loop()

        def read() -> None:
            data = _read(descriptor)
            if not data or any(key.encode() in data for key in keys):
                loop.remove_reader(descriptor)
                pressed.set()

        loop.add_reader(descriptor, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_SIZE)
    except OSError:  # Linux reports EIO when the other end of a terminal is closed
        return b""


@contextmanager
def _unbuffered(descriptor: int) -> Iterator[int]:
    """Have the terminal pass on each key at once and not show it; Ctrl-C goes on to interrupt."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSADRAIN)
    try:
        yield descriptor
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
