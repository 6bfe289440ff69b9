"""The overlay: links between nodes, and the routing of events over them by content."""
