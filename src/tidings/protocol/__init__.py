"""The native protocol: frames, and the two ends of a session, without I/O."""
