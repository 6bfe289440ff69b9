"""What bad input gets from a node: it is refused or bounded, counted, and hurts nobody else."""

import time

import pytest
from adhoc.nodes import Hosts
from adhoc.test_signed_hosts import _secured
from msgspec.structs import replace
from node.authority import Authority

from tidings.adhoc.beacons import BEACONS_MAX, Beacon, FoundHost, encode_beacon
from tidings.adhoc.carried_events import pack
from tidings.adhoc.frames import CHUNK, CopyFrame, NewsFrame, SummaryFrame, encode_frame
from tidings.adhoc.link_meetings import UNANSWERED_MAX
from tidings.adhoc.messages import CarriedMessage, MessageId
from tidings.adhoc.ring import Acknowledgement
from tidings.adhoc.settings import AdhocSettings
from tidings.event import Event
from tidings.ids import Origin
from tidings.node.assembly import CoreSettings
from tidings.queues.message import event_bytes
from tidings.security.authenticator import UserAuthenticator
from tidings.security.directory import SecurityDirectory
from tidings.security.rules import read_rules
from tidings.security.signing import CertificateProofs
from tidings.security.users import read_users
from tidings.simulator.node import SimulatedNode

DAY = 86_400.0


def _together(**settings):
    """Two hosts that have met; `b` is the hostile one, whose own exchange is over."""
    hosts = Hosts("a", "b", **settings)
    hosts.create("a", "jobs")
    hosts.begin("a", "b")
    hosts.run(2.0)
    return hosts


def _say(hosts, *frames, near="b", far="a"):
    """Have a host send frames, or bytes, to another; the errors that come back."""
    adhoc = hosts[near].core.adhoc
    neighbour = adhoc.meetings.hosts.get(far) or next(iter(hosts[near].core.overlay.neighbours))
    errors = []
    for frame in frames:
        data = frame if isinstance(frame, bytes) else encode_frame(frame)
        call = neighbour.link.connection.request("link.adhoc", {"frame": data}, "forget")
        call.then(lambda _none: None, errors.append)
    neighbour.link.flush()
    hosts[near].schedule()
    hosts.run(2.0)
    return errors


def _raw(**values):
    return pack(event_bytes(Event("job", values)), Origin("sys", 1, "app"))


def _message(counter=1, **changes):
    raw = changes.pop("raw", _raw(n=counter))
    made = CarriedMessage(
        MessageId("b", 1, counter), ("a",), destination="queue:jobs", size=len(raw), raw=raw
    )
    return replace(made, **changes)


def _copy(message, **changes):
    return replace(CopyFrame(message, message.ttl_s, message.recipients, 1, 1), **changes)


@pytest.mark.parametrize("junk", [b"", b"\xff", b"x" * 1_000, encode_frame(NewsFrame((), ()))[:-1]])
def test_a_summary_that_never_decodes_is_refused_and_the_meeting_goes_on(junk):
    hosts = _together()
    (error,) = _say(hosts, junk)
    assert "frame: is malformed" in str(error)
    assert hosts.tally("a", "refused", "frame") == 1
    assert _say(hosts, _copy(_message())) == []
    assert hosts.got("a", "jobs") == [{"n": 1}]


def test_a_million_ids_are_refused_and_a_hundred_thousand_bounded(monkeypatch):
    monkeypatch.setattr("tidings.adhoc.meeting.HAS_MAX", 150_000)
    hosts = _together()
    (error,) = _say(hosts, NewsFrame((), tuple(MessageId("s", 1, n) for n in range(1_000_000))))
    assert "at most 8388608 are allowed" in str(error)
    (error,) = _say(hosts, NewsFrame((), tuple(MessageId("s", 1, n) for n in range(100_001))))
    assert "length <= 100000" in str(error)
    assert hosts.tally("a", "refused", "frame") == 2
    for first in (0, 100_000):
        assert _say(hosts, NewsFrame((), tuple(MessageId("s", 1, first + n) for n in range(100_000)))) == []
    assert hosts.tally("a", "refused", "ids") == 1
    assert len(hosts["a"].core.adhoc.host.meetings["b"].has) <= 150_000
    assert hosts.held("a") == 0


def test_a_replayed_message_is_put_once():
    hosts = _together()
    _say(hosts, *[_copy(_message())] * 5)
    hosts.restart("a")
    hosts.begin("a", "b")
    hosts.run(2.0)
    _say(hosts, _copy(_message()))
    assert hosts.got("a", "jobs") == [{"n": 1}]


def test_an_event_that_is_none_is_counted_and_put_nowhere():
    hosts = _together()
    for number, raw in enumerate((b"junk", pack(b"\x90", None), pack(b"", None), _raw(n=1) + b"x"), 1):
        _say(hosts, _copy(_message(number, raw=raw, size=len(raw))))
    assert hosts.got("a", "jobs") == []
    assert hosts.tally("a", "refused", "event") == 4


def test_a_message_larger_than_the_buffer_is_refused_at_its_sender_and_at_a_carrier():
    hosts = Hosts("a", "b", buffer_bytes=1_000)
    (failure,) = hosts.put("a", "jobs@far", text="x" * 2_000)
    assert failure.code == "queue-full"
    assert hosts.tally("a", "refused", "buffer") == 1
    hosts.begin("a", "b")
    hosts.run(2.0)
    big = _raw(text="x" * 2_000)
    _say(hosts, _copy(_message(raw=big, size=len(big), recipients=("far",))))
    assert hosts.tally("a", "refused", "buffer") == 2
    assert hosts.held("a") == 0


def test_a_host_with_a_buffer_of_zero_carries_nothing_and_receives():
    hosts = Hosts("a", "b", buffer_bytes=0)
    hosts.create("a", "jobs")
    (failure,) = hosts.put("a", "jobs@far", n=1)
    assert failure.code == "queue-full"
    hosts.begin("a", "b")
    hosts.run(2.0)
    _say(hosts, _copy(_message()))
    assert hosts.got("a", "jobs") == [{"n": 1}]


def test_a_message_without_ttl_has_an_end_and_one_with_too_much_is_refused():
    hosts = Hosts("a")
    hosts.put("a", "jobs@far", n=1)
    (carried,) = hosts.ask("a", "adhoc.status")["carried"]
    assert 0 < carried["left_s"] <= DAY
    (failure,) = hosts.put("a", "jobs@far", n=2, ttl_s=31 * DAY)
    assert "must be above 0 and at most" in failure.text
    hosts.run(DAY + 10.0)
    assert hosts.held("a") == 0
    assert hosts.tally("a", "dropped", "expired") == 1


@pytest.mark.parametrize("ahead_s", [DAY, -DAY / 2])
def test_clocks_a_day_apart_neither_prolong_nor_shorten_a_life(ahead_s):
    hosts = Hosts("a", "b")
    about = CoreSettings(name="c", adhoc=AdhocSettings(), weigh_s=0.0)
    SimulatedNode(hosts.world, "c", settings=about, ahead_s=ahead_s)
    hosts._part("a", "c")
    hosts._part("b", "c")
    hosts.create("b", "jobs")
    hosts.put("a", "jobs@b", n=1, ttl_s=100.0)
    hosts.meet("a", "c")
    hosts.restart("c")
    assert hosts.held("c") == 1
    left_s = next(iter(hosts["c"].core.adhoc.host.buffer)).expires_at - hosts["c"].time()
    assert 60.0 < left_s < 100.0
    hosts.meet("b", "c")
    assert hosts.got("b", "jobs") == [{"n": 1}]


def test_a_hundred_identities_of_one_host_get_no_more_than_one_has():
    hosts = Hosts("a")
    adhoc = hosts["a"].core.adhoc
    for number in range(BEACONS_MAX + 100):
        adhoc.hear(encode_beacon(Beacon(f"x{number}", "same", 9, "tidings")), "127.0.0.1", False)
    assert len(adhoc.beacons) == BEACONS_MAX
    assert hosts.tally("a", "refused", "beacon") == 100
    assert len(list(hosts["a"].core.registry)) <= BEACONS_MAX


def test_senders_of_one_host_share_what_a_meeting_and_a_second_may_bring():
    hosts = _together(origin_bytes=5_000, meeting_bytes=100_000)
    copies = []
    for number in range(100):
        raw = _raw(text="x" * 3_000)
        message = _message(raw=raw, size=len(raw), recipients=("far",), id=MessageId(f"s{number}", 1, 1))
        copies.append(_copy(message))
    one = copies[0].message
    again = [_copy(replace(one, id=MessageId("s0", 1, 2)))]
    _say(hosts, copies[0], *again)
    assert hosts.tally("a", "refused", "origin") == 1
    for start in range(1, 100, 20):
        _say(hosts, *copies[start : start + 20])
    assert hosts["a"].core.adhoc.host.buffer.size <= 100_000 + CHUNK
    assert hosts.tally("a", "refused", "meeting") == 101 - hosts.held("a") - 1


def test_a_host_that_does_not_wait_for_answers_is_refused():
    hosts = _together(rate=1_000.0)
    raw = _raw(text="x" * 2_000)
    frames = [
        _copy(_message(n, raw=raw, size=len(raw), recipients=("far",))) for n in range(2 * UNANSWERED_MAX)
    ]
    errors = _say(hosts, *frames)
    assert errors
    assert hosts.held("a") <= UNANSWERED_MAX + 4


def test_another_host_of_the_same_name_is_not_met():
    hosts = Hosts("a")
    adhoc = hosts["a"].core.adhoc
    adhoc.find(FoundHost("a", "other", "tidings://a:1"))
    adhoc.find(FoundHost("x", "one", "tidings://a:1"))
    adhoc.find(FoundHost("x", "two", "tidings://a:1"))
    assert hosts.tally("a", "refused", "beacon") == 2


# Signed


def _signed(tmp_path, *names):
    authority = Authority()
    hosts = Hosts("z")
    for name in names:
        files = SecurityDirectory(_secured(tmp_path / name, name, authority).path)
        settings = AdhocSettings(proofs=CertificateProofs(files, time.time))
        SimulatedNode(
            hosts.world, name, settings=CoreSettings(name=name, adhoc=settings, weigh_s=0.0), ahead_s=0.0
        )
    hosts.create(names[0], "jobs")
    hosts.begin(*names[:2])
    hosts.run(2.0)
    return hosts


def test_forged_and_altered_messages_and_acknowledgements_are_refused(tmp_path):
    hosts = _signed(tmp_path, "a", "b")
    own = hosts["b"].core.adhoc.host
    good = own.compose(("a",), _raw(n=1), destination="queue:jobs")
    _say(hosts, _copy(replace(good, proof=b"")), _copy(replace(good, priority=9)))
    _say(hosts, _copy(replace(good, id=MessageId("c", 1, 1))))
    assert hosts.tally("a", "refused", "forged") == 3
    assert hosts.got("a", "jobs") == []
    _say(hosts, _copy(good))
    assert hosts.got("a", "jobs") == [{"n": 1}]

    hosts.put("a", "jobs@far", n=2)
    (carried,) = hosts["a"].core.adhoc.host.buffer
    signed = own.proofs.sign(b"something else")
    for proof in (b"", b"junk", signed):
        _say(hosts, NewsFrame((Acknowledgement(carried.id, "far", 100.0, proof),), ()))
    assert hosts.held("a") == 1
    assert hosts.tally("a", "refused", "forged acknowledgement") == 3


def test_an_acknowledgement_of_one_message_is_none_of_another(tmp_path):
    hosts = _signed(tmp_path, "a", "b")
    hosts.put("a", "jobs@b", n=1, ttl_s=1_000.0)
    hosts.run(2.0)
    assert hosts.held("a") == 0
    (entry,) = hosts["a"].core.adhoc.host.ring.behind(0)
    hosts.put("a", "jobs@far", n=2)
    (carried,) = hosts["a"].core.adhoc.host.buffer
    _say(hosts, NewsFrame((Acknowledgement(carried.id, "b", 100.0, entry.proof),), ()))
    assert hosts.held("a") == 1
    assert hosts.tally("a", "refused", "forged acknowledgement") == 1


@pytest.mark.parametrize(
    ("users", "put"),
    [("b node\n", [{"n": 1}]), ("b node\nb locked\n", []), ("", [])],
)
def test_what_arrives_is_put_with_the_rights_of_the_host_that_has_sent_it(users, put):
    rules = '[[allow]]\nusers = ["b"]\nactions = ["put"]\nqueues = ["jobs"]\n' if users else ""
    known = read_users(users, "users")
    authenticator = UserAuthenticator(known, read_rules(rules, "access.toml", known))
    hosts = Hosts("b", "z")
    about = CoreSettings(name="a", adhoc=AdhocSettings(), weigh_s=0.0, authenticator=authenticator)
    SimulatedNode(hosts.world, "a", settings=about)
    hosts.create("a", "jobs")
    hosts.create("a", "others")
    hosts.put("b", "jobs@a", n=1)
    hosts.put("b", "others@a", n=2)
    hosts.begin("a", "b")
    hosts.run(3.0)
    assert hosts.got("a", "jobs") == put
    assert hosts.got("a", "others") == []
    assert hosts.tally("a", "undelivered", "rights") == 2 - len(put)


@pytest.mark.parametrize(
    ("users", "queue", "is_named"),
    [
        ("b node\n", "jobs", True),
        ("b node\n", "others", False),
        ("b node\nb locked\n", "jobs", False),
        ("", "jobs", False),
    ],
)
def test_hosts_stand_in_for_each_other_where_each_may_put(users, queue, is_named):
    rules = '[[allow]]\nusers = ["b"]\nactions = ["put"]\nqueues = ["jobs"]\n' if users else ""
    known = read_users(users, "users")
    authenticator = UserAuthenticator(known, read_rules(rules, "access.toml", known))
    hosts = Hosts("b", lease_s=180.0)
    settings = AdhocSettings(lease_s=180.0)
    about = CoreSettings(name="a", adhoc=settings, weigh_s=0.0, authenticator=authenticator)
    SimulatedNode(hosts.world, "a", settings=about)
    hosts.ask("a", "adhoc.hold", name=queue, replicas=1)
    hosts.ask("b", "adhoc.hold", name=f"{queue}.2", replicas=1)
    for _ in range(5):
        hosts.meet("a", "b")
        hosts.run(30.0)
    places = {name: {one.name: one for one in hosts[name].core.adhoc.host.registry} for name in "ab"}
    assert places["b"][queue].deputies == (("b",) if is_named else ())
    assert places["b"][f"{queue}.2"].deputies == ("a",)
    hosts.run(400.0)
    assert hosts.tally("b", "stood_in", "queue") == is_named
    assert hosts.tally("a", "stood_in", "queue") == 0  # b may put into jobs, and not into jobs.2


def test_frames_are_for_hosts_that_have_greeted():
    hosts = Hosts("a")
    told = hosts.ask("a", "link.adhoc", frame=encode_frame(SummaryFrame((), ())))
    assert "greet first" in str(told)
