"""Connections from a program to a node: addresses, sockets, and a link that redials when it is lost."""
