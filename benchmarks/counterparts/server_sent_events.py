"""Counterpart of examples/server_sent_events.py: nats-py 2.16.0 with nats-server 2.9.10.

    python benchmarks/counterparts/server_sent_events.py nats://127.0.0.1:4222
    NATS_URL=nats://127.0.0.1:4222 uvicorn --app-dir benchmarks/counterparts server_sent_events:app

The first command asks the application as a browser would, and ends. It needs starlette.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """One connection for the whole application."""
    connection = await nats.connect(os.environ["NATS_URL"], max_reconnect_attempts=-1)
    try:
        yield {"nats": connection}
    finally:
        await connection.drain()


async def listen(request: Request) -> Response:
    """Send each reading that exceeds the limit, until the browser goes away."""

    async def lines() -> AsyncIterator[str]:
        readings = await request.state.nats.subscribe("air")
        try:
            await request.state.nats.flush()  # from here on the server knows the subscription
            yield ": listening\n\n"
            async for message in readings.messages:
                match json.loads(message.data):
                    case {"value": int() | float() as value} as reading if value > float(limit):
                        yield f"data: {json.dumps(reading)}\n\n"
        finally:
            await readings.unsubscribe()

    limit = request.query_params.get("limit", "0")
    return StreamingResponse(lines(), media_type="text/event-stream")


async def publish(request: Request) -> Response:
    """Publish the reading that a browser posts."""
    await request.state.nats.publish("air", json.dumps(await request.json()).encode())
    return Response(status_code=204)


routes = [Route("/readings", listen), Route("/readings", publish, methods=["POST"])]
app = Starlette(routes=routes, lifespan=lifespan)


# -- demonstration


class Browser:
    """Asks the application without a network, as a server would for a browser."""

    def __init__(self, state: dict[str, Any], method: str, query: str = "", body: str = "") -> None:
        self._scope: dict[str, Any] = {"type": "http", "method": method, "path": "/readings"}
        self._scope |= {"headers": [], "query_string": query.encode(), "state": state}
        self._unsent: list[dict[str, Any]] = [{"type": "http.request", "body": body.encode()}]
        self._gone = asyncio.Event()
        self.received: asyncio.Queue[str] = asyncio.Queue()

    async def ask(self) -> None:
        """Ask until the answer ends, or `leave` is called."""
        await app(self._scope, self._receive, self._send)

    def leave(self) -> None:
        """Close the page."""
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._unsent:
            return self._unsent.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message.get("body"):
            self.received.put_nowait(message["body"].decode().strip())


async def main() -> None:
    """Open a page that listens, post two readings, and close the page."""
    async with lifespan(app) as state:
        page = Browser(state, "GET", query="limit=40")
        listening = asyncio.create_task(page.ask())
        print(await page.received.get())
        for value in (38.5, 41.2):
            await Browser(state, "POST", body=json.dumps({"value": value, "station": "north"})).ask()
        print(await page.received.get())
        page.leave()
        await listening


if __name__ == "__main__":
    os.environ["NATS_URL"] = sys.argv[1]
    asyncio.run(main())
