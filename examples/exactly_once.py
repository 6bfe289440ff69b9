"""Exactly-once transfer: an order leaves one queue and its booking enters another, both or neither.

    python examples/exactly_once.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import sys

import tidings
from tidings import Event
from tidings.client import Bus, Queue


class PowerCut(Exception):
    """What interrupts every second transfer."""


async def transfer(bus: Bus, orders: Queue, bookings: Queue, is_cut: bool) -> None:
    """Book an order; after a cut anywhere in the block nothing has happened."""
    async with bus.transaction() as tx:
        order = await orders.get(transaction=tx)
        await bookings.put("booking", order=order["number"], amount=order["amount"], transaction=tx)
        if is_cut:
            raise PowerCut


async def main(address: str | None = None) -> None:
    """Transfer five orders with five cuts, and count what has arrived."""
    node = tidings.connect(address) if address else tidings.open()
    async with node as bus:
        orders, bookings = await bus.create_queue("orders"), await bus.create_queue("bookings")
        await orders.put_all(Event("order", number=number, amount=10 * number) for number in range(1, 6))
        cuts = 0
        for attempt in range(10):
            try:
                await transfer(bus, orders, bookings, is_cut=attempt % 2 == 0)
            except PowerCut:
                cuts += 1
        booked = await bookings.get_all()
        print(f"{cuts} cuts, {len(booked)} bookings:", *(booking["amount"] for booking in booked))
        print("orders left:", len(await orders.get_all()))
        await bus.delete_queue("orders")
        await bus.delete_queue("bookings")


# -- demonstration


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
