"""Archive for executors with a bare Python: tidings and the packages it needs there.

An archive, and not a list of Python files: msgspec, pyarrow and numpy are compiled, and Python imports such
modules from a folder only. Spark unpacks the archives named in `spark.archives` beside each executor. The
packages are those installed here, so executors need the same system and the same version of Python.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import zipfile
from collections.abc import Iterator, MutableMapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from msgspec import Struct

from tidings.errors import MissingExtra, UserError

OWN = ("tidings", "pyspark_tidings")
SMALL = ("msgspec",)
"""Distributions that are always packed with tidings."""
LARGE = ("pyarrow", "pandas", "numpy", "protobuf", "python-dateutil", "pytz", "tzdata", "six")
"""Distributions that Spark's own Python needs for Arrow, which executors often have."""
PACKAGES = ("msgspec", "pyarrow", "pandas", "numpy")
"""Packages that are imported from them."""
FOLDER = "tidings-packages"
"""Name of the archive where Spark has unpacked it."""
COMPRESSION = 3
"""Level of zlib; 6 takes more than twice as long, for a file that is 7 % smaller."""
LEFT_OUT = ("__pycache__", "tests", "include")
"""Folders that are never imported; those of pyarrow and pandas are half of their size."""


class PackedArchive(Struct, frozen=True):
    """Archive that was made."""

    file: str
    size: int
    packages: list[str]
    python: str
    platform: str


def pack(file: Path, small: bool = False) -> PackedArchive:
    """Make the archive, or replace it; UserError if it can't be written there."""
    names = [*SMALL, *(() if small else LARGE)]
    hidden = file.with_name(f".{file.name}.part")
    try:
        with zipfile.ZipFile(hidden, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION) as archive:
            for path, inside in _files(names):
                archive.write(path, inside)
        hidden.replace(file)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    finally:
        hidden.unlink(missing_ok=True)
    system = f"{platform.system()} {platform.machine()}"
    return PackedArchive(str(file), file.stat().st_size, [OWN[0], *names], platform.python_version(), system)


def archive_config(file: Path) -> dict[str, str]:
    """Return the settings of Spark that bring the archive to every executor; UserError if there is none."""
    if not zipfile.is_zipfile(file):
        raise UserError(f"{file}: is no archive; make one with 'tidings pipeline pack {file}'")
    return {"spark.archives": f"{file.resolve()}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}


def lend(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let any Python that Spark starts on this machine find the packages of this one.

    Spark runs the driver's part of a source on the driver's machine, but with the Python of the executors.
    """
    places = [_place(name).parent for name in (*OWN, *PACKAGES)]
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    folders = dict.fromkeys([*map(str, places), *(path for path in known if path)])
    environment["PYTHONPATH"] = os.pathsep.join(folders)


def _place(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(f"the package {package}", "spark")
    return Path(spec.origin).parent


def _files(names: list[str]) -> Iterator[tuple[Path, str]]:
    for package in OWN:
        yield from _files_below(_place(package))
    for name in names:
        yield from _files_of(name)


def _files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _is_wanted(path.relative_to(folder)):
            yield path, str(Path(folder.name) / path.relative_to(folder))


def _files_of(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of an installed distribution that lie beside its package."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        if name in ("pytz", "tzdata", "six", "python-dateutil"):  # of pandas, which may do without
            return
        raise MissingExtra(f"the package {name}", "spark") from None
    for file in sorted(found.files or ()):
        path = Path(str(found.locate_file(file)))
        if ".." not in file.parts and path.is_file() and _is_wanted(Path(*file.parts)):
            yield path, str(file)


def _is_wanted(path: Path) -> bool:
    return not any(part in LEFT_OUT for part in path.parts) and path.suffix not in (".pyc", ".pyx", ".pxd")
