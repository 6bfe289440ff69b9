"""The gateway as a process: its ports, its link to the node, and how a node runs one as its child."""
