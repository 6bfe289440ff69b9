"""The settings as a file that can be written down, and what the documents say of them."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tidings.cli.app import app
from tidings.node.config import NodeConfig
from tidings.node.settings import SETTINGS, as_toml, load

ROOT = Path(__file__).parents[2]
TEXTS = st.none() | st.text(max_size=20)
PORTS = st.none() | st.integers(0, 65535)
CONFIGS = st.builds(
    NodeConfig,
    dir=TEXTS,
    name=st.none() | st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    host=st.sampled_from(["127.0.0.1", "::1", "localhost"]),
    port=PORTS,
    unix=TEXTS,
    http_port=PORTS,
    security=st.none() | st.text(min_size=1, max_size=20),
    queue_types=TEXTS,
    connections_max=st.integers(1, 2**40),
    compiled=st.booleans(),
    log_level=st.sampled_from(["debug", "info", "warning", "error"]),
    log_form=st.sampled_from(["text", "json"]),
)


@given(CONFIGS)
def test_the_file_gives_the_settings_it_was_made_of(
    tmp_path_factory: pytest.TempPathFactory, config: NodeConfig
) -> None:
    file = tmp_path_factory.getbasetemp() / "node.toml"
    file.write_text(as_toml(config), encoding="utf-8")
    assert load(file) == config


def test_what_is_shown_as_an_example_can_be_set(tmp_path: Path) -> None:
    names = NodeConfig.__struct_fields__
    text = re.sub(rf"^# (?=(?:{'|'.join(names)}) = )", "", as_toml(NodeConfig()), flags=re.MULTILINE)
    (tmp_path / "node.toml").write_text(text)
    config = load(tmp_path / "node.toml")
    assert [name for name in names if getattr(config, name) is None] == []


def test_a_command_shows_the_settings_that_would_hold(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("http_port = 7380\nport = 1")
    flags = ["node", "--config", str(tmp_path / "node.toml"), "--port", "7301", "--show-config"]
    result = CliRunner(env={"TIDINGS_LOG_FORM": "json"}).invoke(app, flags)
    assert result.exit_code == 0
    (tmp_path / "shown.toml").write_text(result.output)
    assert load(tmp_path / "shown.toml") == NodeConfig(port=7301, http_port=7380, log_form="json")


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("postgresql://ada:S3CRET@db/tidings", "postgresql://ada:***@db/tidings"),
        ("postgresql://ada:S3CRET@S3CRET/S3CRET@db/tidings", "postgresql://ada:***@db/tidings"),
        ("postgresql://ada:S3CRET?S3CRET@db", "postgresql://ada:***@db"),
        ("postgresql://ada@db?password=S3CRET&port=1", "postgresql://ada@db?password=***&port=1"),
        ("host=db password=S3CRET&S3CRET user=ada", "host=db password=*** user=ada"),
        ("host=db PASSWORD = 'S3CRET \\\\' S3CRET' user=ada", "host=db PASSWORD = *** user=ada"),
        ("sslpassword=S3CRET\\\\ S3CRET host=db", "sslpassword=*** host=db"),
        ("host=db user=ada passfile=/etc/pass", "host=db user=ada passfile=/etc/pass"),
        ("postgresql://db:5432/tidings?options=a@b", "postgresql://db:5432/tidings?options=a@b"),
    ],
)
def test_passwords_are_masked_in_what_is_shown(tmp_path: Path, setting: str, shown: str) -> None:
    (tmp_path / "node.toml").write_text(f'postgres = "{setting}"\n')
    result = CliRunner().invoke(app, ["node", "--config", str(tmp_path / "node.toml"), "--show-config"])
    assert result.exit_code == 0
    assert f'postgres = "{shown}"' in result.output.splitlines()
    assert "S3CRET" not in result.output


def test_secrets_in_the_uri_of_a_folder_are_masked() -> None:
    folder = "s3://log/hall?region=eu&secret_key=S3CRET&access_key=S3CRET&scheme=https"
    text = as_toml(NodeConfig(dir="d", log_folder=folder))
    assert 'log_folder = "s3://log/hall?region=eu&secret_key=***&access_key=***&scheme=https"' in text
    assert "S3CRET" not in text


def test_passwords_are_masked_in_each_of_several_addresses() -> None:
    peers = "hall=tidings+tls://u:S3CRET@hall:7300,quay=tidings://quay:7300,gate=tidings+tls://v:S3/CRET@gate"
    text = as_toml(NodeConfig(peers=peers))
    assert "hall=tidings+tls://u:***@hall:7300,quay=tidings://quay:7300,gate=tidings+tls://v:***@gate" in text


def test_the_table_in_the_documents_is_what_is_made_from_the_settings() -> None:
    page = (ROOT / "docs" / "node.md").read_text()
    assert run_path(str(ROOT / "scripts" / "settings.py"))["with_table"](page) == page, "run make generated"


def test_the_help_calls_settings_by_their_flags() -> None:
    told = {name: SETTINGS[name].help for name in ("mdns", "memory_user_max", "log_form")}
    assert told == {
        "mdns": "Announce the node on its network, and find others there; needs --security.",
        "memory_user_max": "Bytes that it holds for one user; none: half of --memory-max.",
        "log_form": "text for people, json for programs.",
    }
