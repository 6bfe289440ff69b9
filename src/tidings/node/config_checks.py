"""Checks of a node's settings: what can't be together, and what can't be read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from ipaddress import ip_address

from tidings.errors import ConfigError, FilterError, UserError
from tidings.node.config import AUTO, NodeConfig, is_loopback
from tidings.peers.registry import parse_peers

TARGETS_MAX = 256
"""Addresses to which one node sends its beacons."""


def check(config: NodeConfig, places: Mapping[str, str]) -> None:
    """Raise ConfigError, with the place of the setting, for what can't be together."""
    check_host(config.host, config.security, places["host"])
    _check_found(config, "mdns", config.mdns, places)
    if config.subnet == AUTO and not config.mdns:
        raise ConfigError(places["subnet"], "subnet", "the nodes of a network are found with --mdns; give it")
    _check_found(config, "search_hops", config.search_hops > 0, places)
    _check_adhoc(config, places)
    _check_sensors(config, places["sensor_http_port"])
    _check_log(config, places)
    # With security the name is that of the certificate, against which the node checks them when it starts.
    own = config.node_name if config.security is None else config.name or ""
    parse_peers(config.peers or "", places["peers"], own)


NEEDS = (
    "the node must know who may do what: 'tidings security init DIR' makes what it needs, and"
    " --security DIR uses it; or"
)


def check_host(host: str, security: str | None, place: str = "the settings", needs: str = NEEDS) -> None:
    """Refuse an address that others can reach, unless there is a directory that says who may do what."""
    try:
        is_near = is_loopback(host)
    except ValueError:
        raise ConfigError(place, "host", f"{host!r} is no IP address") from None
    if not is_near and security is None:
        problem = f"{host} can be reached from other machines, so {needs}"
        raise ConfigError(place, "host", f"{problem} use a loopback address such as 127.0.0.1")


def _check_found(config: NodeConfig, name: str, is_set: bool, places: Mapping[str, str]) -> None:
    """Refuse to look for others where it can't be known who they are."""
    if is_set and (config.security is None or config.tcp_port is None):
        raise ConfigError(
            places[name],
            name,
            "nodes found on the network are authenticated by their certificates; give --security DIR, and a"
            " TCP port at which this node is found itself",
        )


def _check_adhoc(config: NodeConfig, places: Mapping[str, str]) -> None:
    if not config.adhoc:
        return
    if config.tcp_port is None:
        raise ConfigError(places["adhoc"], "adhoc", "hosts that meet dial each other; give --port")
    parse_targets(config.adhoc_to or "", places["adhoc_to"])
    parse_place(config.adhoc_place, places["adhoc_place"])
    from tidings.adhoc.strategies import strategy_type  # not before: few nodes need it

    try:
        strategy_type(config.adhoc_strategy)
    except UserError as error:
        raise ConfigError(places["adhoc_strategy"], "adhoc_strategy", str(error)) from None


def parse_place(text: str | None, place: str = "adhoc_place") -> tuple[float, float] | None:
    """Read where a node is, two numbers with a comma between; ConfigError for anything else."""
    if text is None:
        return None
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            place, "adhoc_place", f"{text!r} is no place: give two numbers, as 13.4,52.5"
        ) from None
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ConfigError(place, "adhoc_place", f"{text!r} is no place: give two finite numbers")
    return x, y


def parse_targets(text: str, place: str = "adhoc_to") -> list[tuple[str, int]]:
    """Return the addresses of a setting such as `10.0.0.7:7305, …`; ConfigError if these can't be."""
    targets: list[tuple[str, int]] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        host, _, port = part.rpartition(":")
        try:
            address = ip_address(host.strip("[]"))
            number = int(port)
        except ValueError:
            raise ConfigError(place, "adhoc_to", f"{part!r} is no IP address with a port") from None
        if not 0 < number <= 65_535:
            raise ConfigError(place, "adhoc_to", f"{part!r}: a port is 1 to 65535")
        targets.append((str(address), number))
    if len(targets) > TARGETS_MAX:
        raise ConfigError(
            place, "adhoc_to", f"has {len(targets)} addresses; at most {TARGETS_MAX} are allowed"
        )
    return targets


def _check_sensors(config: NodeConfig, place: str) -> None:
    if config.sensor_http_port is not None and config.sensor_port is None:
        raise ConfigError(place, "sensor_http_port", "is a port of the gateway, which --sensor-port starts")


def _check_log(config: NodeConfig, places: Mapping[str, str]) -> None:
    from tidings.filters import Filter  # not before: the command line knows the settings when it starts

    where, folder = places["log_where"], places["log_folder"]
    try:
        Filter(config.log_where or "")
    except FilterError as error:
        raise ConfigError(where, "log_where", str(error)) from None
    if config.log_folder is not None and config.dir is None:
        raise ConfigError(folder, "log_folder", "a node without `dir` keeps nothing, and seals nothing")
    if _SECRET.match(config.log_folder or ""):
        problem = (
            "a secret does not belong here: Arrow's filesystems find theirs in the environment or in files"
        )
        raise ConfigError(folder, "log_folder", problem)


# A password in the place of the user of a URI.
_SECRET = re.compile(r"\w[\w+.-]*://[^/@]*:[^/@]*@")
