#!/usr/bin/env python3
"""Print the exact versions, as installed here, of all that `make run` and `make test` need.

The list is the closure of tidings with the extras below over the requirements that each installed package
declares. What merely happens to be installed as well is left out.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("node", "spark", "geo", "concepts", "dev")


def wanted() -> list[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def applies(requirement: Requirement, extras: set[str]) -> bool:
    """Whether a package's requirement holds on this machine for the extras that were asked of the package."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Name and installed version of every package that the requirements lead to."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ones = [r for r in requirements if applies(r, set())]
    while open_ones:
        requirement = open_ones.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        package = distribution(name)
        versions[name] = package.version
        needs = map(Requirement, package.requires or [])
        open_ones += [need for need in needs if applies(need, {"", *extras})]
    return versions


def main() -> None:
    """Print the list, or stop and say which package is not installed."""
    try:
        versions = closure(wanted())
    except PackageNotFoundError as error:
        sys.exit(f"lock: {error.name} is not installed")
    print("# Written by `make lock`. What `make run` and `make test` install.")
    for name, version in sorted(versions.items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
