"""Gets from queues to which there is no path: served when hosts have met by chance, or refused in time."""

import pytest
from adhoc.nodes import Hosts

from tidings.client.get import read_answer
from tidings.errors import Disconnected, QueueNotFound

LEASE_S = 180.0
PATIENT_S = 5_000.0


def _hosts(**settings):
    """A holder h, a reader r, and a carrier c that both meet; they do not meet each other."""
    hosts = Hosts("h", "c", "r", lease_s=LEASE_S, **settings)
    hosts.create("h", "jobs")
    hosts.ask("h", "adhoc.hold", name="jobs", follow=True)
    hosts.put("h", "jobs", n=1)
    return hosts


def _get(hosts, queue="jobs", **arguments):
    return hosts.app("r").ask("get", queue=queue, **arguments)


def _waiting(hosts):
    return len(hosts["r"].core.adhoc.waiting_gets)


def _shuttle(hosts, times):
    for _ in range(times):
        hosts.meet("r", "c", 6.0)
        hosts.meet("c", "h", 6.0)


def _values(told):
    (result,) = told
    return [dict(one.event.values) for one in read_answer(result, 0).messages]


@pytest.mark.parametrize("wait_s", [PATIENT_S, None])
@pytest.mark.parametrize("restarted", ["", "h", "c"])
def test_a_get_comes_through_when_hosts_meet_by_chance_later(wait_s, restarted):
    hosts = _hosts()
    _shuttle(hosts, 1)
    hosts.meet("r", "c")
    told = _get(hosts, wait_s=wait_s)
    _shuttle(hosts, 1)
    for name in restarted:
        hosts.restart(name)
    _shuttle(hosts, 7)
    assert _values(told) == [{"n": 1}]
    assert _waiting(hosts) == 0
    assert not hosts["h"].queues.knows("jobs")


def test_a_get_that_came_before_the_holder_was_heard_of_comes_through_at_its_address_alone():
    hosts = _hosts()
    at_once = _get(hosts, wait_s=PATIENT_S)
    hosts.run(1.0)
    assert isinstance(at_once[0], QueueNotFound)  # no host has announced such a queue
    told = _get(hosts, "jobs@h", wait_s=PATIENT_S)
    _shuttle(hosts, 6)
    assert _waiting(hosts) == 1
    assert told == []
    assert hosts.tally("r", "stood_in", "queue") == 1  # its wish did
    told = _get(hosts, wait_s=PATIENT_S)
    hosts.run(1.0)
    assert _values(told) == [{"n": 1}]


def test_a_get_that_waits_in_vain_fails_in_time_and_one_that_can_not_wait_at_once():
    hosts = _hosts()
    _shuttle(hosts, 1)
    hosts.meet("r", "c")
    asked = [_get(hosts), _get(hosts, wait_s=9.0, if_exists=True), _get(hosts, wait_s=PATIENT_S, up_to=7)]
    late = _get(hosts, wait_s=9.0)
    hosts.run(1.0)
    assert all(isinstance(told[0], Disconnected) for told in asked)
    assert (late, _waiting(hosts)) == ([], 1)
    hosts.run(10.0)
    assert isinstance(late[0], Disconnected)
    assert _waiting(hosts) == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_get_of_a_client_that_has_left_waits_no_longer(is_cancelled):
    hosts = _hosts()
    _shuttle(hosts, 1)
    hosts.meet("r", "c")
    app = hosts.app("r")
    call = app.connection.request("get", {"queue": "jobs", "wait_s": PATIENT_S}, "again")
    app.pump()
    hosts.run(1.0)
    assert _waiting(hosts) == 1
    if is_cancelled:
        app.connection.cancel_get(call.number)
        app.pump()
    else:
        app.crash()
    hosts.run(10.0)
    assert _waiting(hosts) == 0
    _shuttle(hosts, 6)
    assert hosts.got("h", "jobs") == [{"n": 1}]


def test_a_get_is_served_over_a_path_as_soon_as_there_is_one():
    hosts = Hosts("h", "r", peers=(("r", "h"),), lease_s=LEASE_S)
    hosts.create("h", "jobs")
    hosts.put("h", "jobs", n=1)
    hosts._part("r", "h")
    hosts.run(20.0)
    told = _get(hosts, "jobs@h", wait_s=PATIENT_S)
    hosts.run(5.0)
    assert (told, _waiting(hosts)) == ([], 1)
    hosts.world.network.heal(hosts.world.network.link("r", "h"))
    hosts.run(20.0)
    assert _values(told) == [{"n": 1}]
    assert _waiting(hosts) == 0
