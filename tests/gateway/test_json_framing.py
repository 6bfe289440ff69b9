"""Objects out of a stream: in any chunks, over lines, with rubbish between, and what never ends."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.gateway.intake import JsonFramer
from tidings.gateway.messages import Error

BLANKS = st.text("\t\r\n ", max_size=3).map(str.encode)
TEXTS = st.text(max_size=8) | st.text('{}"\\\n', max_size=6)
VALUES = st.recursive(
    st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
WRITTEN = st.builds(
    lambda members, indent: json.dumps(members, indent=indent).encode(),
    OBJECTS,
    st.none() | st.just(1) | st.just("\t"),
)
MESSAGES = ['{"sensing":', ' { "register" : {}}', '{"unregister":1}']
ROUGH = (
    st.lists(st.sampled_from([*'{{{}}}""\\\n :,[]a1', *MESSAGES]), max_size=60).map("".join).map(str.encode)
)


def chunks(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(bounds)]


def cut_all(pieces: list[bytes], size_max: int = 1 << 20) -> list[bytes | Error]:
    """Everything that comes out, with what is said at the end."""
    cutter = JsonFramer(size_max)
    found: list[bytes | Error] = []
    for data in pieces:
        at = 0
        while at < len(data):
            pieces, at = cutter.cut(data, at)
            found += pieces
    assert len(cutter._held) <= size_max
    problem = cutter.finish()
    return found if problem is None else [*found, problem]


def each_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@given(st.lists(st.tuples(BLANKS, WRITTEN), max_size=6), BLANKS, st.lists(st.integers(0)))
def test_objects_come_out_as_they_were_written(
    written: list[tuple[bytes, bytes]], end: bytes, places: list[int]
) -> None:
    stream = b"".join(blank + one for blank, one in written) + end
    objects = [one for _, one in written]
    assert cut_all([stream]) == objects
    assert cut_all(chunks(stream, places)) == objects
    assert cut_all(each_byte(stream)) == objects


@given(ROUGH | st.binary(), st.lists(st.integers(0)), st.sampled_from([8, 20, 1 << 20]))
def test_what_comes_out_depends_on_the_bytes_alone(data: bytes, places: list[int], size_max: int) -> None:
    whole = cut_all([data], size_max)
    assert cut_all(chunks(data, places), size_max) == whole
    assert cut_all(each_byte(data), size_max) == whole


@given(st.lists(WRITTEN, min_size=1, max_size=4), st.text('}]",\\\n \0\ufeffxä', min_size=1))
def test_rubbish_between_objects_is_told_once_and_passed_over(objects: list[bytes], junk: str) -> None:
    rubbish = junk.encode()
    found = cut_all([rubbish.join([b"", *objects])])
    assert [one for one in found if isinstance(one, bytes)] == objects
    is_told = rubbish.strip(b" \t\r\n") != b""
    assert len(found) - len(objects) == (len(objects) if is_told else 0)


@given(ROUGH, WRITTEN)
def test_behind_anything_objects_are_found_again(rough: bytes, good: bytes) -> None:
    """An open text ends with its line, and an open object when the lines behind it can't belong to it."""
    line = json.dumps({"again": json.loads(good)}).encode() + b"\n"
    assert cut_all([rough + b"\n" + 12 * line])[-1] == line[:-1]


@given(WRITTEN, st.integers(0))
def test_an_object_cut_short_is_told_at_the_end(written: bytes, place: int) -> None:
    beginning = written[: 1 + place % (len(written) - 1)]
    assert cut_all([beginning]) == cut_all(each_byte(beginning)) == [Error("the object is cut short")]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"\xef\xbb\xbf{}", "an object begins with {, not with byte 0xef"),
        (b"\0{}", "an object begins with {, not with byte 0x00"),
        (b"null {}", "an object begins with {, not with byte 0x6e"),
        (b'{"a": "no end\n{}', "a line ends within a text"),
        (b'{"a": "no end \\\n{}', "a line ends within a text"),
        (b'{"a": {\n{"b": 1}\n{}', "JSON is malformed: object keys must be strings (byte 8)"),
        (b'{"a" 1\n{}', "JSON is malformed: expected ':' (byte 5)"),
        (b'{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": 1}{}', "an object has at most 32 bytes"),
    ],
)
def test_what_is_wrong_is_told_and_the_next_object_found(stream: bytes, problem: str) -> None:
    for pieces in ([stream], each_byte(stream)):
        found = cut_all(pieces, size_max=32)
        assert found[0] == Error(problem)
        assert found[-1] == b"{}"


@pytest.mark.parametrize(
    "broken", [b'{"sensing": {"sensing-id": "net", "sensors": [', b'{"a"', b'{"a":', b'{"b": {}']
)
def test_a_message_behind_a_line_that_was_cut_short_is_found(broken: bytes) -> None:
    good = b'{"sensing": {"sensing-id": "net", "sensors": []}}'
    problem = Error("the object is cut short: a message begins in the next line")
    stream = broken + b"\n" + good + b"\n\t" + good + b" {}\n"
    assert cut_all([stream]) == cut_all(each_byte(stream)) == [problem, good, good, b"{}"]


def test_braces_and_quotes_within_texts_do_not_count() -> None:
    written = rb'{"a}\"{": "}\\", "b": {"c": ["}{"]}}'
    assert cut_all([written]) == cut_all(each_byte(written)) == [written]


def test_an_object_that_never_ends_is_told_once_and_not_held() -> None:
    cutter = JsonFramer(size_max=1000)
    told = [problem for _ in range(1000) for problem in cutter.cut(b'{"a":' * 100)[0]]
    assert told == [Error("an object has at most 1000 bytes")]
    assert cutter.is_open
    assert not cutter._held
    assert cutter.finish() is None
    assert cutter.cut(b"{}") == ([b"{}"], 2)


def test_an_object_that_was_too_long_ends_where_it_ends() -> None:
    long = b'{"a": [' + b'{"b": "}"},\n' * 1000 + b"1]}"
    for pieces in ([long + b"{}"], each_byte(long + b"{}")):
        assert cut_all(pieces, size_max=100) == [Error("an object has at most 100 bytes"), b"{}"]


def test_a_long_object_is_taken_byte_by_byte() -> None:
    long = json.dumps({str(number): [{"a": "}"}] for number in range(5000)}, indent=0).encode()
    assert cut_all(each_byte(long)) == [long]


def test_the_longest_object_is_taken_and_one_byte_more_is_not() -> None:
    fitting = b'{"a": "' + b"x" * 91 + b'"}'
    assert cut_all([fitting], size_max=100) == cut_all(each_byte(fitting), size_max=100) == [fitting]
    assert cut_all([fitting], size_max=99) == [Error("an object has at most 99 bytes")]
