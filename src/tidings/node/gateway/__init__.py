"""Gateway as a process: its ports, its link to the node, and its life as a child of a node."""
