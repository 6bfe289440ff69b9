"""Where the declarative project of the city pipeline lies: in the package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

from tidings.errors import InternalError

SPEC = "spark-pipeline.yml"
_PLACES = (Path(__file__).parent / "project", Path(__file__).parents[4] / "pipelines" / "city")


def project_folder() -> Path:
    """The folder with `spark-pipeline.yml`, the definitions and the rules."""
    for folder in _PLACES:
        if (folder / SPEC).is_file():
            return folder
    raise InternalError(f"the files of the city pipeline are missing: {_PLACES[0]}")
