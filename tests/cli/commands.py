"""Commands in this process, as `tidings.cli.main` runs them."""

from __future__ import annotations

from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.errors import TidingsError


def run_command(
    *arguments: str, lines: str = "", environment: dict[str, str | None] | None = None
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    result = CliRunner(env={"COLUMNS": "200", **(environment or {})}).invoke(app, arguments, input=lines)
    if isinstance(result.exception, TidingsError):  # which `main` would print
        return 2, result.stdout, f"{result.stderr}tidings: {result.exception}\n"
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr
