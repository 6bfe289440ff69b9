"""How far a sender has counted is known though the messages that told it are gone."""

from __future__ import annotations

from queues.rig import DONE, Client, Rig


def test_a_message_that_was_settled_with_a_failed_commit_is_not_put_again() -> None:
    ann = Client(Rig())
    ann.create("jobs")
    ann.put("jobs", 1)
    bob = Client(ann.rig, "bob")
    bob.settle(DONE, *bob.get("jobs"))
    ann.rig.tick()
    ann.rig.fail()
    ann.rig.run()
    ann.come(ann.rig.restart())
    assert ann.welcome.counter == 1
    assert ann.read("jobs") == []
