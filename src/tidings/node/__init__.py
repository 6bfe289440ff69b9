"""The node: the daemon that others connect to, and the only asyncio driver of the cores."""
