"""Counterpart of examples/thread_pool.py: aio-pika 10.2.1 (its pattern JsonRPC) with RabbitMQ 3.10.8.

    python benchmarks/counterparts/thread_pool.py amqp://guest:guest@127.0.0.1:5672/

aio-pika has coroutines only, so the program runs an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.patterns import JsonRPC

loop = asyncio.new_event_loop()


def wait(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the thread of the loop, and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)


async def connect(url: str) -> tuple[AbstractConnection, JsonRPC]:
    """Connect, for three requests at a time."""
    connection = await aio_pika.connect_robust(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=3)
    return connection, await JsonRPC.create(channel)


def main(url: str) -> None:
    """Square numbers in three threads for eight that ask."""
    threading.Thread(target=loop.run_forever, daemon=True).start()
    connection, rpc = wait(connect(url))
    with ThreadPoolExecutor(3) as workers, ThreadPoolExecutor(8) as pool:
        threads = set()

        def square(number: int) -> int:
            threads.add(threading.current_thread())
            return number**2  # blocks this thread and no other

        async def handle(*, number: int) -> int:
            return await loop.run_in_executor(workers, square, number)

        def ask(number: int) -> int:
            return int(wait(rpc.call("numbers", {"number": number})))

        wait(rpc.register("numbers", handle, durable=True))
        print(*pool.map(ask, range(8)))
        print("in three threads:", len(threads) <= 3)
        wait(rpc.unregister(handle))
        wait(rpc.channel.queue_delete("numbers"))
    wait(connection.close())
    loop.call_soon_threadsafe(loop.stop)


# -- demonstration


if __name__ == "__main__":
    main(sys.argv[1])
