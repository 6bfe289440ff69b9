"""What a node is asked for, and entered with `async with` as it is: `await` in between is optional."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Found = TypeVar("Found", bound=AbstractAsyncContextManager[Any])


class Enterable(Coroutine[Any, Any, Found], Generic[Found]):
    """A coroutine that returns a context which enters as itself: `async with` awaits it and enters that."""

    def __init__(self, request: Coroutine[Any, Any, Found]) -> None:
        self._request = request
        self._entered: Found | None = None

    def __await__(self) -> Generator[Any, Any, Found]:
        return self._request.__await__()

    def send(self, value: Any, /) -> Any:
        """Go on, as coroutines do."""
        return self._request.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error, as coroutines do."""
        return self._request.throw(*error)

    def close(self) -> None:
        """End, as coroutines do."""
        self._request.close()

    async def __aenter__(self) -> Found:
        self._entered = await self._request
        await self._entered.__aenter__()
        return self._entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._entered is not None
        return await self._entered.__aexit__(kind, error, trace)


def enterable(
    method: Callable[Parameters, Coroutine[Any, Any, Found]],
) -> Callable[Parameters, Enterable[Found]]:
    """Let what a coroutine function returns be entered without `await`."""

    @wraps(method)
    def asked(*arguments: Parameters.args, **options: Parameters.kwargs) -> Enterable[Found]:
        return Enterable(method(*arguments, **options))

    return asked
