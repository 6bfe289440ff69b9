"""The image of a node and the page about it: commands, options, settings and files that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from tidings.cli.app import app
from tidings.node.compiled import lasting_place
from tidings.node.settings import load
from tidings.node.variables import CLIENT, PREFIX, misspelt
from tidings.transport.address import parse

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "containers.md").read_text()
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def given(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


def variables() -> dict[str, str]:
    return dict(word.split("=", 1) for text in given("ENV") for word in shlex.split(text))


def check_command(words: list[str]) -> None:
    """Fail unless typer knows the command and all its options."""
    program, *words = words
    assert program == "tidings", words
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    assert command.name is not None
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known, words
    if not words or words[0].startswith("-"):
        return
    assert any(parameter.param_type_name == "argument" for parameter in command.params), words


def commands_of_the_image() -> Iterator[list[str]]:
    (entry,), (default,) = given("ENTRYPOINT"), given("CMD")
    yield [*json.loads(entry), *json.loads(default)]
    (check,) = given("HEALTHCHECK")
    yield json.loads(check[check.index("[") :])
    for text in given("RUN"):
        if text.startswith("tidings"):
            yield shlex.split(text)


def test_every_instruction_is_one_of_the_format() -> None:
    names = [name for name, _ in instructions()]
    assert names[0] == "FROM"
    assert set(names) == INSTRUCTIONS | {"HEALTHCHECK"}


def test_the_commands_of_the_image_exist_with_their_options() -> None:
    found = list(commands_of_the_image())
    assert ["tidings", "node"] in found
    assert ["tidings", "node", "compile"] in found
    assert ["tidings", "ping"] in found
    for words in found:
        check_command(words)


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    for words in (["tidings", "pong"], ["tidings", "node", "--prot", "1"], ["tidings", "node", "strat"]):
        with pytest.raises(AssertionError):
            check_command(words)


def test_the_settings_of_the_image_are_those_of_a_node() -> None:
    environment = variables()
    config = load(environment=environment)
    ours = {name for name in environment if name.startswith(PREFIX)} - CLIENT
    assert {f"{PREFIX}{name.upper()}" for name in config.__struct_fields__} >= ours
    assert misspelt(environment) == {}
    assert parse(environment["TIDINGS_NODE"]).path == config.unix
    assert [config.dir] == given("VOLUME")
    assert [str(config.tcp_port)] == given("EXPOSE")


def test_what_the_node_writes_to_belongs_to_its_user() -> None:
    (made,) = (text for text in given("RUN") if "useradd" in text)
    folders = shlex.split(made.partition("install -d -o tidings -m 700")[2])
    environment = variables()
    wanted = (
        environment["TIDINGS_DIR"],
        environment["XDG_CACHE_HOME"],
        str(Path(environment["TIDINGS_UNIX"]).parent),
    )
    assert set(folders) == set(wanted)
    assert given("USER") == ["tidings"]


def test_the_node_finds_the_code_that_was_compiled_for_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert lasting_place(None) == lasting_place(variables()["TIDINGS_DIR"]) == tmp_path / "tidings"


def test_what_is_copied_and_installed_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in given("COPY"):
        *sources, _ = text.split()
        assert all((ROOT / source).exists() for source in sources)
    (install,) = (text for text in given("RUN") if text.startswith("pip "))
    extras = re.findall(r"\[([\w,]+)\]", install)[0].split(",")
    assert set(extras) <= project["optional-dependencies"].keys()


def test_the_commands_of_the_page_exist_with_their_options() -> None:
    text = PAGE.replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shown = [shlex.split(line) for block in blocks for line in block.splitlines()]
    inside = [["tidings", *words[words.index("tidings") + 1 :]] for words in shown if "tidings" in words[1:]]
    probes = [shown.split(", ") for shown in re.findall(r"command: \[([^\]]+)\]", PAGE)]
    assert len(inside) > 3
    assert len(probes) == 3
    for words in [*(words for words in inside if len(words) > 1 and words[1] != "."), *probes]:
        check_command(words)
