"""Growing-ring search: how far a node asks, whom it finds, and what strangers can do with it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.overlay import ring_search
from tidings.overlay.ring_search import (
    AGAIN_S,
    QUESTION_SIZE,
    RING_S,
    AnswerRing,
    AskRing,
    CandidateFound,
    CandidateLost,
    RingAnswer,
    RingEffect,
    RingQuestion,
    RingSearch,
)

HOST = "192.0.2.1"


def search(node: str, hops_max: int = 16, **more: object) -> RingSearch:
    return RingSearch(node, f"name-{node}", 7300, hops_max, Random(node).getrandbits, **more)  # type: ignore[arg-type]


class Site:
    """Nodes so many routers away from the one that searches, which is first woken at 0."""

    def __init__(self, hops_max: int = 16, **distances: int) -> None:
        self.near = search("near", hops_max)
        self.others = {name: search(name) for name in distances}
        self.distances = distances
        self.asked: list[int] = []
        self.found: list[str] = []
        self.lost: list[str] = []
        self.now = 0.0
        self.is_linked = False

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.near.wake_at <= end:
            self.now = max(self.now, self.near.wake_at)
            self._carry_out(self.near.wake(self.now, self.is_linked))
        self.now = end

    def _carry_out(self, effects: list[RingEffect]) -> None:
        for effect in effects:
            match effect:
                case AskRing(data, hops):
                    self.asked.append(hops)
                    for name, distance in self.distances.items():
                        if distance <= hops:
                            self._ask(name, data)
                case CandidateFound(name, address):
                    assert address == f"tidings+tls://{HOST}:7300"
                    self.found.append(name.removeprefix("name-"))
                case CandidateLost(name):
                    self.lost.append(name.removeprefix("name-"))

    def _ask(self, name: str, data: bytes) -> None:
        for answer in self.others[name].hear(data, HOST, self.now):
            assert isinstance(answer, AnswerRing)
            self._carry_out(self.near.hear(answer.data, HOST, self.now))


def test_the_ring_grows_until_a_node_answers_and_nobody_farther_away_is_asked() -> None:
    site = Site(b=3, c=4, d=5)
    site.run(10 * RING_S)
    assert site.asked == [1, 2, 4]
    assert site.found == ["b", "c"]


def test_where_nobody_answers_the_ring_grows_to_its_limit_and_again_after_a_while() -> None:
    site = Site(hops_max=5, b=6)
    site.run(AGAIN_S)
    assert site.asked == [1, 2, 4, 5]
    site.run(AGAIN_S)
    assert site.asked == [1, 2, 4, 5] * 2
    assert site.found == []


def test_a_node_that_has_a_link_asks_nobody_and_asks_when_it_is_gone() -> None:
    site = Site(b=1)
    site.is_linked = True
    site.run(5 * AGAIN_S)
    assert site.asked == []
    site.is_linked = False
    site.run(AGAIN_S)
    assert site.found == ["b"]


def test_a_node_of_which_no_link_comes_hides_none_that_is_farther_away() -> None:
    site = Site(liar=1, b=2)
    site.run(AGAIN_S)
    assert site.found == ["liar"]
    site.run(AGAIN_S)
    assert (site.found, site.lost) == (["liar", "b"], ["liar"])
    site.run(2 * AGAIN_S)
    assert site.found[2:] == ["liar", "b"]


def asked() -> tuple[RingSearch, bytes]:
    """A node that has asked, and its question."""
    near = search("near", taken=["name-known"])
    (effect,) = near.wake(0.0, is_linked=False)
    assert isinstance(effect, AskRing)
    return near, effect.data


def answered(node: str = "b", name: str = "name-b", port: int = 7300) -> tuple[RingSearch, bytes]:
    """A node that has asked, and an answer."""
    near, _ = asked()
    return near, msgspec.msgpack.encode(RingAnswer(near._nonce, node, name, port))


def test_an_answer_is_no_longer_than_its_question_and_a_short_question_gets_none() -> None:
    _, question = asked()
    assert len(question) == QUESTION_SIZE
    longest = RingSearch("n" * 63, "k" * 64, 65_535, 1, lambda _bits: 0)
    (effect,) = longest.hear(question, HOST, 0.0)
    assert isinstance(effect, AnswerRing)
    assert len(effect.data) <= len(question)
    bare = msgspec.msgpack.encode(RingQuestion(1, "near"))
    assert longest.hear(bare, HOST, 0.0) == []


def test_a_flood_of_questions_gets_few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_search, "ANSWERS_MAX", 3)
    _, question = asked()
    other = search("b")
    answers = [len(other.hear(question, HOST, 0.001 * number)) for number in range(10)]
    assert sum(answers) == 3
    assert other.dropped == 7
    assert other.hear(question, HOST, 1.5)


@pytest.mark.parametrize("name", ["", "a b", "a@b", "k\n", "k" * 65, "name-near", "name-known"])
def test_a_name_that_no_new_node_can_have_is_no_candidate(name: str) -> None:
    near, data = answered(name=name)
    assert near.hear(data, HOST, 0.0) == []


@pytest.mark.parametrize("node", ["a b", "a.b", "ä", "near"])
def test_an_id_that_no_other_node_can_have_is_no_candidate(node: str) -> None:
    near, data = answered(node)
    assert near.hear(data, HOST, 0.0) == []


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_does_not_exist_is_no_candidate(port: int) -> None:
    near, data = answered(port=port)
    assert near.hear(data, HOST, 0.0) == []


def test_an_answer_to_another_question_is_passed_over() -> None:
    near, data = answered()
    near.wake(RING_S, is_linked=False)
    assert near.hear(data, HOST, RING_S) == []


def test_an_answer_from_the_loopback_is_for_nodes_that_are_there() -> None:
    near, data = answered()
    assert near.hear(data, "127.0.0.1", 0.0) == []
    assert near.hear(data, HOST, 0.0)


def test_of_two_with_one_name_the_first_is_tried_and_of_very_many_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ring_search, "FOUND_MAX", 2)
    near, question = asked()
    found = []
    for node, name in (("b", "x"), ("c", "x"), ("d", "y"), ("e", "z")):
        other = RingSearch(node, name, 7300, 1, lambda _bits: 0)
        (effect,) = other.hear(question, HOST, 0.0)
        assert isinstance(effect, AnswerRing)
        found += near.hear(effect.data, HOST, 0.0)
    assert [one.name for one in found if isinstance(one, CandidateFound)] == ["x", "y"]


@given(st.binary(max_size=400))
def test_whatever_else_comes_is_passed_over(data: bytes) -> None:
    near, question = asked()
    assert near.hear(data, HOST, 0.0) == []
    assert near.hear(question[: len(data)], HOST, 0.0) == []
