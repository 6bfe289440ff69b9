"""A process with a node of its own, to be killed: `child.py CONNINFO hold|put`.

`hold` takes messages of the queue `jobs` and says what it has; `put` puts one after another, and says which
counters were accepted. Both go on until they are killed.
"""

from __future__ import annotations

import sys

from postgres.rig import Client, Node, job, numbers


def hold(node: Node) -> None:
    while True:
        for number in numbers(node.get(count=3, wait_s=None)):
            sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def put(node: Node) -> None:
    client = Client("child")
    while True:
        node.put(client, job(client.counter + 1), job(client.counter + 2))
        sys.stdout.write(f"{client.counter}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    {"hold": hold, "put": put}[sys.argv[2]](Node(sys.argv[1], "child"))
