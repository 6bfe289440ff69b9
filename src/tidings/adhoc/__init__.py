"""Messages between hosts that meet by chance, without a server and without a path; cores without I/O."""
