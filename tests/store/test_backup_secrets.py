from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tidings.store.backup import back_up, restore
from tidings.store.sqlite import SqliteStore

SECRET = b"ada token laptop sha256:5ec2e7"


def test_a_backup_holds_the_store_and_no_secrets_that_lie_beside_it(tmp_path: Path) -> None:
    home = tmp_path / "node"
    with closing(SqliteStore(home)):
        for folder in (home, home / "security"):
            folder.mkdir(exist_ok=True)
            (folder / "users").write_bytes(SECRET)
        back_up(home, tmp_path / "backup")
    assert SECRET not in (tmp_path / "backup").read_bytes()
    restore(tmp_path / "backup", tmp_path / "copy", 1.8e9)
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.name in ("users", "security")]
