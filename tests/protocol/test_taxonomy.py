"""The taxonomy of a node: handed out in pieces, to users that may subscribe."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.guarded import Book, come, may
from protocol.rig import Rig
from tidings.errors import CodecError
from tidings.node.assembly import CoreSettings
from tidings.protocol import taxonomy
from tidings.protocol.taxonomy import taxonomy_from


def test_a_taxonomy_is_handed_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taxonomy, "TAXONOMY_PIECE_SIZE", 4)
    peer = Rig(settings=CoreSettings(taxonomy=b'{"a":{}}')).peer()

    def read(offset: int) -> Any:
        return peer.ask("taxonomy.read", offset=offset).result

    assert read(0) == {"size": 8, "piece": b'{"a"'}
    assert read(4) == {"size": 8, "piece": b":{}}"}
    assert read(8) == read(2**60) == {"size": 8, "piece": b""}
    assert peer.ask("taxonomy.read", offset=-1).error.code == "protocol"


def test_a_user_who_may_not_subscribe_gets_no_taxonomy() -> None:
    rig = Rig(settings=CoreSettings(taxonomy=b"{}"))
    rig.broker.authenticator = Book(reader=[may("subscribe", "type = 'a'")], writer=[may("publish")])
    assert come(rig, "reader").ask("taxonomy.read").result["piece"] == b"{}"
    assert come(rig, "writer").ask("taxonomy.read").error.code == "not-allowed"


def test_a_taxonomy_that_a_client_can_not_read_is_the_fault_of_the_node() -> None:
    for content in (b"{", b"[]", b'{"a": {"narrower": ["a"]}}'):
        with pytest.raises(CodecError, match="the node's taxonomy can't be read"):
            taxonomy_from(content)
    assert taxonomy_from(b"").expand("a") == ("a",)
