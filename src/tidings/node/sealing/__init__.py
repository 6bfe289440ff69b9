"""The process that seals a node's log into files."""
