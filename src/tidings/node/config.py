"""The settings of a node: what each of them means, and which can't be together.

`settings.py` reads them from files, variables and flags, and shows them.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tidings.node.logs import Level, LogForm
from tidings.store.directory import FILES

AUTO = "auto"
"""Label of a subnet that is to be found."""
Offers = Literal["all", "declared"]
"""Which events other nodes must expect from a node."""
PORT = 7300
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(gt=0)]
Amount = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]


def _about(meaning: str, example: Any = None, metavar: str | None = None, /, **extra: Any) -> Meta:
    """Describe a setting: its meaning, an example if it has no default, and its placeholder in the help.

    Further `contrary`: the flag that says no; `has_secrets`: the value says how something elsewhere is
    reached, and so may have passwords in it.
    """
    return Meta(description=meaning, examples=[example], extra={"metavar": metavar, **extra})


class NodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of a node, with their meanings and defaults.

    This is the only place where they are written: options and their help, files, variables and the table in
    `docs/node.md` are made from it (`settings.py`). Names in backticks are those of settings.
    """

    dir: Annotated[
        str | None,
        _about("directory of the store; without it nothing is stored on disk", "/var/lib/tidings", "DIR"),
    ] = None
    name: Annotated[
        Name | None, _about("name of the node; default: the host name of this machine", "hall")
    ] = None
    host: Annotated[
        str, _about("address to listen on; without `security`, it must be a loopback address")
    ] = "127.0.0.1"
    port: Annotated[
        Port | None,
        _about("TCP port, 0 for a free one; none means 7300, or no TCP if `unix` is given", PORT),
    ] = None
    unix: Annotated[
        str | None,
        _about(
            "path of a Unix socket, which only the node's own user can open", "/run/tidings/node.sock", "PATH"
        ),
    ] = None
    udp: Annotated[
        bool,
        _about(
            "take connections over UDP too, at the number of the TCP port: `tidings+udp://HOST:PORT`",
            contrary="tcp-only",
        ),
    ] = False
    http_port: Annotated[
        Port | None, _about("port for metrics and health over HTTP, 0 for a free one", 7380)
    ] = None
    sensor_port: Annotated[
        Port | None,
        _about("port of the gateway for sensor networks, TCP and UDP, 0 for a free one", 4242),
    ] = None
    sensor_http_port: Annotated[
        Port | None, _about("port of the gateway for HTTP and WebSocket; needs `sensor_port`", 7381)
    ] = None
    sensor_origins: Annotated[
        str | None,
        _about(
            "origins of web pages that may use that port, separated by commas",
            "https://city.example",
            "ORIGIN,…",
        ),
    ] = None
    sensor_plain: Annotated[
        bool,
        _about(
            "with `security`: sensor networks connect without TLS, each with a token", contrary="sensor-tls"
        ),
    ] = False
    sensor_strangers: Annotated[
        bool,
        _about(
            "with `security`: accept readings from unauthenticated sensor networks too",
            contrary="sensor-users",
        ),
    ] = False
    sensor_max_rate: Annotated[
        Amount | None,
        _about("highest rate that the gateway requests from a sensor, in readings a second", 2.0),
    ] = None
    sensor_max_age_s: Annotated[Amount | None, _about("maximum age of a reading that arrives late", 60.0)] = (
        None
    )
    sensor_grid: Annotated[
        Text | None,
        _about(
            "file that divides sensors among several gateways; see `docs/sensors.md`",
            "/etc/tidings/grid.toml",
            "FILE",
        ),
    ] = None
    agents: Annotated[
        Text | None,
        _about(
            "classes of agents that may run at this node, separated by commas; see `docs/agents.md`",
            "trips.agents:Hotels",
            "CLASS,…",
        ),
    ] = None
    group_deputies: Annotated[
        Text | None,
        _about(
            "two or more other nodes that keep each group of agents opened here, by name, separated by"
            " commas; see `docs/agents.md`",
            "kitchen,attic",
            "NAME,…",
        ),
    ] = None
    security: Annotated[
        Text | None,
        _about(
            "directory of users, rules and certificates; turns on TLS for TCP; default: `security` in `dir`,"
            " if that is there",
            "/etc/tidings/security",
            "DIR",
        ),
    ] = None
    concepts: Annotated[
        Text | None,
        _about(
            "file of terms and units that clients use in filters; see `docs/concepts.md`",
            "/etc/tidings/concepts.ttl",
            "FILE",
        ),
    ] = None
    peers: Annotated[
        str | None,
        _about(
            "other nodes, as `NAME=ADDRESS`, separated by commas; see `docs/peers.md`",
            "kitchen=tidings+tls://10.0.0.7:7300",
            "NAME=ADDRESS,…",
            has_secrets=True,
        ),
    ] = None
    mdns: Annotated[
        bool,
        _about(
            "announce the node on its network, and find others there; needs `security`", contrary="no-mdns"
        ),
    ] = False
    search_hops: Annotated[
        Annotated[int, Meta(ge=0, le=32)],
        _about(
            "while the node has no link, look for others by multicast within so many hops; 0: don't; needs "
            "`security`; see `docs/overlay.md`"
        ),
    ] = 0
    leaf: Annotated[
        bool,
        _about(
            "carry no events between other nodes: only what this node's own clients publish and subscribe to",
            contrary="no-leaf",
        ),
    ] = False
    subnet: Annotated[
        Name | None,
        _about(
            "label of the node's local network: of the nodes with one label, the one with the smallest id"
            " carries the events of the others; `auto`: that of the nodes found by `mdns`",
            "hall",
            "LABEL",
        ),
    ] = None
    offers: Annotated[
        Offers,
        _about(
            "`all`: other nodes announce all filters here; `declared`: only those that overlap what clients "
            "advertise, or the types of what they publish; see `docs/overlay.md`"
        ),
    ] = "all"
    tolerate: Annotated[
        Annotated[int, Meta(ge=0, le=8)],
        _about(
            'deaths of nodes that an event survives once it is held: `publish(safe="held")` returns when all '
            "that want it within so many hops have stored it"
        ),
    ] = 1
    reroute_s: Annotated[
        float,
        _about("seconds a link to another node may be cut before events go another way, if there is one"),
    ] = 5.0
    ping_s: Annotated[
        Annotated[float, Meta(ge=0, le=60)],
        _about("seconds between two pings on a link to another node; 0: none"),
    ] = 0.5
    weigh_s: Annotated[
        NotNegative,
        _about("seconds after which links to other nodes are weighed again; 0: the oldest links are used"),
    ] = 10.0
    weight_delay: Annotated[NotNegative, _about("weight of a link for each millisecond of its delay")] = 1.0
    weight_capacity: Annotated[
        NotNegative, _about("weight of a link for its capacity, if that is 1 Mbit/s; for 10 it is a tenth")
    ] = 100.0
    rebuild_threshold: Annotated[
        Share,
        _about("part of its weight by which a link in use must be undercut before another replaces it"),
    ] = 0.3
    merge_waste: Annotated[
        Share,
        _about(
            "part of the events from a linked node that may come for nobody, so that filters can be merged "
            "to fewer; 0: they are merged exactly"
        ),
    ] = 0.0
    suspect_s: Annotated[
        Annotated[float, Meta(ge=0, le=600)],
        _about(
            "seconds a linked node may be silent before others are asked about it; at least two pings. 0: it "
            "is given up after 40 s"
        ),
    ] = 1.5
    away_s: Annotated[
        Amount,
        _about(
            "seconds for which reliable events are kept for a linked node that is away; older ones are given"
            " up, and reported as a gap"
        ),
    ] = 604_800.0
    away_bytes: Annotated[
        Count,
        _about(
            "bytes of reliable events that are kept for a linked node that is away; of more the oldest are"
            " given up, and reported as a gap",
            None,
            "BYTES",
        ),
    ] = 1 << 30
    adhoc: Annotated[
        bool,
        _about(
            "carry messages for hosts that this one meets by chance; see `docs/adhoc.md`. Without `security`"
            " it meets hosts of this machine only",
            contrary="no-adhoc",
        ),
    ] = False
    adhoc_port: Annotated[Port, _about("UDP port of the beacons by which hosts find each other")] = 7305
    adhoc_to: Annotated[
        str | None,
        _about(
            "addresses to which beacons go, separated by commas; none: a multicast group of this network",
            "10.0.0.7:7305",
            "HOST:PORT,…",
        ),
    ] = None
    adhoc_beacon_s: Annotated[
        Annotated[float, Meta(ge=0.05, le=3600)],
        _about("seconds between two beacons; a host is gone after four that did not come"),
    ] = 1.0
    adhoc_datagrams: Annotated[
        bool,
        _about(
            "send short messages by UDP, too, to hosts that they are for and whose beacons come",
            contrary="no-adhoc-datagrams",
        ),
    ] = True
    adhoc_strategy: Annotated[
        Text,
        _about(
            "who gets a copy: `acknowledged`, `budget`, `spray`, `prophet`, `epidemic` or `direct`; see"
            " `docs/adhoc.md`"
        ),
    ] = "acknowledged"
    adhoc_buffer: Annotated[
        Annotated[int, Meta(ge=0)],
        _about("bytes of the messages that it carries, its own and those of others", None, "BYTES"),
    ] = 64 << 20
    adhoc_lease_s: Annotated[
        Annotated[float, Meta(ge=1, le=86_400)],
        _about(
            "seconds after which a queue or topic that it holds counts as unreachable, unless it is heard of"
        ),
    ] = 3600.0
    adhoc_meeting: Annotated[
        Count, _about("bytes that it takes from a host, and gives it, in one meeting", None, "BYTES")
    ] = 256 << 20
    adhoc_origin: Annotated[
        Count, _about("bytes of the messages of one other sender that it carries", None, "BYTES")
    ] = 16 << 20
    adhoc_place: Annotated[
        str | None,
        _about("where the node is, for what is sent to all within an area", "13.4,52.5", "X,Y"),
    ] = None
    adhoc_rate: Annotated[
        Amount, _about("bytes a second that it takes from all hosts that it meets", None, "BYTES")
    ] = float(16 << 20)
    postgres: Annotated[
        Text | None,
        _about(
            "database of the queues that nodes share, without password; see `docs/postgres.md`",
            "host=db.example user=tidings dbname=tidings",
            "CONNINFO",
            has_secrets=True,
        ),
    ] = None
    queue_types: Annotated[
        str | None,
        _about(
            "additional queue types, as `module:Class`, separated by commas; see `docs/queues.md`",
            "colors:Blue",
            "MODULE:CLASS,…",
        ),
    ] = None
    connections_max: Annotated[
        Count, _about("maximum number of connections; further ones are refused with the reason")
    ] = 15_000
    memory_max: Annotated[
        Count | None,
        _about(
            "bytes that it holds for all clients; none: a quarter of the machine's memory",
            4_000_000_000,
            "BYTES",
        ),
    ] = None
    memory_user_max: Annotated[
        Count | None,
        _about("bytes that it holds for one user; none: half of `memory_max`", 2_000_000_000, "BYTES"),
    ] = None
    memory_session_max: Annotated[
        Count | None,
        _about("bytes that it holds for one session; none: an eighth of `memory_max`", 500_000_000, "BYTES"),
    ] = None
    last_values_max: Annotated[
        Annotated[int, Meta(ge=0)],
        _about(
            "bytes of last values that it keeps by key, at most a 16th of `memory_max`; 0: none",
            None,
            "BYTES",
        ),
    ] = 64 << 20
    compiled: Annotated[
        bool, _about("use compiled code under load; `--plain` turns it off", contrary="plain")
    ] = True
    log_where: Annotated[
        str | None,
        _about(
            "filter of further events to keep in the log beside persistent ones; see `docs/log.md`",
            "type LIKE 'air.%'",
            "FILTER",
        ),
    ] = None
    log_folder: Annotated[
        Text | None,
        _about(
            "folder of the sealed files of the log: a path, or the URI of any Arrow filesystem;"
            " default: `log` in `dir`",
            "s3://city-log/hall",
            "PATH|URI",
            has_secrets=True,
        ),
    ] = None
    log_seal_s: Annotated[
        Annotated[float, Meta(ge=0)],
        _about("seconds until events of the log are sealed at the latest; 0: never"),
    ] = 300.0
    log_days: Annotated[
        Amount | None, _about("retention of sealed files in days; none: unlimited", 365.0)
    ] = None
    log_size: Annotated[
        Count | None,
        _about(
            "retention of sealed files in bytes, the oldest are removed first; none: unlimited",
            100_000_000_000,
        ),
    ] = None
    log_level: Annotated[Level, _about("`debug`, `info`, `warning` or `error`")] = "info"
    log_form: Annotated[LogForm, _about("`text` for people, `json` for programs")] = "text"

    @property
    def tcp_port(self) -> int | None:
        """The TCP port to open, None for none."""
        return PORT if self.port is None and self.unix is None else self.port

    @property
    def sealing_folder(self) -> str | None:
        """The folder of sealed files; None for a node that stores nothing."""
        return None if self.dir is None else self.log_folder or str(Path(self.dir).absolute() / FILES)

    @property
    def subnet_label(self) -> str:
        """The label of its local network that the settings give; empty for none, and for one to be found."""
        return "" if self.subnet is None or self.subnet == AUTO else self.subnet

    @property
    def node_name(self) -> str:
        """The name of the node."""
        return self.name or re.sub(r"[^A-Za-z0-9_.-]", "-", gethostname())[:64] or "node"

    @property
    def loopback(self) -> str:
        """The address for what is meant for this machine only."""
        return self.host if is_loopback(self.host) else "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach an address; ValueError if it is none."""
    return host == "localhost" or ip_address(host).is_loopback
