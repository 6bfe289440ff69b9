"""Trades at a stock exchange: the large ones, and the highest price of each share on each day.

tidings pipeline run examples/flows/quotes.py --continuous
tidings subscribe "type = 'quotes.high'"
"""

from __future__ import annotations

from tidings.flows import count, graph, highest, history

DAY_S = 86_400.0
HOUR_S = 3_600.0

trades = history(
    "trades",
    where="type = 'trade'",
    columns={"symbol": "string", "price": "double", "volume": "bigint"},
)
large = trades.select("volume > 1000").named("large").published("quotes.large")
high = large.collapse(by="symbol", window_s=DAY_S, late_s=HOUR_S, high=highest("price"), trades=count())
quotes = graph("quotes", high.named("high").published("quotes.high"))
