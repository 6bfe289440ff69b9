"""What is read in steps, read in one go."""

from __future__ import annotations

from tidings.gateway import decoding, intake
from tidings.gateway.message_reader import Said
from tidings.steps import finish


def decode_run(data: bytes) -> list[Said] | None:
    return finish(decoding.decode_run(data))


def decode_object(raw: bytes) -> list[Said]:
    return finish(decoding.decode_object(raw))


def feed(reader: intake.NetworkReader, data: bytes) -> list[Said]:
    said: list[Said] = []
    finish(reader.read(data, said))
    return said


def read_datagram(data: bytes) -> list[Said]:
    said: list[Said] = []
    finish(intake.read_datagram(data, said))
    return said
