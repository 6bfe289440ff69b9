"""What commands have in common that speak to a gateway as sensors do: where it is, and their progress.

A token is in a file, never an argument, which all others on the machine could see.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tidings.sensors.link import Place

DEFAULT = "127.0.0.1:4242"
_PANEL = "With TLS"

Gateway = Annotated[
    str, typer.Option(envvar="TIDINGS_GATEWAY", metavar="HOST:PORT", help="The gateway; the port is 4242.")
]
Udp = Annotated[bool, typer.Option("--udp", help="Speak in datagrams.")]
Tls = Annotated[bool, typer.Option("--tls", help="Speak TLS.", rich_help_panel=_PANEL)]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Whom to trust; speaks TLS.", rich_help_panel=_PANEL),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A token that says who this is.",
        rich_help_panel=_PANEL,
    ),
]
OnlyAsked = Annotated[bool, typer.Option("--only-asked", help="Leave out what nobody has subscribed to.")]


def gateway_place(gateway: str, udp: bool, tls: bool, ca: Path | None, token_file: Path | None) -> Place:
    """The gateway that the options say; an error says what can't be."""
    from tidings.sensors.link import place_of

    return place_of(gateway, udp=udp, tls=tls, ca=ca, token=token_file)


def run_quickly(work: Coroutine[Any, Any, Any]) -> bool:
    """Do the work of a command on the fastest loop there is; False if it was ended with Ctrl-C."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(work)
        except KeyboardInterrupt:
            return False
    return True


@contextlib.contextmanager
def progress_line(shown: bool) -> Iterator[Callable[[str], None]]:
    """Shows one line that changes where there is a terminal, and else line after line, on standard error."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    if not shown:
        yield lambda _: None
    elif not console.is_terminal:
        yield lambda line: typer.echo(line, err=True)
    else:
        with Live("", console=console, auto_refresh=False, transient=True) as live:
            yield lambda line: live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
