"""Counterpart of examples/work_queue.py: aio-pika 10.2.1 with RabbitMQ 3.10.8 and a quorum queue.

python benchmarks/counterparts/work_queue.py amqp://guest:guest@127.0.0.1:5672/
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue


async def declare(channel: AbstractChannel) -> tuple[AbstractQueue, AbstractQueue]:
    """Declare the queues of jobs, with a limit of five deliveries, of results, and of dead letters."""
    await channel.declare_queue("dead", durable=True)
    limits = {"x-queue-type": "quorum", "x-delivery-limit": 4}
    limits |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    doors = await channel.declare_queue("doors", durable=True, arguments=limits)
    return doors, await channel.declare_queue("painted", durable=True)


async def put(channel: AbstractChannel, queue: str, **job: object) -> None:
    """Put a job that the server stores, and wait for its confirm."""
    message = aio_pika.Message(json.dumps(job).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, queue)


async def work(url: str) -> None:
    """A worker: four doors side by side, retries, dead letters, and a graceful stop on SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=4)
        doors, _ = await declare(channel)
        running = set()

        async def paint(message: AbstractIncomingMessage) -> None:
            job = json.loads(message.body)
            if job["color"] == "plaid":
                raise ValueError("there is no such paint")
            if job["color"] == "red" and not message.redelivered:
                await put(channel, "painted", type="stuck", pid=os.getpid())
                await asyncio.Event().wait()  # until it is killed
            await put(channel, "painted", type="painted", door=job["door"], again=message.redelivered)

        async def handle(message: AbstractIncomingMessage) -> None:
            running.add(asyncio.current_task())
            try:
                await paint(message)
            except ValueError:
                logging.exception("message rejected")
                await message.reject()
            except Exception:
                logging.exception("message released")
                await asyncio.sleep(1)
                await message.nack()
            else:
                await message.ack()
            finally:
                running.discard(asyncio.current_task())

        tag = await doors.consume(handle)
        await stop.wait()
        await doors.cancel(tag)
        if running:
            await asyncio.wait(running, timeout=30)


# -- demonstration


async def main(url: str) -> None:
    """Have six doors painted by two workers, and kill the one that is stuck with the red one."""
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        _, painted = await declare(channel)
        for door, color in enumerate(("blue", "red", "plaid", "green", "white", "black"), 1):
            await put(channel, "doors", door=door, color=color)
        program = (sys.executable, __file__, "--worker", url)
        workers = [await asyncio.create_subprocess_exec(*program) for _ in range(2)]

        done: dict[int, bool] = {}  # a door that was painted just before the kill may be painted again
        async with painted.iterator(no_ack=True) as results:
            async for message in results:
                result = json.loads(message.body)
                if result["type"] == "stuck":
                    os.kill(result["pid"], signal.SIGKILL)
                    continue
                done[result["door"]] = result["again"]
                if len(done) == 5:
                    break
        print("painted:", *sorted(done))
        print("red was begun before:", done[2])
        letter = await (await channel.get_queue("dead")).get(no_ack=True)
        print("dead letter:", letter.headers["x-death"][0]["reason"])

        for worker in workers:
            if worker.returncode is None:
                worker.terminate()
        print("exit codes:", *sorted([await worker.wait() for worker in workers]))
        for queue in ("doors", "painted", "dead"):
            await channel.queue_delete(queue)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        logging.disable()  # the plaid door is logged as an error
        asyncio.run(work(sys.argv[2]))
    else:
        asyncio.run(main(sys.argv[1]))
