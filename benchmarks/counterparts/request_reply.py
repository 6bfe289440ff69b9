"""Counterpart of examples/request_reply.py: nats-py 2.16.0 (its package micro) with nats-server 2.9.10.

python benchmarks/counterparts/request_reply.py nats://127.0.0.1:4222
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.micro.request import ERROR_HEADER, Request


class RequestFailed(Exception):
    """The service has replied with an error."""


async def divide(request: Request) -> None:
    """Answer a request; an error is sent to the requester."""
    asked = json.loads(request.data)
    await request.respond(json.dumps({"value": asked["a"] / asked["b"]}).encode())


async def ask(connection: Client, subject: str, timeout_s: float, **values: object) -> Any:
    """Return the answer of a service, or raise the error that it replied with."""
    reply = await connection.request(subject, json.dumps(values).encode(), timeout=timeout_s)
    if reply.headers and ERROR_HEADER in reply.headers:
        raise RequestFailed(reply.headers[ERROR_HEADER])
    return json.loads(reply.data)


async def main(url: str) -> None:
    """Ask a service, ask it what it can't answer, then ask one that is not there."""
    connection = await nats.connect(url, max_reconnect_attempts=-1)
    try:
        service = await nats.micro.add_service(connection, name="division", version="1.0.0")
        await service.add_endpoint(name="div", handler=divide)
        answer = await ask(connection, "div", a=84, b=2, timeout_s=5)
        print("84 / 2 =", answer["value"])
        try:
            await ask(connection, "div", a=1, b=0, timeout_s=5)
        except RequestFailed as error:
            print(error)
        try:
            await ask(connection, "mul", a=1, b=1, timeout_s=0.1)
        except NoRespondersError as error:
            print(error)
    finally:
        await connection.drain()  # a request that is being answered would be answered still


# -- demonstration


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
