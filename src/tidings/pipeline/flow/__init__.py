"""Information flow graphs: histories and states, joined by select, transform, collapse and expand.

`tidings.flows` is the public way to them. Only `frames`, `collapsing`, `stored_state` and `continuous` need
Spark: a graph is made and checked without it.
"""
