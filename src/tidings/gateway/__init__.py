"""The sensor gateway: what sensors offer goes forward, what is wanted of them goes back; without I/O."""
