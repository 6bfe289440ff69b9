"""The command line: `tidings COMMAND`.

Only `main` is here, so that the command can say what is missing where the `node` extra is not installed, and
the check of its output, below everything that prints, so that no command needs its own.

A reader that is gone (`tidings subscribe | head -1`) ends the command with the exit code that a shell gives
for SIGPIPE, and without a message. A full disk (`> /dev/full`) ends it with a message and the exit code of
every other error.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from tidings.errors import MissingExtra, TidingsError

PARTS = ("typer", "rich")
CLOSED = 141
"""Exit code when the reader of the output is gone: 128 and the number of SIGPIPE."""
FAILED = 2


def main() -> None:
    """Run the command that the process was started with, and exit."""
    try:
        from tidings.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        sys.exit(f"tidings: {MissingExtra('the command line', 'node')}")
    with checked_output():
        _warn_of_variables()
        try:
            app()
        except TidingsError as error:
            sys.stderr.write(f"tidings: {error}\n")
            sys.exit(2)


def _warn_of_variables() -> None:
    """Print which variables are probably misspelt: they would be passed over."""
    from tidings.node.variables import new_hints

    for hint in new_hints(os.environ):
        sys.stderr.write(f"tidings: {hint}\n")


# Output


class OutputFailed(Exception):
    """The output can't be written. It is no OSError, which a command could take for one of its own files."""

    def __init__(self, stream: str, cause: OSError) -> None:
        super().__init__(f"standard {stream}: {cause.strerror}")
        self.exit_code = CLOSED if isinstance(cause, BrokenPipeError) else FAILED


class _File(io.FileIO):
    """A file that raises OutputFailed once, and discards everything after that."""

    def __init__(self, descriptor: int, stream: str) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._stream = stream
        self._has_failed = False

    def write(self, data: Any, /) -> int:
        """Write some bytes; how many."""
        if self._has_failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._has_failed = True
            raise OutputFailed(self._stream, error) from None


@contextmanager
def checked_output() -> Iterator[None]:
    """Exit with a documented code if standard output or standard error can't be written in the block."""
    plain = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _checked(sys.stdout, "output"), _checked(sys.stderr, "error")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except OutputFailed as failed:
        if failed.exit_code != CLOSED:
            sys.stderr.write(f"tidings: {failed}\n")
        sys.exit(failed.exit_code)
    finally:
        sys.stdout, sys.stderr = plain


def _checked(stream: TextIO | None, name: str) -> TextIO:
    """Return the stream, checked if it goes to a file or a program; a closed one discards everything."""
    if stream is None:
        return Path(os.devnull).open("w")
    if stream.isatty():
        return stream
    try:
        raw = _File(stream.fileno(), name)
    except io.UnsupportedOperation:  # a stream in memory
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=name == "error",
    )
