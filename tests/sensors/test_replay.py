from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import ConfigError, UserError
from tidings.gateway.messages import Sensor
from tidings.sensors import replay
from tidings.sensors.columns import parse_columns
from tidings.sensors.recording import HEADER, make_recording
from tidings.sensors.replay import Recording, ReplayMessage, moment_of

DATA = Path(os.environ.get("TIDINGS_DATA", Path(__file__).parents[3] / "shared" / "data"))
REAL = DATA / "luftdaten-aberdeen-2019-05.csv.gz"
HEAD = ",".join(HEADER) + "\n"
LINE = "2019-05-01T00:00:05,16422,8320,57.456,-2.377,28.83,13.30\n"


def recording(tmp_path: Path, text: str, columns: str | None = None, network: str | None = None) -> Recording:
    path = tmp_path / "readings.csv"
    path.write_text(text)
    return Recording(path, parse_columns(columns) if columns else None, network)


def test_a_line_is_a_message_with_a_reading_for_each_value(tmp_path: Path) -> None:
    rest = {"timestamp": "2019-05-01T00:00:05", "area": ({"x": -2.377, "y": 57.456},)}
    assert list(recording(tmp_path, HEAD + LINE).messages()) == [
        ReplayMessage(
            1556668805.0,
            "16422",
            [Sensor("16422.pm10", "pm10"), Sensor("16422.pm25", "pm25")],
            [
                {"name": "16422.pm10", "type": "pm10", "value": 28.83, **rest},
                {"name": "16422.pm25", "type": "pm25", "value": 13.3, **rest},
            ],
        )
    ]


def test_a_column_may_say_the_network_and_others_become_members(tmp_path: Path) -> None:
    columns = "timestamp=timestamp,name=sensor,value:dust=pm10,altitude=lat"
    (message,) = recording(tmp_path, HEAD + LINE, columns, "location").messages()
    assert message.sensing_id == "8320"
    assert message.readings == [
        {
            "name": "16422",
            "type": "dust",
            "value": 28.83,
            "timestamp": "2019-05-01T00:00:05",
            "altitude": "57.456",
        }
    ]


def test_each_line_may_tell_its_type(tmp_path: Path) -> None:
    text = "time,id,type,value\n1556668805,a,temp,4.5\n1556668806,a,door,open\n1556668807,a,temp,\n"
    found = recording(tmp_path, text)
    readings = [reading for message in found.messages() for reading in message.readings]
    assert [(one["type"], one["value"], one["timestamp"]) for one in readings] == [
        ("temp", 4.5, 1556668805.0),
        ("door", "open", 1556668806.0),
    ]
    assert found.empty == 1


def test_empty_values_are_left_out_and_counted(tmp_path: Path) -> None:
    found = recording(tmp_path, HEAD + "2019-05-01T00:00:05,1,2,,,,7\n" + "2019-05-01T00:00:06,1,2,,,,\n\n")
    (message,) = found.messages()
    assert [reading["value"] for reading in message.readings] == [7.0]
    assert "area" not in message.readings[0]
    assert (found.lines, found.readings, found.empty, found.bad) == (2, 1, 3, 0)


def test_lines_that_cannot_be_read_are_named_and_passed_over(tmp_path: Path) -> None:
    bad = [
        "yesterday,1,2,3,4,5,6",
        "2019-05-01T00:00:05,1,2,3,4,many,6",
        "2019-05-01T00:00:05,1,2,3,4,nan,6",
        "2019-05-01T00:00:05,1",
        "2019-05-01T00:00:05,,2,3,4,5,6",
    ]
    found = recording(tmp_path, HEAD + "\n".join(bad) + "\n" + LINE)
    assert len(list(found.messages())) == 1
    assert found.bad == 5
    assert [(line, problem) for line, problem in found.bad_lines] == [
        (2, "'yesterday' is no time"),
        (3, "pm10: 'many' is no number"),
        (4, "pm10: 'nan' is no number that can be measured"),
        (5, "has too few fields"),
        (6, "the network has 1 to 255 characters"),
    ]


def test_of_many_bad_lines_the_first_are_named(tmp_path: Path) -> None:
    found = recording(tmp_path, HEAD + "?,1,2,3,4,5,6\n" * 50)
    assert list(found.messages()) == []
    assert (found.bad, len(found.bad_lines)) == (50, replay.NAMED_MAX)


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 50))
def test_messages_come_in_the_order_of_their_times(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], window: int
) -> None:
    path = tmp_path_factory.mktemp("order") / "r.csv"
    path.write_text(
        "time,id,type,value\n" + "".join(f"{1e9 + time},a,x,{n}\n" for n, time in enumerate(times))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "ORDER_WINDOW", window)
        found = Recording(path)
        order = [message.time_s - 1e9 for message in found.messages()]
    assert sorted(order) == sorted(times)
    if len(times) <= window + 1:
        assert order == sorted(times)
        assert found.late == 0
    else:
        assert (found.late > 0) == (order != sorted(times))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2019-05-01T00:00:05", 1556668805.0),
        ("2019-05-01T02:00:05+02:00", 1556668805.0),
        ("2019-05-01 00:00:05.5Z", 1556668805.5),
        ("1556668805", 1556668805.0),
        ("1556668805500", 1556668805.5),
        ("1556668805500000", 1556668805.5),
    ],
)
def test_times_are_read_in_the_usual_forms(text: str, seconds: float) -> None:
    assert moment_of(text)[0] == seconds


def test_the_share_that_was_read_grows_to_one(tmp_path: Path) -> None:
    path = tmp_path / "r.csv.gz"
    make_recording(path, 1, sensors=5, days=0.5)
    found = Recording(path)
    shares = [found.share for _ in found.messages()]
    assert shares == sorted(shares)
    assert found.share == 1.0


# -- files that are none


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read: No such file"):
        Recording(tmp_path / "none.csv")


def test_a_file_that_is_not_compressed_or_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_text(HEAD)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="can't be read"):
        Recording(tmp_path / "a.csv.gz")
    with pytest.raises(UserError, match="is no CSV file"):
        Recording(tmp_path / "b.csv")


def test_a_file_that_is_cut_short_is_told_after_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((HEAD + LINE * 30_000).encode())[:-100])
    with pytest.raises(UserError, match="can't be read on"):
        list(Recording(path).messages())


def test_a_network_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="town: there is no such column"):
        recording(tmp_path, HEAD + LINE, None, "town")


# -- made and real recordings


def test_a_made_recording_is_like_a_real_one(tmp_path: Path) -> None:
    made = make_recording(tmp_path / "r.csv.gz", seed=1, sensors=23, days=2)
    found = Recording(tmp_path / "r.csv.gz")
    messages = list(found.messages())
    values = [one["value"] for message in messages for one in message.readings]
    assert (made.lines, made.readings, made.empty) == (found.lines, found.readings, found.empty)
    assert made.empty > 0
    assert len({message.sensing_id for message in messages}) == 23
    assert max(values) > 20 * sorted(values)[len(values) // 2]
    assert longest_gap(messages) > 3_600


def longest_gap(messages: list[ReplayMessage]) -> float:
    last: dict[str, float] = {}
    gaps = [0.0]
    for message in messages:
        gaps.append(message.time_s - last.get(message.sensing_id, message.time_s))
        last[message.sensing_id] = message.time_s
    return max(gaps)


def test_a_seed_makes_the_same_recording_again(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        make_recording(file, seed, sensors=3, days=0.1)
    first, second, third = (file.read_bytes() for file in files)
    assert first == second != third


@pytest.mark.skipif(not REAL.exists(), reason=f"needs {REAL.name} in TIDINGS_DATA")
def test_the_readings_of_may_2019_are_read_to_the_last() -> None:
    found = Recording(REAL)
    assert sum(len(message.readings) for message in found.messages()) == 2 * 302_564 - 2
    assert (found.lines, found.empty, found.bad, found.late) == (302_564, 2, 0, 0)
