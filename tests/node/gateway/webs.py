"""For tests: a node, a gateway and its web port in this process, and clients that speak HTTP plainly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

from node.peers import ANSWER_S_MAX, running

from tidings.node.gateway.config import GatewayConfig
from tidings.node.gateway.driver import Server
from tidings.node.gateway.web import Web


class Answered:
    """One response."""

    def __init__(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.status, self.fields, self.body = status, fields, body

    @property
    def said(self) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = json.loads(self.body)
        return said

    @property
    def token(self) -> dict[str, str]:
        """The field that says who it is that was answered."""
        return {"Sensing-Token": self.fields["sensing-token"]}


class Client:
    """A connection that carries requests one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader, self.writer, self.host = reader, writer, host

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, method: str, path: str, body: bytes = b"", **fields: str) -> None:
        """Send a request; fields in small letters with underscores, `host=""` for none."""
        told = {"host": self.host, **fields}
        if body:
            told.setdefault("content_length", str(len(body)))
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in told.items() if value]
        self.writer.write("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body)

    async def answer(self) -> Answered:
        async with asyncio.timeout(ANSWER_S_MAX):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            fields = {
                name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines if one)
            }
            body = await self.reader.readexactly(int(fields.get("content-length", "0")))
        return Answered(int(first.split()[1]), fields, body)

    async def request(self, method: str, path: str, body: bytes = b"", **fields: str) -> Answered:
        self.ask(method, path, body, **fields)
        return await self.answer()

    async def post(self, *messages: Any, **fields: str) -> Answered:
        body = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages)
        return await self.request("POST", "/sensors", body, **fields)

    async def end(self) -> bytes:
        """All that still comes, until the connection is closed."""
        return await asyncio.wait_for(self.reader.read(), ANSWER_S_MAX)


@contextlib.asynccontextmanager
async def client_at(address: str, context: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    """A connection to the port that an address names."""
    host = address.split("/")[2]
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port), ssl=context)
    try:
        yield Client(reader, writer, host)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


class Rig:
    """A node and a gateway with a web port."""

    def __init__(self, node: str, server: Server, web: Web, address: str) -> None:
        self.node, self.server, self.web, self.address = node, server, web, address
        self.host = address.split("/")[2]

    def client(self, context: ssl.SSLContext | None = None) -> contextlib.AbstractAsyncContextManager[Client]:
        return client_at(self.address, context)


@contextlib.asynccontextmanager
async def web_rig(
    origins: frozenset[str] = frozenset(), connections_max: int = 100, **settings: Any
) -> AsyncIterator[Rig]:
    async with running() as node:
        server = Server(GatewayConfig(node=node.addresses[0], port=0, **settings))
        await server.start()
        web = Web(server.hub, origins, connections_max=connections_max)
        guard = server._guard
        context = None if guard is None else guard.open(lambda: connections_max, lambda: None)
        try:
            yield Rig(node.addresses[0], server, web, await web.serve("127.0.0.1", 0, context))
        finally:
            web.close()
            await server.close()
