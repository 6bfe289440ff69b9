#!/usr/bin/env python3
"""Write the table of a node's settings into docs/node.md, as `NodeConfig` has them."""

from __future__ import annotations

import re
from pathlib import Path

from tidings.node.settings import SETTINGS, Setting

PAGE = Path(__file__).parents[1] / "docs" / "node.md"
HEAD = "| in the file | as a flag | as a variable | default | meaning |\n| --- | --- | --- | --- | --- |\n"


def row(setting: Setting) -> str:
    """The line of a setting."""
    shown = str(setting.default).lower() if setting.kind is bool else str(setting.default)
    default = "none" if setting.default is None else f"`{shown}`"
    names = f"`{setting.name}` | `{setting.flag}` | `{setting.variable}`"
    return f"| {names} | {default} | {setting.meaning} |\n"


def with_table(page: str) -> str:
    """The page with the table of the settings there are in the place of the one it has."""
    table = HEAD + "".join(map(row, SETTINGS.values()))
    changed, count = re.subn(re.escape(HEAD) + r"(?:\|.*\n)*", lambda _: table, page)
    assert count == 1, f"{PAGE} has {count} tables of settings"
    return changed


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
