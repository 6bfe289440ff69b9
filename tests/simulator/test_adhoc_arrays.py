"""Two simulators, one truth: cores and arrays deliver the same in the same steps, as the oracle says."""

from random import Random

import numpy as np
import pytest
from effort import often

from tidings.adhoc.strategies import STRATEGIES
from tidings.errors import UserError
from tidings.simulator.adhoc_arrays import KINDS, NEVER, flood, spread
from tidings.simulator.adhoc_cores import CoreRun, host_name, spread_by_cores
from tidings.simulator.contacts import Contact, trace_of


def _trace(seed, hosts=7, steps=25, pairs=40, step_s=20.0):
    """Contacts by chance, some of which last."""
    random = Random(seed)
    names = [str(number) for number in range(hosts)]
    contacts = []
    for _ in range(random.randint(1, pairs)):
        one, other = random.sample(names, 2)
        start = random.randrange(steps) * step_s
        contacts.append(Contact(one, other, start, start + step_s * random.choice((0, 0, 1, 3))))
    return trace_of(contacts, step_s, names)


def _oracle(trace):
    """The first step in which a host is reached along contacts whose times do not go back."""
    hosts = len(trace.names)
    first = {(one, one): -2 for one in range(hosts)}
    for step in sorted(set(trace.steps.tolist())):
        together = [
            {int(one), int(other)} for at, (one, other) in enumerate(trace.pairs) if trace.steps[at] == step
        ]
        clouds = []
        for pair in together:
            meeting = [cloud for cloud in clouds if cloud & pair]
            clouds = [cloud for cloud in clouds if not cloud & pair] + [pair.union(*meeting)]
        for cloud in clouds:
            for sender in {sender for host, sender in first if host in cloud}:
                for host in cloud:
                    first.setdefault((host, sender), step)
    return np.array(
        [
            [first.get((host, one), NEVER) if host != one else NEVER for one in range(hosts)]
            for host in range(hosts)
        ]
    )


def _messages(seed, hosts=7, count=20):
    random = Random(seed)
    pairs = [random.sample(range(hosts), 2) for _ in range(count)]
    return (np.array([pair[at] for pair in pairs], np.int32) for at in (0, 1))


@pytest.mark.parametrize("seed", range(often(20)))
def test_a_flood_is_the_time_respecting_oracle(seed):
    trace = _trace(seed)
    assert (flood(trace) == _oracle(trace)).all()


@pytest.mark.parametrize("seed", range(often(5)))
@pytest.mark.parametrize("strategy", KINDS)
@pytest.mark.parametrize("room", [None, 0, 1, 4])
def test_cores_and_arrays_deliver_the_same_in_the_same_steps(strategy, room, seed):
    trace = _trace(seed)
    senders, recipients = _messages(seed)
    by_cores, sent_by_cores = spread_by_cores(trace, strategy, senders, recipients, room)
    by_arrays, sent_by_arrays = spread(trace, strategy, senders, recipients, room)
    assert by_cores.tolist() == by_arrays.tolist()
    assert sent_by_cores == sent_by_arrays


@pytest.mark.parametrize("seed", range(often(5)))
@pytest.mark.parametrize("room", [None, 1, 3, 8])
def test_a_budget_that_doubles_as_lives_end_is_the_same_in_both(room, seed):
    trace = _trace(seed, steps=28, pairs=80, step_s=86_400.0)
    senders, recipients = _messages(seed)
    by_cores, sent_by_cores = spread_by_cores(trace, "budget", senders, recipients, room)
    by_arrays, sent_by_arrays = spread(trace, "budget", senders, recipients, room)
    assert (by_cores.tolist(), sent_by_cores) == (by_arrays.tolist(), sent_by_arrays)


def test_unlimited_epidemic_with_one_message_for_each_pair_is_a_flood():
    trace = _trace(3)
    hosts = len(trace.names)
    pairs = [(one, other) for one in range(hosts) for other in range(hosts) if one != other]
    senders, recipients = (np.array([pair[at] for pair in pairs], np.int32) for at in (0, 1))
    reached = flood(trace)
    for strategy in ("epidemic", "acknowledged"):
        steps, _ = spread(trace, strategy, senders, recipients)
        assert steps.tolist() == [reached[other, one] for one, other in pairs]


def test_one_message_to_all_reaches_each_as_the_flood_does():
    trace = _trace(5)
    run = CoreRun(trace, "acknowledged")
    hosts = range(len(trace.names))
    ids = [run.send(one, [other for other in hosts if other != one], trace.first_s) for one in hosts]
    run.run()
    reached = flood(trace)
    for sender, id in enumerate(ids):
        assert [run.delivered.get(id, {}).get(host, NEVER) for host in hosts] == reached[:, sender].tolist()


def test_strategies_differ_and_arrays_know_all():
    assert set(KINDS) == set(STRATEGIES)
    trace = _trace(1, pairs=200)
    senders, recipients = _messages(1, count=40)
    sent = {strategy: spread(trace, strategy, senders, recipients)[1] for strategy in KINDS}
    assert sent["direct"] < sent["spray"] < sent["epidemic"]


def test_a_strategy_that_arrays_do_not_know_is_refused():
    with pytest.raises(UserError, match="direct, epidemic"):
        spread(_trace(0), "magic", *_messages(0))


def test_names_of_hosts_are_in_the_order_of_their_numbers():
    assert sorted(map(host_name, (10, 9, 100))) == [host_name(9), host_name(10), host_name(100)]
