"""Spark sessions with the settings that tidings needs, and clear errors if something is missing.

Spark's own errors about an old Java, an old PySpark or a new pandas come late and from deep inside, so these
are checked before a session is made. A session on this machine listens on the loopback only and runs its
Python workers with this interpreter; one on a cluster keeps the cluster's settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK_OLDEST = (4, 2)
"""First PySpark whose Python sources have read limits and report their latest offset."""
PANDAS_TOO_NEW = (3,)
"""First pandas with which PySpark does not work."""
JAVA_OLDEST = 17
JAVA_INSTALL = "apt install openjdk-17-jre-headless"
JAVA_PLACES = Path("/usr/lib/jvm")
"""Folder of each Java that Debian installs."""
JAVA_ANSWER_S_MAX = 30.0

ANYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""Settings of every session; the caller's take precedence."""
HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}
"""Further settings of a session on this machine."""


def spark_session(master: str | None = None, name: str = "tidings", **config: object) -> SparkSession:
    """Return a Spark session, or the one that this process has already.

    Without a master it is the one `SPARK_REMOTE` names, a Spark Connect server, and else `local[*]`. Settings
    are given by their Spark names: `spark_session(**{"spark.sql.shuffle.partitions": 2})`.
    """
    check_packages()
    from pyspark.sql import SparkSession

    remote = os.environ.get("SPARK_REMOTE")
    if master and remote and master != remote:
        raise UserError(f"{master} was asked for, but SPARK_REMOTE names {remote}: unset one of them")
    place = remote or master or "local[*]"
    is_remote = bool(remote) or place.startswith("sc://")
    is_here = place.startswith("local")  # also for a Connect server, which is then started on this machine
    if is_here:
        _stay_here()
    if not place.startswith("sc://"):
        check_java()
    # Settings of the machine are not sent to a Connect server, not even to our own: it would warn of each.
    settings: dict[str, object] = {**ANYWHERE, **(HERE if is_here and not is_remote else {})}
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(place) if is_remote else builder.master(place)
    for key, value in (settings | config).items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


def _stay_here() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_packages() -> None:
    """Raise an error that names both versions unless PySpark and pandas are of versions that work."""
    try:
        pyspark, pandas = metadata.version("pyspark"), metadata.version("pandas")
    except metadata.PackageNotFoundError as error:
        raise MissingExtra("Spark", "spark") from error
    if numbers(pyspark) < PYSPARK_OLDEST:
        raise UserError(
            f"PySpark {pyspark} is too old: tidings needs {dotted(PYSPARK_OLDEST)} or newer "
            "(pip install 'tidings[spark]')"
        )
    if numbers(pandas) >= PANDAS_TOO_NEW:
        raise UserError(
            f"pandas {pandas} is too new for PySpark {pyspark}, which needs one before "
            f"{dotted(PANDAS_TOO_NEW)} (pip install 'pandas<{dotted(PANDAS_TOO_NEW)}')"
        )


def check_java() -> None:
    """Raise an error that names the command to type unless there is a Java that Spark can run on.

    If the one Spark would take is too old and Debian has installed a newer one, Spark is pointed to that.
    """
    found = java_version(java_home())
    if found >= JAVA_OLDEST:
        return
    newer = [home for home in sorted(JAVA_PLACES.glob("*")) if java_version(home) >= JAVA_OLDEST]
    if not newer:
        what = f"Java {found} is too old" if found else "there is no Java"
        raise UserError(f"{what}: Spark needs {JAVA_OLDEST} or newer ({JAVA_INSTALL})")
    os.environ["JAVA_HOME"] = str(newer[0])


def java_home() -> Path | None:
    """Return the folder of the Java that Spark takes: JAVA_HOME, or that of the command `java`."""
    if named := os.environ.get("JAVA_HOME"):
        return Path(named)
    command = shutil.which("java")
    return Path(command).resolve().parent.parent if command else None


def java_version(home: Path | None) -> int:
    """Return the major version of the Java in that folder; 0 if there is none."""
    command = home and home / "bin" / "java"
    if not command or not os.access(command, os.X_OK):
        return 0
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return major_version(answer.stderr)


def major_version(text: str) -> int:
    """Return 17 for `openjdk version "17.0.15"`, and 8 for `java version "1.8.0_402"`; else 0."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def numbers(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, for comparing."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def dotted(version: tuple[int, ...]) -> str:
    """Return a version as it is written."""
    return ".".join(map(str, version))
