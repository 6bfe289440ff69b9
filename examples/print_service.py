"""A print service: a device finds a printer by its paper, leaves a job, and gets the answer when it is there.

    python examples/print_service.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings.client import Bus, Queue


async def serve(bus: Bus, printer: Queue) -> None:
    """Print what comes, one job after the other, and tell whoever wants to know."""
    async for job in printer.messages():
        await bus.reply(job, "print.done", pages=job["pages"], printer=printer.name)


async def print_pages(bus: Bus, paper: str, pages: int) -> str:
    """Print on this paper, on whatever printer has it: the device knows none by name."""
    found = await bus.lookup(properties={"paper": paper})
    if not found:
        return f"no printer has {paper}"
    printer = await bus.queue(found[0].name)
    answers = await bus.create_queue(persistent=False)  # has no name but its id
    await printer.put("print.job", pages=pages, reply_to=answers.name)
    # Here the device may go away, and ask for the answer when it is back.
    answer = await answers.get(timeout_s=5)
    await bus.delete_queue(answers.name)
    return f"{answer['pages']} pages of {paper} from {answer['printer']}"


async def main(address: str | None = None) -> None:
    """Run two printers, and print on three kinds of paper."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:
        printers = [
            await bus.create_queue("printer.hall", text="the fast one", properties={"paper": "A4"}),
            await bus.create_queue("printer.attic", properties={"paper": "A3", "colour": True}),
        ]
        services = [asyncio.create_task(serve(bus, printer)) for printer in printers]
        for paper, pages in (("A4", 12), ("A3", 2), ("A2", 1)):
            print(await print_pages(bus, paper, pages))
        for service, printer in zip(services, printers, strict=True):
            service.cancel()
            await bus.delete_queue(printer.name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
