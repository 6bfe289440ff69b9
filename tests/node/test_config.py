from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from node.peers import run, running

from tidings.errors import ConfigError
from tidings.node.config import PORT, NodeConfig
from tidings.node.settings import load


def test_without_anything_said_a_node_has_its_port_and_keeps_nothing() -> None:
    config = load()
    assert config == NodeConfig()
    assert (config.tcp_port, config.dir) == (PORT, None)


def test_a_unix_socket_alone_opens_no_tcp_port() -> None:
    assert load(flags={"unix": "/tmp/s"}).tcp_port is None
    assert load(flags={"unix": "/tmp/s", "port": 0}).tcp_port == 0


def test_each_place_is_stronger_than_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('port = 1\nhttp_port = 1\ndir = "a"\n')
    environment = {"TIDINGS_HTTP_PORT": "2", "TIDINGS_DIR": "b", "TIDINGS_DATA": "not ours", "PORT": "9"}
    config = load(file, environment, {"dir": "c", "port": None})
    assert (config.port, config.http_port, config.dir) == (1, 2, "c")


def test_truth_comes_from_the_environment_as_a_word() -> None:
    assert load(environment={"TIDINGS_COMPILED": "false"}).compiled is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nprot = 1", "node.toml, line 2: prot: there is no such setting; did you mean 'port'?"),
        ("zzz = 1", "node.toml, line 1: zzz: there is no such setting"),
        ("port = 70000", "node.toml, line 1: port: must be a whole number <= 65535, not 70000"),
        ('port = "7300x"', "node.toml, line 1: port: must be a whole number, not '7300x'"),
        ("[port]\nx = 1", "node.toml, line 1: port: must be a whole number, not {'x': 1}"),
        ("connections_max = 0", "line 1: connections_max: must be a whole number >= 1, not 0"),
        (
            'log_level = "loud"',
            "line 1: log_level: must be one of debug, info, warning, error, not 'loud'",
        ),
        ("port = ", "node.toml: is not TOML"),
        ('host = "example.org"', "line 1: host: 'example.org' is no IP address"),
        ('host = "192.168.1.4"', "line 1: host: 192.168.1.4 can be reached from other machines"),
        ('host = "0.0.0.0"', "'tidings security init DIR' makes what it needs, and --security DIR uses it"),
        ('host = "::"\nsecurity = ""', "line 2: security: must be "),
        ('name = "the kitchen"', "line 1: name: must be text "),
        ('name = "a\\n"', "line 1: name: must be text "),
        ("[log]\ndays = 0", "node.toml, line 2: log_days: must be "),
        (
            "[log]\nwere = 'a'",
            "node.toml, line 2: log_were: there is no such setting; did you mean 'log_where'?",
        ),
        ("[log]\nwhere = 'type = '", "node.toml, line 2: log_where: line 1, column 7: "),
        ("log_folder = 'files'", "line 1: log_folder: a node without `dir` keeps nothing"),
        ("dir = 'd'\nlog_folder = 's3://me:secret@b'", "line 2: log_folder: a secret does not belong here"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert message in str(raised.value)


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^TIDINGS_PORT: must be a whole number, not 'many'$") as raised:
        load(environment={"TIDINGS_PORT": "many"})
    assert (raised.value.place, raised.value.key) == ("TIDINGS_PORT", "port")


def test_a_mistake_in_a_flag_names_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--http-port: must be a whole number >= 0, not -1$"):
        load(flags={"http_port": -1})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: can't be read: No such file"):
        load(tmp_path / "none.toml")


def test_the_error_travels_between_processes() -> None:
    error = ConfigError("node.toml", "port", "is wrong")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4"])
def test_with_security_any_address_is_taken_and_metrics_stay_on_loopback(host: str) -> None:
    config = load(flags={"host": host, "security": "/etc/tidings/security"})
    assert (config.host, config.loopback) == (host, "127.0.0.1")


def test_settings_made_by_hand_do_not_open_a_node_to_others_either() -> None:
    async def scenario() -> None:
        with pytest.raises(
            ConfigError, match=r"the settings: host: 0\.0\.0\.0 can be reached from other machines"
        ):
            async with running(host="0.0.0.0"):
                pass

    run(scenario())


def test_with_security_too_a_host_must_be_an_address() -> None:
    with pytest.raises(ConfigError, match="is no IP address"):
        load(flags={"host": "example.org", "security": "/etc/tidings/security"})


def test_a_node_without_a_name_is_called_after_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidings.node.config.gethostname", lambda: "ada's küche.example" + 100 * "x")
    name = load().node_name
    assert name.startswith("ada-s-k-che.example")
    assert load(flags={"name": name}).node_name == name


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback_addresses_are_taken(host: str) -> None:
    assert load(flags={"host": host}).host == host


def test_what_is_said_of_the_log_may_stand_in_a_table(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'dir = "d"\nlog_size = 5\n[log]\nwhere = "type = \'a\'"\nfolder = "f"\nseal_s = 7\ndays = 30\n'
    )
    config = load(file)
    assert (config.log_where, config.sealing_folder, config.log_seal_s) == ("type = 'a'", "f", 7.0)
    assert (config.log_days, config.log_size) == (30.0, 5)


def test_the_log_is_sealed_in_the_directory_unless_something_else_is_said() -> None:
    assert load(flags={"dir": "/var/lib/tidings"}).sealing_folder == "/var/lib/tidings/log"
    assert load().sealing_folder is None
