"""How a program reaches a node: addresses, sockets, and a connection that is dialled again when lost."""
