"""A web application: browsers get readings as server-sent events, and post them.

    python examples/server_sent_events.py [ADDRESS]
    TIDINGS_NODE=ADDRESS uvicorn --app-dir examples server_sent_events:app

The first command asks the application as a browser would, and ends. It needs starlette. Without an address a
node is started in this process, and ends with it.
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import tidings


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """One bus for the whole application."""
    address = os.environ.get("TIDINGS_NODE")
    async with tidings.connect(address) if address else tidings.open() as bus:
        yield {"bus": bus}


async def listen(request: Request) -> Response:
    """Send each reading that exceeds the limit, until the browser goes away."""

    async def lines() -> AsyncIterator[str]:
        async with request.state.bus.subscribe(f"type = 'air' AND value > {float(limit)}") as events:
            yield ": listening\n\n"
            async for event in events:
                yield f"data: {json.dumps(dict(event.attributes))}\n\n"

    limit = request.query_params.get("limit", "0")
    return StreamingResponse(lines(), media_type="text/event-stream")


async def publish(request: Request) -> Response:
    """Publish the reading that a browser posts."""
    await request.state.bus.publish("air", await request.json())
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
    if sys.argv[1:]:
        os.environ["TIDINGS_NODE"] = sys.argv[1]
    asyncio.run(main())
