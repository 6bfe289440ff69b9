"""Overlay of nodes: how they know each other, agree on a tree and route events by content."""
