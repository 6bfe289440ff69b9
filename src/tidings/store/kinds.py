"""Kinds of records: what a service keeps of its own, as structs under keys of one or more names.

A kind has a name, which is stored, and a struct, to which fields can be added that have defaults. All records
of a kind are there when the store is opened, and each is changed as a whole; so a service limits the
number of its records.
"""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from tidings.store.interface import DropRecord, SetRecord, State

Key = TypeVar("Key", bound=tuple[str, ...])
Value = TypeVar("Value", bound=Struct)


class Kind(Generic[Key, Value]):
    """Records of one kind."""

    def __init__(self, name: str, value: type[Value]) -> None:
        self.name = name
        self._value = value

    def set(self, key: Key, value: Value) -> SetRecord:
        """What keeps the value, in place of the one that was kept under the key."""
        return SetRecord(self.name, _text(key), msgspec.msgpack.encode(value))

    def drop(self, key: Key) -> DropRecord:
        """What keeps nothing under the key any more."""
        return DropRecord(self.name, _text(key))

    def known(self, state: State) -> dict[Key, Value]:
        """What was kept when the store was opened."""
        decode = msgspec.msgpack.Decoder(self._value).decode
        return {cast("Key", _key(text)): decode(value) for text, value in state.records(self.name).items()}


def _key(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _text(key: tuple[str, ...]) -> str:
    return msgspec.json.encode(key).decode()
