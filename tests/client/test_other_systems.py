"""The client where the system has only what Windows has: in a Python from which the rest was taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT = """
import asyncio, functools, os, signal, socket, sys

MISSING = "fcntl grp posix_spawn pty pwd readline resource syslog termios tty uvloop".split()
for name in MISSING:
    sys.modules[name] = None  # importing it raises ModuleNotFoundError
for name in '''O_CLOEXEC O_DIRECTORY O_NOFOLLOW POSIX_SPAWN_DUP2 POSIX_SPAWN_OPEN WNOHANG chown fchmod fchown
    fdatasync fork getegid geteuid getgid getppid getuid killpg mkfifo nice posix_spawn pread pwrite
    register_at_fork setsid sysconf wait waitid'''.split():
    if hasattr(os, name):
        delattr(os, name)
for name in "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 SIGWINCH".split():
    delattr(signal, name)
unix = [name for name in dir(asyncio) if "unix" in name.lower()]
for name in unix:
    delattr(asyncio, name)

def not_here(*_arguments, **_named):
    raise NotImplementedError

for name in "add_signal_handler create_unix_connection create_unix_server".split():
    setattr(asyncio.SelectorEventLoop, name, not_here)
pair = functools.partial(socket.socketpair, socket.AF_UNIX)
socket.socketpair = pair  # the loop's own
del socket.AF_UNIX
"""
USE = """
import tidings
import tidings.cli
import tidings.client.encryption
import tidings.testing.assertions
from pathlib import Path
from tidings.cli.connection import until_terminated
from tidings.errors import UserError
from tidings.node.config import NodeConfig
from tidings.node.server import Node

async def client():
    node = Node(NodeConfig(port=0, compiled=False))  # which stands for one on another machine
    await node.start()
    async with tidings.connect(node.addresses[0]) as bus, bus.subscribe("n > 1") as events:
        await bus.publish("job", n=2)
        queue = await bus.create_queue("jobs", type="volatile")
        await queue.put("job", n=(await anext(events))["n"])
        print("tcp", (await queue.get())["n"])
    await node.close()

asyncio.run(client())
with tidings.blocking.open() as bus:
    print("memory", bus.status()["sessions"])
asyncio.run(until_terminated(asyncio.sleep(0)))

tidings.node.local.PORT = 1  # where nobody listens
os.environ.pop("TIDINGS_NODE", None)

async def enter(bus):
    async with bus:
        pass

for name, act in {
    "unix": lambda: tidings.connect("tidings+unix:///run/node.sock"),
    "machine": lambda: asyncio.run(enter(tidings.connect())),
    "path": lambda: asyncio.run(enter(tidings.open("here"))),
    "ids": lambda: tidings.connect("tidings://127.0.0.1:7300", ids=Path("epochs")),
    "node": lambda: tidings.node.main.run(NodeConfig()),
}.items():
    import tidings.node.main
    try:
        act()
    except UserError as error:
        print(name, error)
print([path.name for path in Path().iterdir()])
"""


def test_the_client_and_a_node_in_memory_work_and_the_rest_says_what_it_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT + USE]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    lacks = "needs file locks (flock), which this system lacks; use Linux or macOS"
    assert (result.stdout.splitlines(), result.stderr) == (
        [
            "tcp 2",
            "memory 1",
            "unix /run/node.sock: this system has no Unix sockets; use tidings://HOST:PORT",
            f"machine no node answers at port 1, and starting one {lacks}",
            f"path here: a store {lacks}",
            f"ids epochs: a file of epochs {lacks}",
            f"node a node in a process of its own {lacks}",
            "[]",
        ],
        "",
    )
