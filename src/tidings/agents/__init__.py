"""Agents: groups of programs that start others, and end when nobody needs them any more.

A *group* has members, a condition and a budget, at one node, its home. `ledger` is what is known of it: a
fold over its events, without I/O. `service` has the groups of a node.
"""

from tidings.agents.conditions import all_of, any_of, at_least, seen

__all__ = ["all_of", "any_of", "at_least", "seen"]
