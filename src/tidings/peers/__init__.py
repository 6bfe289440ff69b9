"""Nodes that know each other: what one hands on to another, and queues of others that work like its own."""
