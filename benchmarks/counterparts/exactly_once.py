"""Counterpart of examples/exactly_once.py: nats-py 2.16.0 with nats-server 2.9.10 and JetStream.

    nats-server -js
    python benchmarks/counterparts/exactly_once.py nats://127.0.0.1:4222

The stream of bookings takes one message per subject and refuses a second one, at any time; deduplication by
`Nats-Msg-Id` would forget a booking after two minutes by default.
"""

from __future__ import annotations

import asyncio
import json
import sys

import nats
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy
from nats.js.errors import APIError

PER_SUBJECT_EXCEEDED = 10077


class PowerCut(Exception):
    """What interrupts every second transfer."""


async def declare(js: JetStreamContext) -> JetStreamContext.PullSubscription:
    """Create a stream of orders, with a consumer, and one of bookings that refuses duplicates."""
    await js.add_stream(name="orders", subjects=["orders"], retention=RetentionPolicy.WORK_QUEUE)
    once = {"discard": DiscardPolicy.NEW, "discard_new_per_subject": True, "max_msgs_per_subject": 1}
    await js.add_stream(name="bookings", subjects=["bookings.*"], **once)
    return await js.pull_subscribe("orders", durable="transfer")


async def transfer(js: JetStreamContext, orders: JetStreamContext.PullSubscription, is_cut: bool) -> None:
    """Book an order; after a cut anywhere in the block the order is delivered again, its booking dropped."""
    [message] = await orders.fetch(1)
    try:
        order = json.loads(message.data)
        booking = json.dumps({"order": order["number"], "amount": order["amount"]}).encode()
        try:
            await js.publish(f"bookings.{order['number']}", booking)
        except APIError as error:
            if error.err_code != PER_SUBJECT_EXCEEDED:
                raise
        if is_cut:
            raise PowerCut
        await message.ack_sync()
    except BaseException:
        await message.nak()
        raise


async def main(url: str) -> None:
    """Transfer five orders with five cuts, and count what has arrived."""
    async with await nats.connect(url, max_reconnect_attempts=-1) as connection:
        js = connection.jetstream()
        orders = await declare(js)
        for number in range(1, 6):
            await js.publish("orders", json.dumps({"number": number, "amount": 10 * number}).encode())
        cuts = 0
        for attempt in range(10):
            try:
                await transfer(js, orders, is_cut=attempt % 2 == 0)
            except PowerCut:
                cuts += 1
        booked = await (await js.pull_subscribe("bookings.*", durable="count")).fetch(10, timeout=1)
        amounts = [json.loads(message.data)["amount"] for message in booked]
        print(f"{cuts} cuts, {len(amounts)} bookings:", *sorted(amounts))
        print("orders left:", (await js.stream_info("orders")).state.messages)
        await js.delete_stream("orders")
        await js.delete_stream("bookings")


# -- demonstration


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
