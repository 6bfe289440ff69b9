"""Messages as arrays: older and newer peers understand each other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidings.errors import CodecError
from tidings.protocol.frames import read_frame
from tidings.protocol.messages import KINDS, Hello, Ping, ProtocolMessage, Reply, Request

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_a_newer_peers_further_fields_are_passed_over(kind: type[ProtocolMessage]) -> None:
    values = {"versions": [1], "system": "s", "error": None, "positions": None, "redelivered": False}
    values |= {
        "kept": True,
        "passed": ["n"],
        "is_older": True,
        "refused": [[1, 2, ["code", "text"]]],
        "failure": ["code", "text"],
        "is_part": True,
        "handles": b"",
        "numbers": b"",
        "data": b"",
        "after": b"",
        "is_volatile": False,
        "is_again": False,
        "is_repeat": False,
        "others": ["a"],
        "beyond": [1],
        "moved": {"node": "n", "addresses": ["a"], "cookie": "c"},
    }
    texts = {
        "node",
        "session",
        "operation",
        "code",
        "text",
        "kind",
        "name",
        "source",
        "queue",
        "user",
        "secret",
        "first_node",
        "inbox",
        "cookie",
    }
    maps = {"arguments", "details"}
    fields = [
        values.get(name, "x" if name in texts else {} if name in maps else None if name == "resume" else 1)
        for name in kind.__struct_fields__
    ]
    events = b"\xdd\x00\x00\x00\x00" if kind.HAS_EVENTS else b""
    plain, _ = read_frame(kind.KIND, msgspec.msgpack.encode(fields) + events)
    newer, _ = read_frame(kind.KIND, msgspec.msgpack.encode([*fields, "new", {"more": 1}]) + events)
    assert type(plain) is kind
    assert newer == plain


def test_an_older_peers_missing_fields_have_their_defaults() -> None:
    assert read_frame(Ping.KIND, b"\x90") == (Ping(0), b"")
    assert read_frame(Hello.KIND, msgspec.msgpack.encode([[1], "s", 3]))[0] == Hello([1], "s", 3, "", None)
    assert read_frame(Request.KIND, msgspec.msgpack.encode([1, "status"]))[0] == Request(1, "status", {})
    assert read_frame(Reply.KIND, b"\x91\x05")[0] == Reply(5, None, None)


@pytest.mark.parametrize("fields", [[], [1], ["x", "status"], [1, 2], [1, "status", []], {"number": 1}, None])
def test_fields_of_other_kinds_are_refused(fields: object) -> None:
    with pytest.raises(CodecError, match=r"^\$\.Request"):
        read_frame(Request.KIND, msgspec.msgpack.encode(fields))


def test_every_kind_has_its_number_and_its_line_in_the_document() -> None:
    table = [line.split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    written = {int(row[1]): row[2].strip() for row in table if row[1].strip().isdigit()}
    assert written == {number: kind.__name__.upper() for number, kind in KINDS.items()}
