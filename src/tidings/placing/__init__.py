"""Placing: what a node has to compute is handed to the node nearest to its sources that sees all of them."""
