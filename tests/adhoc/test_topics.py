"""Lists of subscribers at two hosts: merged by what each subscriber has said last."""

from effort import often
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings.adhoc.topics import SUBSCRIPTION_S, AdhocTopic, SubscriptionChange

_CHANGES = st.lists(
    st.tuples(st.sampled_from("xyz"), st.booleans(), st.integers(1, 9), st.booleans()), max_size=12
)


def _subscribe(topic, host, stamp, now=0.0):
    return topic.change(host, SubscriptionChange("subscribe", True), now, (1, stamp))


def _unsubscribe(topic, host, stamp, now=0.0):
    return topic.change(host, SubscriptionChange("unsubscribe"), now, (1, stamp))


@given(_CHANGES)
@settings(max_examples=often(2_000, 100))
def test_two_hosts_know_the_same_once_each_has_had_the_list_of_the_other(changes):
    one, other, last = AdhocTopic("news"), AdhocTopic("news"), {}
    for host, is_ended, stamp, is_at_one in changes:
        if (host, stamp) in {(host, known) for host, known in last}:
            continue
        last[host, stamp] = is_ended
        (_unsubscribe if is_ended else _subscribe)(one if is_at_one else other, host, stamp)
    one.merge(other.states(0.0), 0.0)
    other.merge(one.states(0.0), 0.0)
    expected = {host for host, _ in last if not last[max(one for one in last if one[0] == host)]}
    assert one.subscribers.keys() == other.subscribers.keys() == expected


def test_that_a_subscription_has_ended_is_remembered_as_long_as_one_can_last():
    topic = AdhocTopic("news")
    _unsubscribe(topic, "x", 2)
    _subscribe(topic, "x", 1, SUBSCRIPTION_S - 1)
    assert topic.subscribers == {}
    assert topic.recipients(lambda _: False, SUBSCRIPTION_S) == ([], [])
    assert topic.ended == {}
    _subscribe(topic, "x", 1, SUBSCRIPTION_S)
    assert list(topic.subscribers) == ["x"]


def test_a_full_topic_refuses_subscribers_and_forgets_the_oldest_that_have_ended():
    topic = AdhocTopic("news", subscribers_max=2)
    assert [_subscribe(topic, host, 1) for host in "xyz"] == [True, True, False]
    for host in "abc":
        _unsubscribe(topic, host, 1)
    assert sorted(topic.ended) == ["b", "c"]
    other = AdhocTopic("news", subscribers_max=1)
    assert other.merge(topic.states(0.0), 0.0) == 1
    assert _unsubscribe(topic, "x", 2)
    assert _subscribe(topic, "z", 1)
