"""Anti-entropy in three steps, acknowledgements before any copy, and what is left after a cut."""

from adhoc.hosts import held, host, meet, seed, send

from tidings.adhoc.frames import CopyFrame, LackingFrame, NewsFrame, ReceiptFrame, SummaryFrame
from tidings.adhoc.ring import AcknowledgementRing


def _texts(ids):
    return [chr(id.counter) for id in ids]


def test_two_hosts_exchange_what_the_other_lacks_in_three_steps():
    one, two = host("1"), host("2")
    seed(one, "a", "b")
    seed(two, "b", "c")
    told = meet(one, two)
    steps = [(who, frame) for who, frame in told if not isinstance(frame, ReceiptFrame | NewsFrame)]
    assert [who for who, _ in steps] == ["1", "2", "2", "1"]
    assert [type(frame) for _, frame in steps] == [SummaryFrame, LackingFrame, CopyFrame, CopyFrame]
    assert _texts(steps[0][1].ids) == ["a", "b"]
    assert _texts(steps[1][1].wants) == ["a"]
    assert told.copies() == ["c", "a"]
    assert sorted(held(one)) == sorted(held(two)) == ["a", "b", "c"]


def test_a_meeting_that_is_cut_after_the_second_step_leaves_the_rest_to_the_next():
    one, two = host("1"), host("2")
    seed(one, "a", "b")
    seed(two, "b", "c")
    meet(one, two, stop=lambda frame: isinstance(frame, CopyFrame) and frame.message.raw == b"a")
    assert sorted(held(one)) == ["a", "b", "c"]
    assert held(two) == ["b", "c"]
    assert meet(one, two, now=60.0).copies() == ["a"]
    assert meet(one, two, now=120.0).copies() == []


def test_the_host_with_the_smaller_name_begins_whoever_is_asked_first():
    one, two = host("1"), host("2")
    assert meet(two, one)[0][0] == "1"


def test_the_best_goes_first():
    one, two = host("1"), host("2")
    send(one, "old", "x", priority=1)
    send(one, "low", "x", priority=1)
    send(one, "high", "x", priority=9)
    send(one, "kept", "x", persistent=True, priority=0)
    send(one, "yours", "2", priority=0)
    assert meet(one, two).copies() == ["yours", "kept", "high", "old", "low"]


def test_a_message_reaches_its_recipient_through_carriers_and_its_sender_hears_of_it():
    one, two, three = host("1"), host("2"), host("3")
    send(one, "hello", "3", persistent=True)
    meet(one, two)
    meet(two, three)
    assert three.got == ["hello"]
    assert held(two) == []
    meet(one, two, now=60.0)
    assert one.notices == [(1, "3", "delivered")]
    assert held(one) == []
    meet(one, three, now=120.0)
    assert one.notices == [(1, "3", "delivered")]


def test_acknowledgements_come_before_any_copy():
    one, two, three, four = host("1"), host("2"), host("3"), host("4")
    send(one, "hello", "4")
    meet(one, two)
    meet(one, three)
    meet(two, four)
    meet(two, three, now=1.0)  # three has a replica, and two knows that it was delivered
    assert held(three) == []
    told = meet(one, three, now=2.0)
    assert told.copies() == []
    assert held(one) == []


def test_each_delivery_takes_its_recipient_off_the_list():
    hosts = {name: host(name) for name in ("s", "old", "x", "y", "z", "c")}
    send(hosts["s"], "m", "x", "y", "z", persistent=True)
    meet(hosts["s"], hosts["old"])
    meet(hosts["s"], hosts["c"])
    for at, name in enumerate("xyz"):
        meet(hosts["c"], hosts[name], now=60.0 * at)
    assert held(hosts["c"]) == []
    meet(hosts["c"], hosts["x"], now=300.0)
    assert meet(hosts["old"], hosts["x"], now=360.0).copies() == []
    assert held(hosts["old"]) == []
    meet(hosts["old"], hosts["s"], now=400.0)
    assert [hosts[name].got for name in "xyz"] == [["m"]] * 3
    assert sorted(hosts["s"].notices) == [(1, name, "delivered") for name in "xyz"]


def test_an_acknowledgement_that_has_left_the_ring_does_not_let_a_message_in_again():
    sender = host("s")
    carrier, x = host("c"), host("x", ring=AcknowledgementRing(2))
    send(sender, "m1", "x", ttl_s=1_000.0)
    meet(sender, carrier)
    for text in ("m1", "m2", "m3"):
        if text != "m1":
            send(sender, text, "x", ttl_s=1_000.0)
        meet(sender, x, now=1.0)
    assert len(x.ring) == 2
    assert held(carrier) == ["m1"]
    told = meet(carrier, x, now=900.0)
    assert x.got == ["m1", "m2", "m3"]
    assert told.copies() == []
    assert held(carrier) == ["m1"]  # it expires there


def test_what_comes_while_hosts_are_together_is_offered_at_once():
    one, two = host("1"), host("2")
    one.meet("2", 0.0), two.meet("1", 0.0)
    one.receive("2", LackingFrame((), ()), 0.0)
    assert one.next_copy("2", 0.0) is None
    send(one, "new", "x")
    assert one.next_copy("2", 0.0).message.raw == b"new"
    assert one.next_copy("2", 0.0) is None


def test_a_long_message_goes_on_where_it_was_cut_with_any_carrier():
    text = "".join(chr(97 + at % 26) for at in range(200_000))
    one, two, three = host("1"), host("2"), host("3")
    send(one, text, "3")
    meet(one, two)
    seen = []

    def cut(frame):
        if isinstance(frame, CopyFrame):
            seen.append(frame.offset)
        return len(seen) > 2

    meet(one, three, stop=cut)
    assert three.got == []
    told = meet(two, three, now=60.0)
    assert [frame.offset for _, frame in told if isinstance(frame, CopyFrame)] == [131_072, 196_608]
    assert three.got == [text]
