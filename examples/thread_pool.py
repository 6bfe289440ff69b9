"""A thread pool: threads share one bus without await, and a worker of three threads does what they ask for.

    python examples/thread_pool.py [ADDRESS]

Without an address a node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import tidings


def main(address: str | None = None) -> None:
    """Square numbers in three threads for eight that ask."""
    node = tidings.blocking.connect(address) if address else tidings.blocking.open()
    with node as bus, ThreadPoolExecutor(8) as pool:
        numbers = bus.create_queue("numbers")
        threads = set()

        def square(job: tidings.blocking.Message) -> None:
            threads.add(threading.current_thread())
            bus.reply(job, "square", value=job["number"] ** 2)  # blocks this thread and no other

        def ask(number: int) -> int:
            return int(numbers.request("number", number=number, timeout_s=60)["value"])

        asked = pool.map(ask, range(8))
        numbers.work(square, concurrency=3, count=8)
        print(*asked)
        print("in three threads:", len(threads) <= 3)
        bus.delete_queue("numbers")


# -- demonstration


if __name__ == "__main__":
    main(*sys.argv[1:2])
