"""The file of terms and units that a node gives its clients."""

from __future__ import annotations

from msgspec import json

from tidings.errors import ConfigError, FilterError
from tidings.filters import Taxonomy

NODE_TAXONOMY_MAX = 16 << 20
"""Bytes of a node's taxonomy as JSON, which the node keeps in memory."""


def load_taxonomy(path: str | None) -> bytes:
    """Return the taxonomy of a file as the node hands it out; ConfigError names the place of a mistake."""
    if path is None:
        return b""
    try:
        content = json.encode(Taxonomy.load(path).content)
    except OSError as error:
        raise ConfigError(path, "concepts", str(error.strerror or error)) from None
    except FilterError as error:
        raise ConfigError(path, "concepts", str(error).removeprefix(f"{path}: ")) from None
    if len(content) > NODE_TAXONOMY_MAX:
        raise ConfigError(path, "concepts", f"has more than {NODE_TAXONOMY_MAX} bytes as JSON")
    return content
