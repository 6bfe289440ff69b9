"""What a node that has joined finds in its directory: its security, and its neighbours.

DIR/security         its security directory; `security` of the settings is stronger
DIR/security/peers   the nodes that it knows by joining, see `security.known_nodes`; those of the settings
                     come first, and are stronger
DIR/joining          a join that was not completed
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tidings.errors import ConfigError
from tidings.node.config import NodeConfig
from tidings.peers.registry import parse_peers
from tidings.store.directory import SECURITY

JOINING = "joining"


def complete(config: NodeConfig, is_joining: bool = False) -> NodeConfig:
    """Return the settings with what the directory of the node adds; `is_joining`: it will be there."""
    if config.dir is not None and config.security is None:
        place = Path(config.dir) / SECURITY
        if is_joining or place.exists():
            config = replace(config, security=str(place))
        elif (unfinished := place.with_name(JOINING)).exists():
            problem = "a join was not completed; repeat it with --join LINE, or remove this folder"
            raise ConfigError(str(unfinished), "", problem)
    return _with_known(config)


def _with_known(config: NodeConfig) -> NodeConfig:
    """Add the nodes that are known by joining, and can be dialled, to the peers of the settings."""
    if config.security is None or not (Path(config.security) / "peers").exists():
        return config
    from tidings.security.directory import SecurityDirectory
    from tidings.security.known_nodes import read_known

    named = parse_peers(config.peers or "")
    known = read_known(SecurityDirectory(config.security))
    more = {name: addresses[0] for name, addresses in known.items() if addresses and name not in named}
    peers = ", ".join(f"{name}={address}" for name, address in {**named, **more}.items())
    return replace(config, peers=peers) if more else config
