"""What the options of the Spark format may be, and what is said about those that can't."""

from __future__ import annotations

import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict

from tidings.errors import ConfigError
from tidings.pipeline.options import (
    LEASE_S,
    NAMES,
    OTHERS_ONLY,
    ReadBound,
    check_options,
    label_of,
    reach_of,
    read_options,
)

NODE = {"node": "127.0.0.1:7300"}


def refusal(options: dict[str, str], use: str = "batch") -> str:
    with pytest.raises(ConfigError) as caught:
        read_options(options, use)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_node_is_all_that_a_query_must_name() -> None:
    batch, stream = read_options(NODE, "batch"), read_options(NODE, "stream")
    assert batch.reach.nodes == ("tidings://127.0.0.1:7300",)
    assert (batch.starting.word, batch.ending.word) == ("earliest", "latest")
    assert (stream.starting.word, stream.lease_s, stream.durable) == ("latest", LEASE_S, None)
    assert batch.fails_on_loss
    assert (batch.strict, batch.pushdown, batch.skips_corrupt) == (False, False, False)
    assert (batch.where, batch.offsets_max, batch.partitions_min) == (OTHERS_ONLY, None, None)


def test_names_of_options_are_known_in_any_case() -> None:
    given = CaseInsensitiveDict({"NODE": "127.0.0.1:7300", "MinPartitions": "3", "failondataloss": "FALSE"})
    options = read_options(given, "batch")
    assert (options.partitions_min, options.fails_on_loss) == (3, False)


def test_options_travel_in_a_pickle() -> None:
    options = read_options({**NODE, "startingOffsets": '{"127.0.0.1:7300": 7}'}, "stream")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_option_is_known_to_whoever_makes_the_source(name: str) -> None:
    collapse = '{"columns": {"a": "string"}, "by": "a", "rules": {"n": "count()"}}'
    values = {"node": "h:1", "startingOffsets": "latest", "where": "a = 1", "mode": "failfast"}
    values["collapse"] = collapse
    numbers = ("Timestamp", "Trigger", "Partitions", "lease")
    switches = ("failOnDataLoss", "pushdown", "skipCorrupt")
    value = values.get(name, "5" if name.endswith(numbers) else "true" if name in switches else "latest")
    beside = {"passwordFile": {"user": "ada"}, "key": {"cert": "c"}}.get(name, {})
    check_options({name: value, **beside})


def test_a_word_that_is_no_option_is_refused_with_the_one_that_was_meant() -> None:
    assert refusal({**NODE, "startingOffset": "latest"}) == (
        "option 'startingOffset': there is no such option; did you mean 'startingOffsets'?"
    )
    assert "there are node, path, where" in refusal({**NODE, "colour": "blue"})


def test_options_that_spark_hands_over_for_itself_are_passed_over() -> None:
    assert read_options({**NODE, "checkpointlocation": "/tmp/c"}, "stream").reach.nodes


@pytest.mark.parametrize("name", ["password", "token", "Password"])
def test_a_secret_that_is_given_itself_is_refused_and_not_told(name: str) -> None:
    told = refusal({**NODE, name: "correct horse"})
    assert f"{name.lower()}File" in told
    assert "horse" not in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"where": "value >> 3"}, "option 'where': line 1, column 8"),
        ({"failOnDataLoss": "perhaps"}, "'perhaps' is neither true nor false"),
        ({"mode": "dropmalformed"}, "'dropmalformed' is neither permissive nor failfast"),
        ({"minPartitions": "0"}, "'0' is no whole number from 1 on"),
        ({"minPartitions": "1.5"}, "'1.5' is no whole number from 1 on"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is no time; write it as 2026-05-01T08:30:00Z"),
        ({"startingTimestamp": "1969-12-31"}, "'1969-12-31' is no time"),
        ({"endingTimestamp": "2026-02-30T00:00Z"}, "'2026-02-30T00:00Z' is no time"),
        ({"startingOffsets": "first"}, "'first' is neither 'earliest', 'latest' nor positions by node"),
        ({"startingOffsets": '{"127.0.0.1:7300": -2}'}, "-2 is no position"),
        ({"startingOffsets": '{"other:7300": 2}'}, "names other:7300, which the option 'node' does not"),
        ({"startingOffsets": "{}"}, "says nothing of 127.0.0.1:7300"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "together with 'startingTimestamp'"),
        ({"path": "/data"}, "option 'node': can't be had together with 'path'"),
        ({"node": "here"}, ""),
        ({"node": "a:b:c"}, "say HOST:PORT"),
        ({"node": "h:1,h:1"}, "h:1 is named twice"),
        ({"node": "tidings://h:1", "user": "ada"}, "without TLS"),
        ({"passwordFile": "f"}, "needs the option 'user'"),
        ({"key": "f"}, "needs the option 'cert'"),
        ({"user": "ada", "passwordFile": "f", "tokenFile": "g"}, "together with 'passwordFile'"),
        ({"durable": "x"}, "is for spark.readStream, not for spark.read"),
        ({"maxOffsetsPerTrigger": "5"}, "is for spark.readStream, not for spark.read"),
        ({"sink": "alarms"}, "is for writing, not for spark.read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_a_batch_can_not_have_is_refused_with_the_reason(options: dict[str, str], told: str) -> None:
    if told:
        assert told in refusal({**NODE, **options})
    else:
        assert read_options({**NODE, **options}, "batch")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "/data"}, "option 'path': is for spark.read, not for spark.readStream"),
        ({**NODE, "endingOffsets": "latest"}, "is for spark.read, not for spark.readStream"),
        ({**NODE, "pushdown": "true"}, "is for spark.read, not for spark.readStream"),
        ({**NODE, "lease": "soon"}, "'soon' is no number of seconds from 1 to"),
        ({**NODE, "lease": "inf"}, "'inf' is no number of seconds from 1 to"),
        ({**NODE, "durable": ""}, "option 'durable': is empty"),
        ({}, "option 'node': is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_what_a_stream_can_not_have_is_refused_with_the_reason(options: dict[str, str], told: str) -> None:
    assert told in refusal(options, "stream")


def test_several_nodes_are_named_with_commas_between() -> None:
    reach = reach_of({"node": "10.0.0.1:7300, tidings+unix:///run/node.sock,[::1]:7301"})
    assert [label_of(node) for node in reach.nodes] == ["10.0.0.1:7300", "/run/node.sock", "[::1]:7301"]


def test_a_query_that_says_who_it_is_speaks_tls() -> None:
    reach = reach_of({"node": "10.0.0.1", "user": "ada", "passwordFile": "/etc/secret"})
    assert reach.nodes == ("tidings+tls://10.0.0.1",)
    assert label_of(reach.nodes[0]) == "10.0.0.1:7300"


def test_a_durable_query_is_kept_for_ever_unless_a_lease_is_named() -> None:
    assert read_options({**NODE, "durable": "city"}, "stream").lease_s is None
    assert read_options({**NODE, "durable": "city", "lease": "86400"}, "stream").lease_s == 86_400


def test_bounds_are_a_word_a_place_for_each_node_or_a_time() -> None:
    def starting(**options: str) -> ReadBound:
        return read_options({"node": "a:1,b:2", **options}, "batch").starting

    assert starting(startingOffsets="LATEST").at("a:1") == "latest"
    placed = starting(startingOffsets='{"a:1": 17, "tidings://b:2": "earliest"}')
    assert (placed.at("a:1"), placed.at("b:2")) == (17, "earliest")
    assert starting(startingTimestamp="1500").time_us == 1_500_000


@pytest.mark.parametrize(
    "text",
    ["2026-05-01T08:30:00Z", "2026-05-01T10:30+02:00", "2026-05-01 08:30", "1777624200000"],
)
def test_a_time_is_in_milliseconds_or_in_iso_8601_and_without_a_zone_in_utc(text: str) -> None:
    options = read_options({**NODE, "startingTimestamp": text, "endingTimestamp": f" {text} "}, "batch")
    assert options.starting.time_us == options.ending.time_us == 1_777_624_200_000_000


def test_places_in_a_folder_are_by_the_ids_of_nodes() -> None:
    options = read_options({"path": "/data", "startingOffsets": '{"vKq3": 17}'}, "batch")
    assert options.starting.at("vKq3") == 17


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), st.text(max_size=12)))
def test_whatever_is_given_is_taken_or_refused(options: dict[str, str]) -> None:
    for use in ("batch", "stream"):
        with suppress(ConfigError):  # and no other error
            read_options(options, use)  # type: ignore[arg-type]
