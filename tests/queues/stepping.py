"""Requests that are done step by step, by a test that decides when."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from msgspec import convert

from queues.rig import Client
from tidings import timers
from tidings.matching import search, shelf
from tidings.protocol.service import LATER, IncomingRequest
from tidings.queues import changes, inflight, local, serving, transactions
from tidings.steps import Steps


def make_steps_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(search, "TRIED_FIRST", 1)
    patch.setattr(search, "TRIES_MAX", 2)
    patch.setattr(shelf, "TRIED_FIRST", 1)
    patch.setattr(shelf, "INDEXED_AT_ONCE", 2)
    for module in (serving, changes, local, inflight, transactions, timers):
        patch.setattr(module, "AT_ONCE", 2)


def begin(client: Client, operation: str, **arguments: Any) -> tuple[int, Steps[Any] | None]:
    """Ask for something, and let no more of it be done than is done at once; its number, and the rest."""
    client._asked += 1
    asked = IncomingRequest(client.peer.session, client._asked)
    kind, act = client.rig.broker.operations[operation]
    result = act(asked, convert(arguments, kind))
    if isinstance(result, Generator):
        return asked.number, _answered(asked, result)
    if result is not LATER:
        asked.answer(result, client.rig.broker.promise)
    return asked.number, None


def _answered(asked: IncomingRequest, steps: Steps[Any]) -> Steps[None]:
    """What a session does with steps."""
    result = yield from steps
    if result is not LATER:
        asked.answer(result, asked.session.broker.promise)
