"""A device with the bare install: a process that sees nothing but Python, msgspec, tidings and this module.

`measure` starts one in an interpreter without site packages, for which the packages are linked into a
folder; `main` is what it does. So this module may import nothing that the bare install lacks.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

import benchmarks
import tidings
from tidings.client.bus import Bus
from tidings.errors import PeerError

DEVICE_S_MAX = 60.0
"""How long a device may take for everything."""
LOOK_S = 0.02
ABSENT = ("numpy", "numba", "pyarrow", "uvloop", "re2", "typer", "cryptography")
"""What the bare install lacks."""
_START = "import sys; sys.path.append(sys.argv[1]); from benchmarks.edge import main; main(*sys.argv[2:])"


def measure(home: Path, upstream: str, count: int, ca: Path | None = None, token: Path | None = None) -> int:
    """Kilobytes of a device that has published so many events, all of which have gone to the node above."""
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder:
        for package in (tidings, msgspec, benchmarks):
            assert package.__file__ is not None
            place = Path(package.__file__).parent
            (Path(folder) / place.name).symlink_to(place)
        said = [str(home), upstream, str(count), str(ca or ""), str(token or "")]
        command = [sys.executable, "-I", "-S", "-c", _START, folder, *said]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEVICE_S_MAX, check=False)
    if done.returncode:
        raise PeerError(f"the device failed: {done.stderr[-500:]}")
    return int(json.loads(done.stdout)["kb"])


def main(home: str, upstream: str, count: str, ca: str, token: str) -> None:
    """Be the device: a queue and an upstream, and some readings; then tell the memory that is in use."""
    assert not any(importlib.util.find_spec(name) for name in ABSENT)
    secret, trusted = Path(token) if token else None, ca or None
    asyncio.run(_live(Path(home), upstream, int(count), secret, trusted))


async def _live(home: Path, upstream: str, count: int, token: Path | None, ca: str | None) -> None:
    async with tidings.open(home, name="sensor", upstream=upstream, token=token, ca=ca) as bus:
        readings = await bus.create_queue("readings", bind="value > 40")
        for value in range(count):
            await bus.publish("air.pm10", value=value % 90, street="quay")
        async with asyncio.timeout(DEVICE_S_MAX / 2):
            await _wait_sent(bus)
        assert (await readings.describe()).messages == sum(value % 90 > 40 for value in range(count))
        sys.stdout.write(json.dumps({"kb": _memory_kb()}))


async def _wait_sent(bus: Bus) -> None:
    while (await bus.status())["upstream"]["waiting"]:
        await asyncio.sleep(LOOK_S)


def _memory_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
