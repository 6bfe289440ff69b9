"""The messages as they are written."""

from __future__ import annotations

import pytest

from tidings.gateway.messages import (
    Ack,
    Error,
    GatewayMessage,
    Redirect,
    Sensor,
    SubscribeSensors,
    UnsubscribeSensors,
    encode,
)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            SubscribeSensors("n", [Sensor("a"), Sensor("b", min_value=1, max_value=2.5)]),
            '{"subscribe":{"sensing-id":"n","sensors":[{"name":"a"},{"name":"b","min-value":1,"max-value":2.5}]}}',
        ),
        (
            SubscribeSensors("n", [Sensor("a", max_rate=2, max_age_s=0.5)], "c0"),
            '{"subscribe":{"sensing-id":"n","sensors":[{"name":"a","max-rate":2,"max-age-s":0.5}],"cookie":"c0"}}',
        ),
        (
            UnsubscribeSensors("ü", [Sensor("a")]),
            '{"unsubscribe":{"sensing-id":"ü","sensors":[{"name":"a"}]}}',
        ),
        (Ack("net", 7), '{"ack":{"sensing-id":"net","seq":7}}'),
        (
            Error("is no number", "$.sensing.sensors[3].value", "net"),
            '{"error":{"problem":"is no number","place":"$.sensing.sensors[3].value","sensing-id":"net"}}',
        ),
        (Error("no JSON"), '{"error":{"problem":"no JSON","place":"$"}}'),
        (Redirect("net", "b:4242"), '{"redirect":{"sensing-id":"net","address":"b:4242"}}'),
    ],
)
def test_a_message_is_one_line_of_json(message: GatewayMessage, text: str) -> None:
    assert encode(message) == text.encode() + b"\n"
