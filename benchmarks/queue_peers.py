"""The brokers that queues are measured beside, where they are installed: ActiveMQ, RabbitMQ and Redis.

Each is set to answer a put when the message is on disk, or was got and acknowledged before it had to be, and
otherwise left as Debian has it. All listen on free ports of the loopback address, keep their files in a
directory of their own, and are stopped by their process when the block ends.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.amqp import AmqpWire
from benchmarks.load import HOST
from benchmarks.peers import Broker, free_port, running
from benchmarks.queue_wires import QueueWire, RedisStreamWire, StompWire

ACTIVEMQ_JAR = Path("/usr/share/activemq/bin/activemq.jar")
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The script itself: that on the path of root runs it as another user, and would be stopped in its place."""
PROGRAMS = {
    "activemq": ("ActiveMQ", ("java", str(ACTIVEMQ_JAR))),
    "rabbitmq": ("RabbitMQ", ("epmd", str(RABBITMQ))),
    "redis": ("Redis", ("redis-server",)),
}
"""Peers: what they are called, and the files that each needs."""
WIRES: dict[str, Callable[[int], QueueWire]] = {
    "activemq": StompWire,
    "rabbitmq": AmqpWire,
    "redis": RedisStreamWire,
}
"""How each is spoken to, by its port."""


def is_installed(name: str) -> bool:
    """Whether everything that a peer needs is there."""
    return all(shutil.which(program) or Path(program).is_file() for program in PROGRAMS[name][1])


@contextlib.contextmanager
def peer(name: str) -> Iterator[Broker]:
    """A peer that stores messages, with nothing but what it needs to take connections of this machine."""
    with (
        tempfile.TemporaryDirectory(prefix="tidings-bench-", ignore_cleanup_errors=True) as home,
        _STARTS[name](Path(home)) as broker,
    ):
        yield broker


@contextlib.contextmanager
def _redis(home: Path) -> Iterator[Broker]:
    port = free_port()
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    # Without a second copy of everything being written at a moment of its choosing.
    quiet = ("--save", "", "--auto-aof-rewrite-percentage", "0")
    place = ("--port", str(port), "--bind", HOST, "--dir", str(home))
    with running("redis", port, ["redis-server", *place, *durable, *quiet]) as broker:
        yield broker


_ACTIVEMQ_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="localhost"
      dataDirectory="{home}">
    <persistenceAdapter><kahaDB directory="{home}/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://{host}:{port}?transport.tcpNoDelay=true"/>
    </transportConnectors>
  </broker>
</beans>
"""
"""Debian's instance `main`, with STOMP in place of OpenWire."""
_LOG4J = "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n\
log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
"""Without this it would make up every line of its debug log, only to throw it away."""


@contextlib.contextmanager
def _activemq(home: Path) -> Iterator[Broker]:
    port = free_port()
    (home / "activemq.xml").write_text(_ACTIVEMQ_XML.format(home=home, host=HOST, port=port))
    (home / "log4j.properties").write_text(_LOG4J)
    settings = {
        "activemq.home": ACTIVEMQ_JAR.parent.parent,
        "activemq.base": home,
        "activemq.conf": home,
        "activemq.data": home,
        "java.io.tmpdir": home,
        "java.awt.headless": "true",
        "log4j.configuration": f"file:{home}/log4j.properties",
        "org.apache.activemq.UseDedicatedTaskRunner": "true",
    }
    opened = ("java.lang", "java.util", "java.util.concurrent", "java.net")
    command = [
        "java",
        "-Xms512M",
        "-Xmx512M",
        *(f"-D{name}={value}" for name, value in settings.items()),
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opened),
        *("-jar", str(ACTIVEMQ_JAR), "start", f"xbean:file:{home}/activemq.xml"),
    ]
    with running("activemq", port, command) as broker:
        yield broker


@contextlib.contextmanager
def _rabbitmq(home: Path) -> Iterator[Broker]:
    port, names_port = free_port(), free_port()
    settings = {
        "HOME": home,
        "ERL_EPMD_PORT": names_port,
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": port,
        "RABBITMQ_DIST_PORT": free_port(),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": home / "data",
        "RABBITMQ_LOG_BASE": home / "log",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": home / "pid",
        "RABBITMQ_ENABLED_PLUGINS_FILE": home / "plugins",
        "RABBITMQ_CONFIG_FILE": home / "none",
        "RABBITMQ_CONF_ENV_FILE": home / "none",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script gives way to the server, so that it can be stopped
    }
    command = ["env", *(f"{name}={value}" for name, value in settings.items()), str(RABBITMQ)]
    # The registry of names would stay behind if the server started it.
    with (
        running("epmd", names_port, ["epmd", "-port", str(names_port), "-address", HOST]),
        running("rabbitmq", port, command) as broker,
    ):
        broker.wait_log("startup complete")
        yield broker


_STARTS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Broker]]] = {
    "activemq": _activemq,
    "rabbitmq": _rabbitmq,
    "redis": _redis,
}
