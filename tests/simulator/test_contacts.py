"""Traces of contacts, as others write them; bad lines are named."""

import gzip

import pytest

from tidings.errors import UserError
from tidings.simulator.contacts import Contact, read_trace, trace_of, write_one


def _read(tmp_path, text, format=None, step_s=None):
    path = tmp_path / "trace.txt"
    path.write_text(text)
    return read_trace(path, format, step_s)


def _rows(trace):
    pairs = [[trace.names[int(host)] for host in pair] for pair in trace.pairs]
    return [(int(step), *pair) for step, pair in zip(trace.steps, pairs, strict=True)]


def test_a_trace_of_the_one_has_links_that_go_up_and_down(tmp_path):
    text = "# a comment\n0 CONN 2 10 up\n10 C M1 2 10 500\n45 CONN 2 10 down\n"
    text += "100 CONN 10 3 up\n130 CONN 2 3 up\n"
    trace = _read(tmp_path, text)
    assert trace.step_s == 20.0
    assert trace.names == ["2", "3", "10"]
    assert _rows(trace) == [
        (0, "2", "10"),
        (1, "2", "10"),
        (2, "2", "10"),
        (5, "3", "10"),
        (6, "2", "3"),
        (6, "3", "10"),
    ]


def test_a_trace_of_sociopatterns_has_a_line_for_each_step(tmp_path):
    trace = _read(tmp_path, "40\t1\t2\tA\tB\n40\t2\t1\tB\tA\n60\t1\t3\tA\tC\n")
    assert _rows(trace) == [(2, "1", "2"), (3, "1", "3")]
    assert (trace.first_s, trace.last_s) == (40.0, 60.0)


def test_in_a_trace_of_haggle_a_contact_lasts_and_hosts_are_those_of_the_first_column(tmp_path):
    trace = _read(tmp_path, "1 2 0 250 1 0\n2 9 0 500 1 0\n2 1 480 480 1 0\n")
    assert trace.step_s == 120.0
    assert trace.names == ["1", "2"]
    assert _rows(trace) == [(0, "1", "2"), (1, "1", "2"), (2, "1", "2"), (4, "1", "2")]


def test_a_compressed_trace_with_commas_is_read_too(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"20,1,2\n"))
    assert _rows(read_trace(path)) == [(1, "1", "2")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("20 1 2\nx 1 2\n", "line 2: 'x' is no time"),
        ("20 1 2\n40 1\n", "line 2: has 2 columns; 3 are needed"),
        ("1 2 100 50\n", "line 1: the contact ends before it begins"),
        ("0 CONN 1 2 up\n5 CONN 1 2 off\n", "line 2: 'off' is neither 'up' nor 'down'"),
        ("", "no contacts in a known format"),
        ("hello world\n", "no contacts in a known format"),
        ("1 2 0 1e13\n2 1 0 0\n", "steps of contacts: at most"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(tmp_path, text, problem):
    with pytest.raises(UserError, match=problem.replace("(", r"\(")):
        _read(tmp_path, text)


def test_a_file_that_is_not_there_and_a_format_that_is_none_are_refused(tmp_path):
    with pytest.raises(UserError, match="can't be read"):
        read_trace(tmp_path / "none")
    with pytest.raises(UserError, match="one, sociopatterns, haggle"):
        _read(tmp_path, "20 1 2\n", format="csv")


def test_a_damaged_compressed_file_is_refused(tmp_path):
    path, data = tmp_path / "trace.gz", bytearray(gzip.compress(b"20 1 2\n" * 100))
    for bad in (data[:20], data[:12] + b"\xff" * 8 + data[20:]):
        path.write_bytes(bad)
        with pytest.raises(UserError, match="can't be read"):
            read_trace(path)


def test_contacts_that_are_written_are_read_again(tmp_path):
    contacts = [Contact("a", "b", 0.0, 30.0), Contact("b", "c", 30.0, 50.0)]
    assert _rows(_read(tmp_path, write_one(contacts))) == _rows(trace_of(contacts, 20.0))
