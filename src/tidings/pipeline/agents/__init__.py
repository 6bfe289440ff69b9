"""Agents pipeline: what groups of agents cost, why agents end, how long orphans live, and what runs away."""
