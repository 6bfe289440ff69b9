"""Who a query is, and that its secrets are in their files and nowhere else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import patience
from node.secured import CHEAP, TOKEN, Secured
from pipeline.nodes import Running, running
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from tidings import blocking
from tidings.errors import TidingsError
from tidings.pipeline.source import TidingsSource
from tidings.security.passwords import hash_token, make_password

TESTS = Path(__file__).parents[1]
RUN_S_MAX = patience(300.0)
SECRET = "violet-otter-38-marzipan"
WRONG = "crimson-badger-51-nougat"
COLUMNS = StructType().add("number", "long").add("source", "string")


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """A security directory whose secrets are seen at once wherever they turn up."""
    secured = Secured(tmp_path)
    password = make_password(SECRET, os.urandom, CHEAP)
    token = f"device token first sha256:{hash_token(TOKEN)}"
    secured.write_users(f"ada password {password}\n{token}\nbob certificate\n")
    return secured


@pytest.fixture
def node(tmp_path: Path, secured: Secured) -> Iterator[Running]:
    """A node with TLS and users, to which ada has published an event."""
    with running(tmp_path / "node", security=str(secured.path)) as node:
        address = f"tidings+tls://{node.address}"
        with blocking.connect(address, user="ada", password=SECRET, ca=secured.ca) as bus:
            bus.publish("air.pm10", number=1, delivery="persistent")
        yield node


def secret_file(home: Path, secret: str) -> str:
    file = home / f"file {len(list(home.iterdir()))}"
    file.write_text(secret + "\n")
    return str(file)


def rows(node: Running, **options: Any) -> list[dict[str, Any]]:
    """What a query reads, as driver and executors do."""
    given = CaseInsensitiveDict(
        {"node": node.address, **{name: str(value) for name, value in options.items()}}
    )
    reader = TidingsSource(given).reader(COLUMNS)
    sent = pickle.dumps((reader, reader.partitions()))
    for secret in (SECRET, TOKEN):
        assert secret.encode() not in sent
    reader, pieces = pickle.loads(sent)
    return [row for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]


EVENT = [{"number": 1, "source": "ada"}]


def test_a_query_has_a_user_and_the_file_of_a_password(
    node: Running, secured: Secured, tmp_path: Path
) -> None:
    file = secret_file(tmp_path, SECRET)
    assert rows(node, user="ada", passwordFile=file, ca=secured.ca) == EVENT


def test_a_query_has_a_certificate_and_its_key(node: Running, secured: Secured) -> None:
    assert rows(node, **secured.client("bob")) == EVENT


def test_a_token_that_may_not_subscribe_reads_nothing(
    node: Running, secured: Secured, tmp_path: Path
) -> None:
    with pytest.raises(TidingsError, match=f"node {node.address}: ") as caught:
        rows(node, tokenFile=secret_file(tmp_path, TOKEN), ca=secured.ca)
    assert TOKEN not in str(caught.value)


def test_a_wrong_password_is_told_with_the_node_and_without_itself(
    node: Running, secured: Secured, tmp_path: Path
) -> None:
    with pytest.raises(TidingsError, match=f"node {node.address}: ") as caught:
        rows(node, user="ada", passwordFile=secret_file(tmp_path, WRONG), ca=secured.ca)
    assert WRONG not in str(caught.value)


def test_a_file_that_is_not_there_is_named(node: Running, secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(TidingsError, match="nowhere: the password can't be read"):
        rows(node, user="ada", passwordFile=tmp_path / "nowhere", ca=secured.ca)


def test_a_node_that_is_not_trusted_is_told_nothing(node: Running, tmp_path: Path) -> None:
    with pytest.raises(TidingsError, match=f"node {node.address}"):
        rows(node, user="ada", passwordFile=secret_file(tmp_path, SECRET))


def test_a_secret_that_is_replaced_is_used_from_then_on(
    node: Running, secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    given = CaseInsensitiveDict(
        {"node": node.address, "user": "ada", "passwordFile": str(file), "ca": str(secured.ca)}
    )
    reader = TidingsSource(given).reader(COLUMNS)
    assert len(reader.partitions()) == 1
    file.write_text(WRONG)
    with pytest.raises(TidingsError):
        reader.partitions()


@pytest.mark.slow
def test_secrets_are_in_no_plan_page_checkpoint_or_error(
    node: Running, secured: Secured, tmp_path: Path
) -> None:
    secrets = [secret_file(tmp_path, SECRET), secret_file(tmp_path, WRONG)]
    folder = tmp_path / "spark"
    folder.mkdir()
    program = [sys.executable, str(TESTS / "pipeline" / "shown.py"), node.address, str(secured.ca)]
    done = subprocess.run(
        [*program, *secrets, str(folder)],
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    for told in (
        "== Physical Plan ==",
        "batch rows 1",
        "stream rows 1",
        f"node {node.address}: ",
        "page sql",
    ):
        assert told in shown
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any("offsets" in file.parts for file in files)
    for secret in (SECRET, WRONG):
        assert secret not in shown
        assert not [file for file in files if secret.encode() in file.read_bytes()]
