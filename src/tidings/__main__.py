"""`python -m tidings`: the command line, for an installation whose scripts are not on the path."""

from __future__ import annotations

from tidings.cli import main

if __name__ == "__main__":
    main()
